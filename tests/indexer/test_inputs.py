"""Tar archives, lists, and files behind URLs: indexed once, looked at again for nothing, read when asked."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from texcat.catalogue import Catalogue, ImageKey, ImageReadError, UsageError
from texcat.catalogue.types import Exemplar, IndexReport
from texcat.catalogue.verifying import verify
from texcat.indexer import index_corpus, learn_interest
from texcat.indexer.expanding import expand_interest
from texcat.indexer.reading import read_content
from texcat.retrieval import Retriever
from texcat.retrieval.sources import find_source

from ..fakes import TinyEncoder

GROUPS = ("appearance",)


def picture(seed: int) -> bytes:
    """A PNG file."""
    pixels = np.random.default_rng(seed).integers(0, 256, (48, 64, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_tar(path: Path, members: Mapping[str, bytes], **options: Any) -> Path:
    with tarfile.open(path, "w", **options) as tar:
        for name, content in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    return path


def shard(path: Path, seeds: range) -> Path:
    """A shard as WebDataset has them: of each sample an image and its text."""
    members: dict[str, bytes] = {}
    for seed in seeds:
        members[f"{seed:05}.png"] = picture(seed)
        members[f"{seed:05}.json"] = b"{}"
    return write_tar(path, members)


def index(catalogue: Catalogue, *inputs: object, **options: Any) -> IndexReport:
    options.setdefault("encoder", TinyEncoder())
    return index_corpus(catalogue, [os.fspath(each) for each in inputs], **options)  # type: ignore[call-overload]


def paths(catalogue: Catalogue) -> list[str]:
    return sorted(
        os.fsdecode(path) for key in catalogue.registry.images() for path in catalogue.registry.paths_of(key)
    )


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat", groups=GROUPS) as made:
        made.add_interest("red")
        yield made


@pytest.fixture
def bucket() -> Iterator[Callable[[str, bytes], str]]:
    """Puts a file into an object store that lives in memory, and gives its URL."""
    store = fsspec.filesystem("memory")

    def put(name: str, content: bytes) -> str:
        store.pipe(f"/bucket/{name}", content)
        return f"memory://bucket/{name}"

    put("empty", b"")
    yield put
    store.rm("/bucket", recursive=True)


@contextmanager
def opens_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While it is an error to open an archive or to read a URL."""
    with monkeypatch.context() as patch:
        for name in ("open_file", "read"):
            patch.setattr(f"texcat.indexer.remote.{name}", None)
        patch.setattr("texcat.indexer.tars._walk", None)
        patch.setattr("texcat.indexer.reading._open", None)
        yield


