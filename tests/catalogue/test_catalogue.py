"""A catalogue as a folder: made whole, opened to read or to write, bound to one encoder."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest
import tomlkit
from texcat.catalogue import Catalogue
from texcat.catalogue.codes import Codebook
from texcat.catalogue.errors import (
    CatalogueError,
    CatalogueExistsError,
    CatalogueLockedError,
    CatalogueMissingError,
    FingerprintMismatchError,
    FormatVersionError,
    ImageReadError,
    ReadOnlyError,
    StoreError,
    StoreFullError,
    UnknownChannelError,
    UnknownInterestError,
    UsageError,
)
from texcat.catalogue.types import Box, Exemplar, ImageKey, TextureRecord

from ..unprivileged import as_nobody, let_reach
from .strategies import KEYS
from .test_store import plane, record


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat") as made:
        yield made


def test_what_was_made_can_be_opened(tmp_path: Path) -> None:
    with Catalogue.create(tmp_path / "deep" / "cat", groups=["appearance"], shards=2) as made:
        made.add_interest("mountain biking", weight=2.0)
        assert made.schema.groups == ("appearance", "interest")
    with Catalogue.open(tmp_path / "deep" / "cat") as opened:
        assert [(i.phrase, i.weight) for i in opened.interests()] == [("mountain biking", 2.0)]
        assert opened.settings == made.settings
    names = {path.name for path in (tmp_path / "deep" / "cat").iterdir()}
    assert names - {"registry.sqlite-shm", "registry.sqlite-wal"} == {
        "catalogue.toml",
        "registry.sqlite",
        "shards",
        "writer.lock",
    }


def test_a_folder_can_be_moved(tmp_path: Path) -> None:
    with Catalogue.create(tmp_path / "here") as made:
        made.add_interest("dog")
    (tmp_path / "here").rename(tmp_path / "there")
    with Catalogue.open(tmp_path / "there", "w") as opened:
        assert [i.phrase for i in opened.interests()] == ["dog"]


@pytest.mark.parametrize(("name", "found"), [("catalogue.toml", "a catalogue"), ("photo.jpg", "other files")])
def test_nothing_is_made_over_something(tmp_path: Path, name: str, found: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(CatalogueExistsError, match=f"already holds {found}"):
        Catalogue.create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("bad", [{"groups": ["reds"]}, {"shards": 0}, {"shards": 5000}])
def test_bad_settings_leave_nothing_behind(tmp_path: Path, bad: dict[str, object]) -> None:
    with pytest.raises((UsageError, UnknownChannelError)):
        Catalogue.create(tmp_path / "cat", **bad)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_no_catalogue(tmp_path: Path) -> None:
    with pytest.raises(CatalogueMissingError, match="texcat init -c"):
        Catalogue.open(tmp_path / "none")


def test_a_catalogue_open_to_read_cannot_be_changed(tmp_path: Path) -> None:
    Catalogue.create(tmp_path / "cat").close()
    with Catalogue.open(tmp_path / "cat") as catalogue:
        with pytest.raises(ReadOnlyError, match="cannot add an interest"):
            catalogue.add_interest("dog")
        with pytest.raises(ReadOnlyError):
            catalogue.remove_interest("dog")
        with pytest.raises(ReadOnlyError):
            catalogue.adopt_encoder("an encoder", 0.0, 1.0)


def test_the_second_writer_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    with Catalogue.create(tmp_path / "cat"):
        with pytest.raises(CatalogueLockedError, match=f"process {os.getpid()} on ") as caught:
            Catalogue.open(tmp_path / "cat", "w")
        assert str(os.getpid()) in caught.value.holder
    Catalogue.open(tmp_path / "cat", "w").close()


def test_one_process_opens_a_catalogue_once(tmp_path: Path) -> None:
    with Catalogue.create(tmp_path / "cat"), pytest.raises(StoreError, match="use that object, or close it"):
        Catalogue.open(tmp_path / "cat")


@pytest.fixture
def coded(catalogue: Catalogue) -> Catalogue:
    """A catalogue with one image that has a code."""
    catalogue.adopt_encoder("an encoder", 0.0, 1.0)
    catalogue.adopt_codebook(codebook(1))
    catalogue.store.write([replace(record(KEYS[0], 1), code=b"a code")])
    return catalogue


def codebook(seed: int, fingerprint: str = "an encoder") -> Codebook:
    return Codebook(fingerprint, np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32))


def test_codes_are_read_with_the_codebook_they_were_made_with(coded: Catalogue) -> None:
    coded.close()
    with Catalogue.open(coded.path) as opened:
        assert opened.store.code(KEYS[0]) == b"a code"
        np.testing.assert_array_equal(opened.codebook().project, codebook(1).project)
        assert opened.codebook() is opened.codebook(), "it is read once"
        with pytest.raises(ReadOnlyError, match="cannot keep a codebook"):
            opened.adopt_codebook(codebook(1))


def test_a_catalogue_that_has_no_codebook_yet(catalogue: Catalogue) -> None:
    with pytest.raises(CatalogueError, match="has no codes yet; `texcat index` makes them"):
        catalogue.codebook()


def test_a_codebook_of_another_encoder_is_refused(coded: Catalogue) -> None:
    with pytest.raises(FingerprintMismatchError, match="another"):
        coded.adopt_codebook(codebook(1, "another"))
    codebook(1, "another").save(coded.path / "codebook")
    with pytest.raises(FingerprintMismatchError, match="another"):
        coded.read_codebook()


def test_codes_do_not_go_with_another_codebook(coded: Catalogue) -> None:
    sound = (coded.path / "codebook").read_bytes()
    codebook(2).save(coded.path / "codebook")
    with pytest.raises(CatalogueError, match="is not the one that the codes were made with"):
        coded.read_codebook()
    coded.adopt_codebook(codebook(2))
    assert not coded.store.has_code(KEYS[0])
    coded.adopt_codebook(codebook(1))
    assert (coded.path / "codebook").read_bytes() == sound
    assert coded.store.code(KEYS[0]) == b"a code"


def test_a_full_disk_leaves_the_codebook_as_it_was(small_disk: Path) -> None:
    with Catalogue.create(small_disk / "cat", shards=1) as catalogue:
        catalogue.adopt_encoder("an encoder", 0.0, 1.0)
        catalogue.adopt_codebook(codebook(1))
        before = sorted(path.name for path in catalogue.path.iterdir())
        with pytest.raises(StoreFullError, match="codebook"):
            catalogue.adopt_codebook(Codebook("an encoder", np.ones((1_000, 2_000), np.float32)))
        assert sorted(path.name for path in catalogue.path.iterdir()) == before
        np.testing.assert_array_equal(catalogue.read_codebook().project, codebook(1).project)


def test_settings_from_before_there_were_codes_are_read(coded: Catalogue) -> None:
    coded.close()
    settings = coded.path / "catalogue.toml"
    lines = settings.read_text().splitlines(keepends=True)
    settings.write_text("".join(line for line in lines if not line.startswith("codebook")))
    with Catalogue.open(coded.path) as opened:
        assert opened.settings.codebook == ""


def test_a_killed_writer_leaves_no_lock(tmp_path: Path) -> None:
    Catalogue.create(tmp_path / "cat").close()
    context = multiprocessing.get_context("spawn")
    opened = context.Event()
    child = context.Process(target=_hold, args=(tmp_path / "cat", opened), daemon=True)
    child.start()
    assert opened.wait(30)
    with pytest.raises(CatalogueLockedError, match=f"process {child.pid} on "):
        Catalogue.open(tmp_path / "cat", "w")
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    Catalogue.open(tmp_path / "cat", "w").close()


def test_the_first_encoder_is_the_only_one(catalogue: Catalogue) -> None:
    catalogue.check_encoder("first")
    catalogue.adopt_encoder("first", 0.25, 0.75)
    catalogue.store.write([record(KEYS[0], 1)])
    with pytest.raises(
        FingerprintMismatchError, match=r"made with encoder first, but .* is second"
    ) as caught:
        catalogue.check_encoder("second")
    assert (caught.value.expected, caught.value.actual) == ("first", "second")
    path = catalogue.path
    catalogue.close()
    with Catalogue.open(path) as opened:
        opened.check_encoder("first")
        assert (opened.settings.match_low, opened.settings.match_high) == (0.25, 0.75)
        assert list(opened.store.keys()) == [KEYS[0]]


def test_removing_an_interest_takes_its_maps(catalogue: Catalogue) -> None:
    dog, cat = catalogue.add_interest("dog"), catalogue.add_interest("cat")
    catalogue.store.write([record(KEYS[0], 1, (dog.id, cat.id))])
    assert catalogue.remove_interest("  DOG ") == dog
    assert catalogue.store.held(KEYS[0]) == {cat.id}
    with pytest.raises(UnknownInterestError, match="texcat interest list"):
        catalogue.remove_interest("dog")
    again = catalogue.add_interest("dog")
    assert again.id > cat.id
    catalogue.store.write([TextureRecord(KEYS[0], None, {again.id: plane(3)})])
    assert catalogue.store.held(KEYS[0]) == {cat.id, again.id}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("format", 99, "has format 99, this version of texcat reads 2"),
        ("shards", "four", "shards must be a int"),
        ("shards", 0, "shards must be at least 1"),
        ("shards", True, "shards must be a int"),
        ("groups", None, "groups must be a list, got None"),
        ("observe", "yes", "observe must be a bool, got 'yes'"),
        ("half_life_days", "month", "half_life_days must be a float"),
        ("half_life_days", 0, "half_life_days: a half-life is a finite number of seconds above 0, got 0"),
        ("half_life_days", float("nan"), "half_life_days: a half-life is a finite number"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path: Path, name: str, value: object, message: str) -> None:
    Catalogue.create(tmp_path / "cat").close()
    path = tmp_path / "cat" / "catalogue.toml"
    content = tomlkit.loads(path.read_text())
    content.pop(name)
    if value is not None:
        content[name] = value
    path.write_text(tomlkit.dumps(content))
    with pytest.raises((CatalogueError, FormatVersionError), match=message):
        Catalogue.open(tmp_path / "cat")


def test_what_is_observed_is_set_at_first_or_by_hand_later(tmp_path: Path) -> None:
    with Catalogue.create(tmp_path / "cat", observe=False, half_life_days=7) as made:
        assert (made.settings.observe, made.settings.half_life) == (False, 7 * 86_400.0)
    path = tmp_path / "cat" / "catalogue.toml"
    content = tomlkit.loads(path.read_text())
    content["half_life_days"], content["observe"] = 90, True
    path.write_text(tomlkit.dumps(content))
    with Catalogue.open(tmp_path / "cat") as opened:
        assert (opened.settings.observe, opened.settings.half_life_days) == (True, 90.0)
    for name in ("observe", "half_life_days"):
        content.pop(name)
    path.write_text(tomlkit.dumps(content))
    with Catalogue.open(tmp_path / "cat") as old:
        assert (old.settings.observe, old.settings.half_life_days) == (True, 30.0)
    with pytest.raises(UsageError, match="half-life"):
        Catalogue.create(tmp_path / "never", half_life_days=-1)
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("content", [b"format = ", b"\xff\xfe"])
def test_settings_that_are_damaged(tmp_path: Path, content: bytes) -> None:
    Catalogue.create(tmp_path / "cat").close()
    (tmp_path / "cat" / "catalogue.toml").write_bytes(content)
    with pytest.raises(CatalogueError, match=r"catalogue\.toml: cannot be read"):
        Catalogue.open(tmp_path / "cat")


def test_a_folder_that_cannot_be_written_is_open_to_read_only(tmp_path: Path) -> None:
    path = tmp_path / "cat"
    Catalogue.create(path).close()
    for file in path.rglob("*.lmdb-lock"):
        file.unlink()
    (path / "writer.lock").unlink()
    for folder in (path, *path.rglob("*")):
        folder.chmod(0o555 if folder.is_dir() else 0o444)
    let_reach(path)

    def read() -> str:
        with Catalogue.open(path) as catalogue:
            held = len(list(catalogue.store.keys())) + len(catalogue.interests())
        try:
            Catalogue.open(path, "w")
        except ReadOnlyError as error:
            return f"{held}, {error.action}"
        return "opened"

    answer = as_nobody(read)
    for folder in (path, *path.rglob("*")):
        folder.chmod(0o755)
    assert answer == "0, write (Permission denied)"


def test_a_catalogue_that_is_half_made_is_none(tmp_path: Path) -> None:
    Catalogue.create(tmp_path / "cat").close()
    (tmp_path / "cat" / "catalogue.toml").unlink()
    with pytest.raises(CatalogueMissingError):
        Catalogue.open(tmp_path / "cat")
    shutil.rmtree(tmp_path / "cat")
    Catalogue.create(tmp_path / "cat").close()


def _hold(path: Path, opened: Event) -> None:
    with Catalogue.open(path, "w"):
        opened.set()
        signal.pause()


def test_exemplars_are_kept_by_their_content(
    catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jpg").write_bytes(b"one")
    (tmp_path / "b.jpg").write_bytes(b"two")
    monkeypatch.chdir(tmp_path)
    added = catalogue.add_interest("My bike", ["a.jpg", Exemplar("b.jpg", Box(0, 0, 0.5, 0.5))])
    assert added.exemplars == (
        Exemplar(str(tmp_path / "a.jpg"), None, ImageKey.of(b"one")),
        Exemplar(str(tmp_path / "b.jpg"), Box(0, 0, 0.5, 0.5), ImageKey.of(b"two")),
    )
    (tmp_path / "a.jpg").unlink()
    assert catalogue.add_interest("my bike", added.exemplars, weight=2.0).id == added.id


@pytest.mark.parametrize("bad", ["missing.jpg", "folder", "pipe", "nul\0.jpg", "x" * 300])
def test_an_exemplar_that_cannot_be_read_is_named_and_nothing_is_added(
    catalogue: Catalogue, tmp_path: Path, bad: str
) -> None:
    (tmp_path / "good.jpg").write_bytes(b"one")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ImageReadError, match=r"cannot be opened: \w+|is not a regular file") as caught:
        catalogue.add_interest("my bike", [tmp_path / "good.jpg", tmp_path / bad])
    assert caught.value.path == str(tmp_path / bad)
    assert catalogue.interests() == []


def test_other_exemplars_take_the_maps_along(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"one")
    other = catalogue.add_interest("dog")
    first = catalogue.add_interest("my bike")
    catalogue.store.write([record(KEYS[0], 1, (other.id, first.id))])
    revision = catalogue.revision
    shown = catalogue.add_interest("my bike", [tmp_path / "a.jpg"])
    assert catalogue.store.held(KEYS[0]) == {other.id}
    assert catalogue.revision > revision
    catalogue.store.write([TextureRecord(KEYS[0], maps={shown.id: plane(2)})])
    assert catalogue.add_interest("my bike", weight=2.0).exemplars == shown.exemplars
    assert catalogue.store.held(KEYS[0]) == {other.id, shown.id}


def test_words_stand_beside_exemplars_only(catalogue: Catalogue) -> None:
    with pytest.raises(UsageError, match="'my bike' has no exemplars for its words to stand beside"):
        catalogue.add_interest("my bike", with_words=True)
    assert catalogue.interests() == []