class Server:
    """Serves a folder over HTTP, as any server does: times of change, no ETags, no ranges."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[tuple[str, str]] = []
        self.status = 200
        server = self

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments, directory=str(folder))

            def log_message(self, *arguments: object) -> None:
                server.requests.append((self.command, self.path))

            def send_head(self) -> Any:
                if server.status != 200:
                    self.send_error(server.status)
                    return None
                return super().send_head()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "served").mkdir()
    made = Server(tmp_path / "served")
    yield made
    made.close()


def test_members_of_a_shard_are_images(catalogue: Catalogue, tmp_path: Path) -> None:
    path = shard(tmp_path / "0000.tar", range(5))
    encoder = TinyEncoder()
    report = index(catalogue, path, encoder=encoder)
    assert (report.indexed, report.skipped, encoder.encoded) == (5, (), 5)
    assert paths(catalogue) == [f"{path}::{seed:05}.png" for seed in range(5)]
    key = ImageKey.of(picture(3))
    assert catalogue.registry.image_size(key) == (64, 48)
    assert list(verify(catalogue)) == []
    assert sorted(os.listdir(tmp_path)) == ["0000.tar", "cat"], "nothing is unpacked"


def test_records_of_a_shard_are_those_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(4):
        (folder / f"{seed}.png").write_bytes(picture(seed))
    archive = shard(tmp_path / "0000.tar", range(4))
    records = []
    for name, given in (("a", folder), ("b", archive)):
        with Catalogue.create(tmp_path / name, groups=GROUPS) as made:
            made.add_interest("red")
            index(made, given)
            records.append({k: (repr(made.store.read(k)), made.store.code(k)) for k in made.store.keys()})
    assert records[0] == records[1]
    with Catalogue.open(tmp_path / "a", "w") as opened:
        encoder = TinyEncoder()
        assert index(opened, archive, encoder=encoder).indexed == 4
        assert encoder.encoded == 0, "an image is its bytes, wherever they lie"


def test_a_rescan_opens_no_archive(
    catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = [shard(tmp_path / f"{number}.tar", range(3 * number, 3 * number + 3)) for number in range(2)]
    index(catalogue, *shards)
    with opens_nothing(monkeypatch):
        report = index(catalogue, *shards, encoder=None)
    assert (report.indexed, report.unchanged, report.removed, report.skipped) == (0, 6, 0, ())


def test_a_pass_that_ended_within_an_archive_is_ended_by_the_next(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    path = shard(tmp_path / "0000.tar", range(6))
    index(catalogue, path)
    # As a kill leaves it: the archive was listed, and some of its members have no rows.
    rows = list(catalogue.registry.files_in(os.fsencode(path)))
    catalogue.store.delete(catalogue.registry.forget_files(rows[2:]))
    encoder = TinyEncoder()
    report = index(catalogue, path, encoder=encoder)
    assert (report.indexed, report.unchanged, encoder.encoded) == (4, 2, 4)


def test_what_a_changed_archive_lacks_is_missing_for_the_days_of_grace(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    path = shard(tmp_path / "0000.tar", range(4))
    index(catalogue, path)
    shard(path, range(1, 6))
    encoder = TinyEncoder()
    report = index(catalogue, path, encoder=encoder)
    assert (report.indexed, report.removed, encoder.encoded) == (5, 1, 2), "three are as they were"
    assert catalogue.store.held(ImageKey.of(picture(0))) is not None
    time.sleep(0.01)
    report = index(catalogue, path, grace_days=0)
    assert (report.unchanged, report.removed) == (5, 0)
    assert catalogue.store.held(ImageKey.of(picture(0))) is None


def test_an_archive_that_is_gone_and_comes_back(catalogue: Catalogue, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    path = shard(folder / "0000.tar", range(3))
    index(catalogue, path)
    path.rename(tmp_path / "away.tar")
    report = index(catalogue, path)
    assert (report.removed, report.unavailable, report.skipped) == (3, 0, ())
    assert index(catalogue, path).removed == 0
    (tmp_path / "away.tar").rename(path)
    assert index(catalogue, path).unchanged == 3
    assert catalogue.registry.counts().missing == 0


def test_an_archive_on_a_disk_that_is_not_mounted_loses_nothing(catalogue: Catalogue, tmp_path: Path) -> None:
    folder = tmp_path / "mount"
    folder.mkdir()
    path = shard(folder / "0000.tar", range(3))
    index(catalogue, path)
    rows = catalogue.registry.files_in(os.fsencode(path)).values()
    elsewhere = [replace(row, device=12345) for row in rows]
    catalogue.registry.record_files(elsewhere)
    path.unlink()
    report = index(catalogue, path, grace_days=0)
    assert (report.removed, report.unavailable) == (0, 3)
    assert "is its disk not mounted?" in report.skipped[0].reason


def test_a_folder_is_scanned_beside_its_archives_and_leaves_them_alone(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.png").write_bytes(picture(100))
    path = shard(folder / "0000.tar", range(3))
    assert index(catalogue, folder).indexed == 1, "an archive is looked into when it is given"
    report = index(catalogue, folder, path)
    assert (report.indexed, report.unchanged) == (3, 1)
    report = index(catalogue, folder, grace_days=0)
    assert (report.unchanged, report.removed) == (1, 0)
    assert index(catalogue, folder, path).unchanged == 4


@pytest.mark.parametrize("cut", [600, 3000])
def test_of_a_damaged_archive_what_comes_before_is_kept(
    catalogue: Catalogue, tmp_path: Path, cut: int
) -> None:
    path = shard(tmp_path / "0000.tar", range(6))
    with tarfile.open(path) as tar:
        fourth = tar.getmember("00003.png")
    content = bytearray(path.read_bytes())
    content[fourth.offset : fourth.offset + 512] = b"\xa5" * 512
    path.write_bytes(content)
    report = index(catalogue, path)
    assert report.indexed == 3
    ((skipped),) = report.skipped
    assert skipped.path == str(path)
    assert f"is damaged at byte {fourth.offset:,}" in skipped.reason
    again = index(catalogue, path)
    assert (again.unchanged, again.skipped) == (3, report.skipped), "it is told until it is mended"
    shard(path, range(6))
    assert index(catalogue, path).indexed == 6


def test_an_archive_that_is_cut_short(catalogue: Catalogue, tmp_path: Path) -> None:
    path = shard(tmp_path / "0000.tar", range(4))
    with tarfile.open(path) as tar:
        last = tar.getmember("00003.png")
    os.truncate(path, last.offset_data + 100)
    report = index(catalogue, path)
    assert report.indexed == 3
    reasons = {skipped.path: skipped.reason for skipped in report.skipped}
    assert reasons.keys() == {str(path), f"{path}::00003.png"}
    assert "unexpected end of data" in reasons[str(path)]
    assert reasons[f"{path}::00003.png"].startswith("is cut short: 100 of")
    again = index(catalogue, path)
    assert (again.indexed, again.unchanged, len(again.skipped)) == (0, 3, 2)


def test_members_that_a_damaged_archive_may_still_hold_are_not_missing(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    path = shard(tmp_path / "0000.tar", range(4))
    index(catalogue, path)
    os.truncate(path, 700)
    report = index(catalogue, path, grace_days=0)
    assert (report.removed, report.unavailable) == (0, 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is no tar archive"),
        (b"hello" * 300, "is no tar archive"),
        (b"\x1f\x8b\x08" * 200, "compressed (gzip)"),
    ],
)
def test_what_is_no_archive_is_told(
    catalogue: Catalogue, tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "0000.tar"
    path.write_bytes(content)
    report = index(catalogue, path)
    assert report.indexed == 0
    assert reason in report.skipped[0].reason
    assert index(catalogue, path).skipped == report.skipped


def test_a_compressed_archive_is_told_how_to_be_read(catalogue: Catalogue, tmp_path: Path) -> None:
    path = tmp_path / "0000.tar.gz"
    with tarfile.open(path, "w:gz"):
        pass
    report = index(catalogue, path)
    assert "unpack it to a plain .tar" in report.skipped[0].reason


def test_odd_members(catalogue: Catalogue, tmp_path: Path) -> None:
    path = tmp_path / "0000.tar"
    with tarfile.open(
        path, "w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as tar:

        def add(name: str, content: bytes, **fields: Any) -> None:
            header = tarfile.TarInfo(name)
            header.size = len(content)
            for field, value in fields.items():
                setattr(header, field, value)
            tar.addfile(header, io.BytesIO(content))

        add("../../etc/passwd.png", picture(1))
        add("/abs/olute.png", picture(2))
        add("deep/" * 40 + "long.png", picture(3))
        add(os.fsdecode(b"caf\xe9.png"), picture(4))
        add("._hidden.png", b"resource fork")
        add("twice.png", picture(5))
        add("twice.png", picture(6))
        add("a::b.png", picture(7))
        add("link.png", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")
        add("folder.png", b"", type=tarfile.DIRTYPE)
        add("empty.png", b"")
        add("text.png", b"hello")
    report = index(catalogue, path)
    assert report.indexed == 6
    assert {skipped.path.rpartition("::")[2] for skipped in report.skipped} == {"empty.png", "text.png"}
    keys = set(catalogue.registry.images())
    assert keys == {ImageKey.of(picture(seed)) for seed in (1, 2, 3, 4, 6, 7)}
    for key in keys:
        (place,) = catalogue.registry.paths_of(key)
        assert ImageKey.of(read_content(place)) == key
    again = index(catalogue, path)
    assert (again.indexed, again.unchanged, len(again.skipped)) == (0, 6, 2)


def test_names_in_pax_headers(catalogue: Catalogue, tmp_path: Path) -> None:
    name = "ä" * 150 + ".png"
    path = write_tar(tmp_path / "0000.tar", {name: picture(1)}, format=tarfile.PAX_FORMAT)
    assert index(catalogue, path).indexed == 1
    assert paths(catalogue) == [f"{path}::{name}"]


def test_a_member_whose_archive_changes_under_a_pass_is_not_taken_for_another(tmp_path: Path) -> None:
    path = shard(tmp_path / "0000.tar", range(3))
    with tarfile.open(path) as tar:
        member = tar.getmember("00001.png")
    place = f"{path}::00001.png"
    assert read_content(place, (member.offset_data, member.size)) == picture(1)
    with pytest.raises(ImageReadError, match="its archive has changed"):
        read_content(place, (member.offset_data + 7, member.size))
    os.truncate(path, member.offset_data + 9)
    with pytest.raises(ImageReadError, match="is cut short"):
        read_content(place, (member.offset_data, member.size))


def test_a_member_by_itself(catalogue: Catalogue, tmp_path: Path) -> None:
    path = shard(tmp_path / "0000.tar", range(3))
    report = index(catalogue, f"{path}::00001.png", f"{path}::nothing.png")
    assert report.indexed == 1
    assert [(s.path, s.reason) for s in report.skipped] == [(f"{path}::nothing.png", "is not in its archive")]
    assert index(catalogue, f"{path}::00001.png").unchanged == 1
    assert index(catalogue, path).indexed == 2


def test_a_file_with_the_name_of_a_member_comes_first(catalogue: Catalogue, tmp_path: Path) -> None:
    shard(tmp_path / "0000.tar", range(2))
    path = tmp_path / "0000.tar::00000.png"
    path.write_bytes(picture(50))
    assert read_content(path) == picture(50)
    assert index(catalogue, path).indexed == 1
    assert list(catalogue.registry.images()) == [ImageKey.of(picture(50))]
    assert index(catalogue, path).unchanged == 1


def test_a_list_names_images(
    catalogue: Catalogue, tmp_path: Path, bucket: Callable[[str, bytes], str]
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(picture(1))
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "b.png").write_bytes(picture(2))
    archive = shard(tmp_path / "0000.tar", range(10, 13))
    places = [
        str(tmp_path / "photos" / "a.png"),
        "b.png",
        f"{archive}::00011.png",
        bucket("c.png", picture(4)),
        f"file://{tmp_path}/photos/a.png",
        "../photos/absent.png",
        str(tmp_path / "photos"),
    ]
    pq.write_table(pa.table({"label": range(7), "path": places}), tmp_path / "lists" / "list.parquet")
    lines = "\n".join(json.dumps({"url": place}) for place in places)
    (tmp_path / "lists" / "list.jsonl").write_text(lines + "\n\n")
    report = index(catalogue, tmp_path / "lists" / "list.parquet")
    assert report.indexed == 4
    reasons = {skipped.path: skipped.reason for skipped in report.skipped}
    assert reasons == {
        str(tmp_path / "photos" / "absent.png"): "does not exist: is its disk not mounted?",
        str(tmp_path / "photos"): "is a folder, not a regular file",
    }
    again = index(catalogue, tmp_path / "lists" / "list.jsonl")
    assert (again.indexed, again.unchanged) == (0, 4)
    assert list(verify(catalogue)) == []


def test_what_a_list_does_not_name_any_more_is_left_alone(catalogue: Catalogue, tmp_path: Path) -> None:
    for seed in range(3):
        (tmp_path / f"{seed}.png").write_bytes(picture(seed))
    path = tmp_path / "list.jsonl"
    path.write_text('"0.png"\n"1.png"\n"2.png"\n')
    assert index(catalogue, path).indexed == 3
    path.write_text('"1.png"\n"2.png"\n')
    (tmp_path / "2.png").unlink()
    report = index(catalogue, path)
    assert (report.unchanged, report.removed, report.skipped) == (1, 1, ())
    assert catalogue.registry.counts().missing == 1


def test_lines_that_name_nothing_are_told(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(picture(0))
    path = tmp_path / "list.jsonl"
    path.write_bytes(
        b'{"path": "0.png"}\nnot json\n{"path": 7}\n{"other": "x"}\n"\\ud800.png"\n{"path": ""}\n\xff\n'
    )
    report = index(catalogue, path)
    assert report.indexed == 1
    assert [s.path for s in report.skipped] == [f"{path}:{number}" for number in (2, 3, 4, 5, 6, 7)]


def test_the_column_of_a_list(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(picture(0))
    table = pa.table(
        {
            "file_name": ["0.png"],
            "image": [{"bytes": b"x"}],
            "category": pa.array(["0.png"]).dictionary_encode(),
        }
    )
    path = tmp_path / "list.parquet"
    pq.write_table(table, path)
    with pytest.raises(
        UsageError, match=r"none of the columns path, url, image .* but 'file_name', 'category'"
    ):
        index(catalogue, path)
    with pytest.raises(UsageError, match=r"'image' .* holds struct<bytes: binary>, not paths"):
        index(catalogue, path, column="image")
    with pytest.raises(UsageError, match="no column 'x', but 'file_name'"):
        index(catalogue, path, column="x")
    assert index(catalogue, path, column="file_name").indexed == 1
    assert index(catalogue, path, column="category").unchanged == 1
    lines = tmp_path / "list.jsonl"
    lines.write_text('{"file": "0.png"}\n')
    with pytest.raises(UsageError, match="none of the columns path, url, image"):
        index(catalogue, lines)
    with pytest.raises(UsageError, match="no column 'x', but 'file'"):
        index(catalogue, lines, column="x")
    assert index(catalogue, lines, column="file").unchanged == 1


@pytest.mark.parametrize(
    "name", ["absent.parquet", "broken.parquet", "absent.jsonl", "memory://bucket/absent.jsonl"]
)
def test_a_list_that_cannot_be_read_is_told(catalogue: Catalogue, tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    given = name if "://" in name else str(tmp_path / name)
    report = index(catalogue, given)
    assert report.skipped[0].path == given
    assert report.indexed == 0


def test_a_folder_behind_a_url(
    catalogue: Catalogue, bucket: Callable[[str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        bucket(f"photos/deep/{seed}.png", picture(seed))
    bucket("photos/readme.txt", b"hello")
    bucket("photos/.trash/9.png", picture(9))
    bucket("photos/bad.png", b"hello")
    report = index(catalogue, "memory://bucket/photos/")
    assert report.indexed == 3
    assert [s.path for s in report.skipped] == ["memory://bucket/photos/bad.png"]
    assert paths(catalogue) == [f"memory://bucket/photos/deep/{seed}.png" for seed in range(3)]
    with opens_nothing(monkeypatch):
        again = index(catalogue, "memory://bucket/photos", encoder=None)
    assert (again.indexed, again.unchanged, again.skipped) == (0, 3, report.skipped)
    bucket("photos/deep/1.png", picture(11))
    fsspec.filesystem("memory").rm("/bucket/photos/deep/2.png")
    changed = index(catalogue, "memory://bucket/photos")
    assert (changed.indexed, changed.unchanged, changed.removed) == (1, 1, 1)
    assert catalogue.store.held(ImageKey.of(picture(1))) is None
    assert catalogue.store.held(ImageKey.of(picture(2))) is not None


def test_a_folder_behind_a_url_that_has_vanished_loses_nothing(
    catalogue: Catalogue, bucket: Callable[[str, bytes], str]
) -> None:
    bucket("photos/0.png", picture(0))
    bucket("other", b"")
    index(catalogue, "memory://bucket/photos")
    fsspec.filesystem("memory").rm("/bucket/photos", recursive=True)
    report = index(catalogue, "memory://bucket/photos", grace_days=0)
    assert (report.removed, report.unavailable) == (0, 1)
    assert [s.path for s in report.skipped] == ["memory://bucket/photos"]


def test_an_archive_and_a_list_behind_urls(
    catalogue: Catalogue, tmp_path: Path, bucket: Callable[[str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = bucket("0000.tar", shard(tmp_path / "0000.tar", range(3)).read_bytes())
    bucket("x/0.png", picture(50))
    listing = bucket("list.jsonl", f'"x/0.png"\n"{archive}::00001.png"\n'.encode())
    report = index(catalogue, archive, listing)
    assert (report.indexed, report.skipped) == (4, ())
    assert f"{archive}::00002.png" in paths(catalogue)
    with opens_nothing(monkeypatch):
        assert index(catalogue, archive, encoder=None).unchanged == 3
    fsspec.filesystem("memory").rm("/bucket/0000.tar")
    assert index(catalogue, archive).removed == 3


def test_files_over_http(catalogue: Catalogue, server: Server, tmp_path: Path) -> None:
    for seed in range(3):
        (tmp_path / "served" / f"{seed}.png").write_bytes(picture(seed))
    lines = tmp_path / "list.jsonl"
    lines.write_text("".join(f'{{"url": "{server.url}/{seed}.png"}}\n' for seed in (0, 1, 2, 7)))
    report = index(catalogue, lines)
    assert report.indexed == 3
    assert [(s.path, s.reason) for s in report.skipped] == [(f"{server.url}/7.png", "does not exist")]
    server.requests.clear()
    assert index(catalogue, lines, encoder=None).unchanged == 3
    assert {method for method, path in server.requests if "7.png" not in path} == {"HEAD"}

    (tmp_path / "served" / "1.png").write_bytes(picture(11))
    os.utime(tmp_path / "served" / "1.png", (1, 1))
    (tmp_path / "served" / "2.png").unlink()
    changed = index(catalogue, lines)
    assert (changed.indexed, changed.unchanged, changed.removed) == (1, 1, 1)

    folder = index(catalogue, f"{server.url}/")
    assert (folder.unchanged, folder.skipped) == (2, ())


@pytest.mark.parametrize("status", [403, 500, 503])
def test_a_server_that_refuses_has_lost_nothing(
    catalogue: Catalogue, server: Server, tmp_path: Path, status: int
) -> None:
    (tmp_path / "served" / "0.png").write_bytes(picture(0))
    url = f"{server.url}/0.png"
    index(catalogue, url)
    server.status = status
    report = index(catalogue, url, f"{server.url}/", grace_days=0)
    assert {skipped.path for skipped in report.skipped} == {url, f"{server.url}/"}
    assert all(str(status) in skipped.reason for skipped in report.skipped)
    assert (report.removed, catalogue.registry.counts().missing) == (0, 0)
    server.status = 200
    assert index(catalogue, url, encoder=None).unchanged == 1


def test_a_server_that_does_not_answer_has_lost_nothing(
    catalogue: Catalogue, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "served" / "0.png").write_bytes(picture(0))
    url = f"{server.url}/0.png"
    index(catalogue, url)
    server.close()
    report = index(catalogue, url, grace_days=0)
    assert (report.removed, catalogue.registry.counts().missing) == (0, 0)
    assert "onnect" in report.skipped[0].reason


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3://bucket/", "needs a package that is not installed .*s3fs"),
        ("nonsense://bucket/", "is no URL that can be used: Protocol not known: nonsense"),
        ("memory://bucket/a.zip::b.png", "is a chain of URLs"),
        ("file://elsewhere/a.png", "is no file of this machine"),
    ],
)
def test_urls_without_a_file_system(catalogue: Catalogue, url: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        index(catalogue, url)


def test_entries_without_a_file_system_are_skipped(catalogue: Catalogue, tmp_path: Path) -> None:
    lines = tmp_path / "list.jsonl"
    lines.write_text('"s3://bucket/a.png"\n"memory://b/x.zip::y.png"\n"file://elsewhere/a.png"\n')
    report = index(catalogue, lines)
    assert [s.path for s in report.skipped] == [
        "s3://bucket/a.png",
        "memory://b/x.zip::y.png",
        f"{lines}:3",
    ]


def test_a_file_whose_state_is_not_told_is_read_again_and_not_encoded(
    catalogue: Catalogue, bucket: Callable[[str, bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = bucket("0.png", picture(0))
    monkeypatch.setattr("texcat.indexer.remote._VERSIONS", ())
    index(catalogue, url)
    encoder = TinyEncoder()
    assert index(catalogue, url, encoder=encoder).indexed == 1
    assert encoder.encoded == 0


@pytest.fixture
def places(tmp_path: Path, bucket: Callable[[str, bytes], str]) -> dict[str, str]:
    archive = shard(tmp_path / "0000.tar", range(3))
    return {
        "member": f"{archive}::00001.png",
        "url": bucket("1.png", picture(1)),
        "remote member": bucket("0000.tar", archive.read_bytes()) + "::00001.png",
    }


@pytest.mark.parametrize("kind", ["member", "url", "remote member"])
def test_all_else_works_with_such_images(
    catalogue: Catalogue, tmp_path: Path, places: dict[str, str], kind: str
) -> None:
    place = places[kind]
    other = tmp_path / "other.png"
    other.write_bytes(picture(99))
    encoder = TinyEncoder()
    retriever = Retriever(catalogue, encoder=encoder)
    hit = retriever.lookup(place, "red")
    assert hit.key == ImageKey.of(picture(1))
    assert catalogue.registry.paths_of(hit.key) == [os.fsencode(place)], "what was computed is kept"
    assert index(catalogue, place, encoder=encoder).indexed == 1
    found = retriever.search("red", n=1).results
    assert found[0].paths == (place,)
    assert find_source(hit.key, catalogue.registry).load().size == (64, 48)
    before = encoder.encoded
    expand_interest(catalogue, ["green"], encoder=encoder, exact=True)
    assert encoder.encoded == before + 1
    index(catalogue, other, encoder=encoder)
    shown = learn_interest(catalogue, "this", [place], encoder=encoder)
    assert shown.exemplars == (Exemplar(place, None, hit.key),)


def test_reading_what_is_not_there(tmp_path: Path, bucket: Callable[[str, bytes], str]) -> None:
    archive = shard(tmp_path / "0000.tar", range(2))
    for place, reason in (
        (f"{archive}::absent.png", "is not in its archive"),
        (f"{tmp_path}/absent.tar::a.png", "is not there"),
        ("memory://bucket/absent.png", "does not exist"),
        ("memory://bucket/absent.tar::a.png", "is not there"),
        ("s3://bucket/a.png", "s3fs"),
    ):
        with pytest.raises(ImageReadError, match=reason):
            read_content(place)


def test_a_shard_among_folders_and_lists_counts_each_file_once(
    catalogue: Catalogue, tmp_path: Path, bucket: Callable[[str, bytes], str]
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.png").write_bytes(picture(1))
    archive = shard(tmp_path / "0000.tar", range(10, 13))
    url = bucket("photos/b.png", picture(2))
    lines = tmp_path / "list.jsonl"
    lines.write_text(f'"photos/a.png"\n"{archive}::00011.png"\n"{url}"\n"{url}"\n')
    report = index(catalogue, folder, lines, archive, "memory://bucket/photos/")
    assert (report.indexed, report.skipped) == (5, ())
    report = index(catalogue, lines, "memory://bucket/photos/", archive, folder)
    assert (report.indexed, report.unchanged, report.skipped) == (0, 5, ())


def test_an_archive_moved_costs_no_encoding(catalogue: Catalogue, tmp_path: Path) -> None:
    path = shard(tmp_path / "0000.tar", range(3))
    index(catalogue, path)
    moved = Path(shutil.move(path, tmp_path / "moved.tar"))
    encoder = TinyEncoder()
    report = index(catalogue, moved, encoder=encoder)
    assert (report.indexed, encoder.encoded) == (3, 0)
