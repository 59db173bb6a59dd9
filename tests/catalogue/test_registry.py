"""What a registry promises, held by SQLite and by PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from texcat.catalogue import registry as registry_module
from texcat.catalogue.distribution import Distribution
from texcat.catalogue.errors import (
    CatalogueExistsError,
    InvalidPhraseError,
    ReadOnlyError,
    RegistryError,
    UnknownInterestError,
    UsageError,
)
from texcat.catalogue.registry import CorpusMean, KnownArchive, KnownFile, Registry, RegistryCounts
from texcat.catalogue.types import Box, Exemplar, ImageKey, Interest, InterestVectors

KEYS = [ImageKey.of(bytes([number])) for number in range(4)]


def vector(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def known(path: bytes, key: ImageKey | None = KEYS[0], reason: str | None = None) -> KnownFile:
    return KnownFile(path, size=7, mtime_ns=1_700_000_000_123_456_789, device=5, key=key, reason=reason)


def distribution(high: float) -> Distribution:
    maps = np.linspace(-1.5, high, 512, dtype=np.float32).reshape(2, 16, 16)
    return Distribution.of(maps, corpus=7_000_000_000)


CHANGES: dict[str, Callable[[Registry], object]] = {
    "add_interest": lambda registry: registry.add_interest("dog"),
    "remove_interest": lambda registry: registry.remove_interest("cat"),
    "put_vectors": lambda registry: registry.put_vectors("e", {1: InterestVectors(vector(1), vector(1))}),
    "put_distributions": lambda registry: registry.put_distributions("e", {1: distribution(1)}),
    "put_question": lambda registry: registry.put_question("e", "where?", vector(1)),
    "record_files": lambda registry: registry.record_files([known(b"/b")], {KEYS[0]: (3, 2)}),
    "record_archives": lambda registry: registry.record_archives([KnownArchive(b"/a.tar", 1, 2, 3)]),
    "mark_missing": lambda registry: registry.mark_missing([b"/a"], 1.0),
    "forget_files": lambda registry: registry.forget_files([b"/a"]),
    "forget_images": lambda registry: registry.forget_images([KEYS[1]]),
}


class TestOpening:
    def test_what_is_kept_is_there_after_opening_again(self, empty_url: str) -> None:
        with Registry.create(empty_url) as registry:
            added = registry.add_interest("red bike", weight=2.5)
        with Registry.open(empty_url) as registry:
            assert registry.interests() == [added]

    def test_a_registry_is_never_made_over_another(self, empty_url: str) -> None:
        with Registry.create(empty_url) as registry:
            registry.add_interest("cat")
        with pytest.raises(CatalogueExistsError, match="already holds a registry"):
            Registry.create(empty_url)
        with Registry.open(empty_url) as registry:
            assert registry.counts().interests == 1

    @pytest.mark.parametrize("change", CHANGES)
    def test_open_to_read_refuses_every_change(self, empty_url: str, change: str) -> None:
        with Registry.create(empty_url) as registry:
            registry.add_interest("cat")
            registry.record_files([known(b"/a")], {KEYS[0]: (3, 2), KEYS[1]: (3, 2)})
            before = registry.counts()
        with Registry.open(empty_url, read_only=True) as registry:
            with pytest.raises(ReadOnlyError, match="open to read"):
                CHANGES[change](registry)
            assert registry.counts() == before

    def test_a_closed_registry_says_so(self, registry: Registry) -> None:
        registry.close()
        registry.close()
        with pytest.raises(RegistryError, match="is closed"):
            registry.interests()


class TestInterests:
    def test_spellings_are_one_interest_and_the_last_one_counts(self, registry: Registry) -> None:
        first = registry.add_interest("Cafe\u0301  table")
        again = registry.add_interest(" CAF\u00c9 table", weight=0.25)
        assert again == Interest(first.id, "caf\u00e9 table", 0.25)
        assert registry.interests() == [again]
        assert registry.find_interest("café\ttable") == again

    def test_exemplars_come_back_as_they_were_given(self, registry: Registry) -> None:
        exemplars = (
            Exemplar("/photos/a.jpg", None, KEYS[0]),
            Exemplar("/photos/b\udcff.jpg", Box(0.1, 0.2, 0.5, 1.0), KEYS[1]),
        )
        added = registry.add_interest("my bike", exemplars=exemplars, with_words=True)
        assert added == Interest(added.id, "my bike", 1.0, exemplars, with_words=True)
        assert registry.interests() == [added]

    @pytest.mark.parametrize(
        ("exemplars", "with_words"),
        [
            ((Exemplar("/a.jpg", None, KEYS[1]),), False),
            ((Exemplar("/a.jpg", Box(0, 0, 0.5, 1), KEYS[0]),), False),
            ((Exemplar("/a.jpg", None, KEYS[0]),) * 2, False),
            ((Exemplar("/a.jpg", None, KEYS[0]),), True),
        ],
        ids=["image", "box", "number", "words"],
    )
    def test_other_exemplars_make_another_interest_without_vectors(
        self, registry: Registry, exemplars: tuple[Exemplar, ...], with_words: bool
    ) -> None:
        first = registry.add_interest("my bike", exemplars=[Exemplar("/a.jpg", None, KEYS[0])])
        registry.put_vectors("e", {first.id: InterestVectors(vector(1), vector(2))})
        again = registry.add_interest("my bike", exemplars=exemplars, with_words=with_words)
        assert again.id > first.id
        assert registry.interests() == [again]
        assert registry.vectors("e") == {}

    def test_a_new_weight_or_path_keeps_the_vectors(self, registry: Registry) -> None:
        exemplars = [Exemplar("/a.jpg", Box(0, 0, 0.5, 1), KEYS[0])]
        first = registry.add_interest("my bike", exemplars=exemplars, with_words=True)
        registry.put_vectors("e", {first.id: InterestVectors(vector(1), vector(2))})
        weighted = registry.add_interest("my bike", weight=3)
        assert weighted == Interest(first.id, "my bike", 3.0, tuple(exemplars), with_words=True)
        moved = (Exemplar("/b.jpg", Box(0, 0, 0.5, 1), KEYS[0]),)
        assert registry.add_interest("my bike", exemplars=moved, with_words=True) == Interest(
            first.id, "my bike", 1.0, moved, with_words=True
        )
        assert registry.vectors("e").keys() == {first.id}

    def test_exemplars_take_the_place_of_words(self, registry: Registry) -> None:
        first = registry.add_interest("my bike")
        assert registry.add_interest("my bike", exemplars=[Exemplar("/a.jpg", None, KEYS[0])]).id > first.id

    def test_the_mean_of_the_corpus(self, registry: Registry) -> None:
        assert registry.corpus_mean("e") is None
        for images in (3, 64):
            registry.put_corpus_mean("e", CorpusMean(images, vector(images, 2)))
        registry.put_corpus_mean("f", CorpusMean(1, vector(5)))
        mean = registry.corpus_mean("e")
        assert mean is not None
        assert mean.images == 64
        np.testing.assert_array_equal(mean.feature, vector(64, 2))
        with pytest.raises(UsageError, match="finite values"):
            registry.put_corpus_mean("e", CorpusMean(1, vector(np.nan)))

    @pytest.mark.parametrize("phrase", ["自転車", "👩🏽‍🚒", "دوچرخه‌سواری", "100% _wool_", 'o\'neill "x"; --'])
    def test_any_language(self, registry: Registry, phrase: str) -> None:
        added = registry.add_interest(phrase)
        assert registry.find_interest(phrase) == added
        assert registry.remove_interest(phrase) == added
        assert registry.find_interest(phrase) is None

    def test_the_longest_phrase_of_wide_characters(self, registry: Registry) -> None:
        phrase = "".join(chr(0x20000 + number) for number in range(500))
        assert registry.add_interest(phrase).phrase == phrase

    def test_they_are_in_the_order_of_their_ids(self, registry: Registry) -> None:
        phrases = ["zebra", "apple", "moon"]
        added = [registry.add_interest(phrase) for phrase in phrases]
        registry.add_interest("zebra", weight=3)
        assert [interest.phrase for interest in registry.interests()] == phrases
        assert [interest.id for interest in registry.interests()] == sorted(one.id for one in added)

    def test_ids_are_never_given_again(self, registry: Registry) -> None:
        given = {registry.add_interest("first").id}
        for _ in range(3):
            number = registry.add_interest("last").id
            assert number not in given
            given.add(number)
            registry.remove_interest("last")

    @pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
    def test_a_weight_that_cannot_be_used(self, registry: Registry, weight: float) -> None:
        with pytest.raises(UsageError, match="weight of interest 'cat' must be finite and >= 0"):
            registry.add_interest("cat", weight=weight)
        assert registry.interests() == []

    def test_a_phrase_that_cannot_be_used(self, registry: Registry) -> None:
        for call in (registry.add_interest, registry.remove_interest, registry.find_interest):
            with pytest.raises(InvalidPhraseError):
                call("\0")

    def test_removing_what_is_not_there(self, registry: Registry) -> None:
        with pytest.raises(UnknownInterestError, match="'dog'"):
            registry.remove_interest(" DOG ")


class TestVectors:
    def test_they_come_back_as_they_were_by_encoder(self, registry: Registry) -> None:
        cat, dog = registry.add_interest("cat"), registry.add_interest("dog")
        registry.put_vectors("a", {cat.id: InterestVectors(vector(0.1, -2), vector(1e-30, 3, 4))})
        registry.put_vectors("b", {dog.id: InterestVectors(vector(9), vector(8))})
        found = registry.vectors("a")
        assert list(found) == [cat.id]
        np.testing.assert_array_equal(found[cat.id].text, vector(0.1, -2))
        np.testing.assert_array_equal(found[cat.id].direction, vector(1e-30, 3, 4))
        assert found[cat.id].text.dtype == found[cat.id].direction.dtype == np.float32
        assert list(registry.vectors("b")) == [dog.id]
        assert registry.vectors("c") == {}

    def test_new_ones_take_the_place_of_old_ones(self, registry: Registry) -> None:
        number = registry.add_interest("cat").id
        for value in (1, 2):
            registry.put_vectors("a", {number: InterestVectors(vector(value), vector(value, value))})
        np.testing.assert_array_equal(registry.vectors("a")[number].direction, vector(2, 2))

    def test_they_go_with_their_interest(self, registry: Registry) -> None:
        cat, dog = registry.add_interest("cat"), registry.add_interest("dog")
        pair = InterestVectors(vector(1), vector(1))
        registry.put_vectors("a", {cat.id: pair, dog.id: pair})
        registry.remove_interest("cat")
        assert list(registry.vectors("a")) == [dog.id]

    def test_of_an_interest_that_is_gone_nothing_is_kept(self, registry: Registry) -> None:
        cat, gone = registry.add_interest("cat"), registry.add_interest("gone")
        registry.remove_interest("gone")
        pair = InterestVectors(vector(1), vector(1))
        with pytest.raises(RegistryError, match="an interest or image that the registry does not hold"):
            registry.put_vectors("a", {cat.id: pair, gone.id: pair})
        assert registry.vectors("a") == {}

    @pytest.mark.parametrize("bad", [np.zeros((2, 2), np.float32), vector(1, float("nan"))])
    def test_what_is_no_vector_is_refused(self, registry: Registry, bad: NDArray[np.float32]) -> None:
        number = registry.add_interest("cat").id
        with pytest.raises(UsageError, match="one dimension and finite values"):
            registry.put_vectors("a", {number: InterestVectors(vector(1), bad)})
        with pytest.raises(UsageError, match="one dimension and finite values"):
            registry.put_question("a", "where?", bad)


class TestDistributions:
    PAIR = InterestVectors(vector(1), vector(1))

    def test_they_are_kept_to_the_bit_for_each_encoder(self, registry: Registry) -> None:
        number = registry.add_interest("cat").id
        for fingerprint in ("a", "b"):
            registry.put_vectors(fingerprint, {number: self.PAIR})
        registry.put_distributions("a", {number: distribution(0.1)})
        registry.put_distributions("b", {number: distribution(9)})
        registry.put_distributions("b", {number: distribution(0.3)})
        for fingerprint, kept in (("a", distribution(0.1)), ("b", distribution(0.3))):
            found = registry.distributions(fingerprint)[number]
            np.testing.assert_array_equal(found.table, kept.table)
            assert (found.low, found.high) == (kept.low, kept.high)
            assert (found.images, found.corpus) == (2, 7_000_000_000)
        assert registry.distributions("c") == {}

    def test_they_go_with_their_interest(self, registry: Registry) -> None:
        cat, dog = registry.add_interest("cat"), registry.add_interest("dog")
        registry.put_vectors("a", {cat.id: self.PAIR, dog.id: self.PAIR})
        registry.put_distributions("a", {cat.id: distribution(1), dog.id: distribution(2)})
        registry.remove_interest("cat")
        assert registry.distributions("a").keys() == {dog.id}

    def test_they_go_with_the_vectors_that_their_maps_were_made_with(self, registry: Registry) -> None:
        cat, dog = registry.add_interest("cat"), registry.add_interest("dog")
        for fingerprint in ("a", "b"):
            registry.put_vectors(fingerprint, {cat.id: self.PAIR, dog.id: self.PAIR})
            registry.put_distributions(fingerprint, {cat.id: distribution(1), dog.id: distribution(2)})
        registry.put_vectors("a", {cat.id: self.PAIR})
        assert registry.distributions("a").keys() == {dog.id}
        assert registry.distributions("b").keys() == {cat.id, dog.id}

    def test_none_is_kept_without_vectors(self, registry: Registry) -> None:
        cat, dog = registry.add_interest("cat"), registry.add_interest("dog")
        registry.put_vectors("a", {cat.id: self.PAIR})
        with pytest.raises(RegistryError):
            registry.put_distributions("a", {cat.id: distribution(1), dog.id: distribution(2)})
        assert registry.distributions("a") == {}


class TestQuestions:
    def test_by_encoder_and_text(self, registry: Registry) -> None:
        texts = ["Where is the cat?", "where is the cat?", "two\nlines, a nul \0", "🚲", "x" * 100_000]
        for number, text in enumerate(texts):
            registry.put_question("a", text, vector(number, 1))
        for number, text in enumerate(texts):
            found = registry.question("a", text)
            assert found is not None
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, vector(number, 1))
            assert registry.question("b", text) is None
        assert registry.question("aW", "here is the cat?") is None

    @pytest.mark.parametrize("text", ["", " \n", "\0", "a\udcff"])
    def test_what_cannot_be_asked_is_refused(self, registry: Registry, text: str) -> None:
        with pytest.raises(InvalidPhraseError):
            registry.question("a", text)
        with pytest.raises(InvalidPhraseError):
            registry.put_question("a", text, vector(1))
        assert registry.counts().questions == 0

    def test_only_the_newest_are_kept(self, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(registry_module, "MAX_QUESTIONS", 3)
        for number in range(5):
            registry.put_question("a", str(number), vector(number))
            registry.put_question("a", str(number), vector(number))
        kept = [number for number in range(5) if registry.question("a", str(number)) is not None]
        assert kept == [2, 3, 4]
        assert registry.counts().questions == 3


class TestFiles:
    @pytest.mark.parametrize(("key", "reason"), [(None, None), (KEYS[0], "why")])
    def test_a_file_has_either_a_key_or_a_reason(self, key: ImageKey | None, reason: str | None) -> None:
        with pytest.raises(UsageError, match="either the key of its image or a reason"):
            known(b"/a", key, reason)

    def test_every_field_comes_back(self, registry: Registry) -> None:
        seen = [
            known(b"/photos/a b\n\xff\xfe.jpg"),
            replace(known("/photos/🚲.jpg".encode(), None, "truncated JPEG"), missing_since=1e9 + 0.25),
            replace(known(b"/photos/big"), size=1 << 40, mtime_ns=-1, device=2**64 - 1),
            replace(known(b"/photos/next"), device=2**63),
        ]
        registry.record_files(seen, {KEYS[0]: (640, 480)})
        assert registry.files([b"/photos"]) == {file.path: file for file in seen}
        assert type(registry.files([b"/photos/big"])[b"/photos/big"].key) is ImageKey
        assert registry.image_size(KEYS[0]) == (640, 480)
        assert registry.image_size(KEYS[1]) is None

    def test_recording_again_takes_the_place_of_what_was(self, registry: Registry) -> None:
        registry.record_files([known(b"/a", None, "unreadable")])
        registry.mark_missing([b"/a"], 5.0)
        registry.record_files([known(b"/a", KEYS[1])], {KEYS[1]: (1, 2)})
        registry.record_files([known(b"/b", KEYS[1])])  # the image is known
        assert registry.files([b"/"]) == {path: known(path, KEYS[1]) for path in (b"/a", b"/b")}
        registry.record_files([], {KEYS[1]: (3, 4)})
        assert registry.image_size(KEYS[1]) == (3, 4)

    def test_a_batch_is_kept_whole_or_not_at_all(self, registry: Registry) -> None:
        batch = [known(b"/a", KEYS[0]), known(b"/b", KEYS[1])]
        with pytest.raises(RegistryError, match="an interest or image that the registry does not hold"):
            registry.record_files(batch, {KEYS[0]: (1, 1)})
        assert registry.files([b"/"]) == {}
        assert registry.image_size(KEYS[0]) is None

    def test_a_reason_that_no_text_column_holds_is_escaped(self, registry: Registry) -> None:
        registry.record_files([known(b"/a", None, "b\udcff.jpg: \0 ✓")])
        assert [file.reason for file in registry.failed()] == ["b\\udcff.jpg: \\x00 ✓"]

    def test_below_a_folder_is_not_beside_it(self, registry: Registry) -> None:
        inside = [b"/a_b", b"/a_b/1", b"/a_b/c/2", b"/a_b/\xff", b"/a_b/%"]
        beside = [b"/axb/1", b"/a_b.jpg", b"/a_b-1/x", b"/a_b0", b"/a_bc", b"/a", b"/A_b/1", b"/b%/1"]
        registry.record_files([known(path) for path in inside + beside], {KEYS[0]: (1, 1)})
        assert sorted(registry.files([b"/a_b"])) == sorted(inside)
        assert sorted(registry.files([b"/a_b/"])) == sorted(inside)
        assert sorted(registry.files([b"/a_b/c", b"/a_b/1", b"/none", b"/b%"])) == [
            b"/a_b/1", b"/a_b/c/2", b"/b%/1",
        ]  # fmt: skip
        assert sorted(registry.files([b"/"])) == sorted(inside + beside)
        assert registry.files([]) == {}
        with pytest.raises(UsageError, match="b'photos' is not an absolute path"):
            registry.files([b"photos"])

    @settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.sets(
            st.text("a%_/.0\xff", min_size=1, max_size=6).map(lambda name: b"/" + name.encode("latin-1"))
        ),
        st.text("a%_/.0\xff", max_size=3).map(lambda name: b"/" + name.strip("/").encode("latin-1")),
    )
    def test_below_a_folder_is_a_prefix_that_ends_at_a_slash(
        self, registry: Registry, paths: set[bytes], folder: bytes
    ) -> None:
        registry.forget_files(registry.files([b"/"]))
        registry.record_files([known(path) for path in paths], {KEYS[0]: (1, 1)})
        expected = {path for path in paths if path == folder or path.startswith(folder.rstrip(b"/") + b"/")}
        assert set(registry.files([folder])) == expected

    def test_files_at_paths_in_archives_and_of_images(self, registry: Registry) -> None:
        members = [b"/s/1.tar::a", b"/s/1.tar::b/c", b"memory://x/1.tar::a"]
        others = [b"/s/1.tar", b"/s/1.tar:", b"/s/1.tar:;", b"/s/1.tara", b"/s/11.tar::a", b"memory://x/y"]
        registry.record_files([known(path) for path in members], {KEYS[0]: (1, 1)})
        registry.record_files([known(path, KEYS[1]) for path in others], {KEYS[1]: (1, 1)})
        assert sorted(registry.files_in(b"/s/1.tar")) == members[:2]
        assert sorted(registry.files_in(b"memory://x/1.tar")) == [members[2]]
        assert registry.files_at([*members[1:], b"/unknown"]) == {path: known(path) for path in members[1:]}
        many = [b"/unknown/%d" % number for number in range(2500)]
        assert registry.files_at([*many, members[0]]) == {members[0]: known(members[0])}
        assert registry.files_of([KEYS[0], KEYS[2]]) == {path: known(path) for path in members}
        assert registry.files_at([]) == registry.files_of([]) == {}
        assert sorted(registry.files([b"memory://x"])) == [members[2], others[5]]
        assert sorted(registry.files([b"memory://x/"])) == [members[2], others[5]]

    def test_archives(self, registry: Registry) -> None:
        assert registry.archive(b"/a.tar") is None
        first = KnownArchive(b"/a\xff.tar", 1 << 40, (1 << 63) - 1, 3)
        registry.record_archives([first, KnownArchive(b"/b.tar", -1, 0, 0, "b\udcff \0")])
        assert registry.archive(b"/a\xff.tar") == first
        assert registry.archive(b"/b.tar") == KnownArchive(b"/b.tar", -1, 0, 0, "b\\udcff \\x00")
        registry.record_archives([replace(first, members=4)])
        assert registry.archive(b"/a\xff.tar") == replace(first, members=4)
        registry.record_archives([])

    def test_missing_keeps_the_first_time(self, registry: Registry) -> None:
        registry.record_files([known(b"/a"), known(b"/b")], {KEYS[0]: (1, 1)})
        registry.mark_missing([b"/a"], 10.5)
        registry.mark_missing([b"/a", b"/b", b"/unknown"], 20.0)
        assert {path: file.missing_since for path, file in registry.files([b"/"]).items()} == {
            b"/a": 10.5,
            b"/b": 20.0,
        }

    def test_an_image_is_forgotten_with_its_last_file(self, registry: Registry) -> None:
        registry.record_files(
            [known(b"/a", KEYS[0]), known(b"/b", KEYS[0]), known(b"/c", KEYS[1]), known(b"/d", None, "bad")],
            {KEYS[0]: (1, 1), KEYS[1]: (2, 2)},
        )
        assert registry.paths_of(KEYS[0]) == [b"/a", b"/b"]
        assert registry.forget_files([b"/a", b"/d", b"/unknown"]) == []
        assert registry.paths_of(KEYS[0]) == [b"/b"]
        assert registry.forget_files([b"/b", b"/c"]) == sorted(KEYS[:2])
        assert registry.paths_of(KEYS[0]) == []
        assert registry.image_size(KEYS[0]) is None
        assert registry.counts() == RegistryCounts(0, 0, 0, 0, 0, 0)

    def test_an_image_whose_file_has_new_content_is_forgotten(self, registry: Registry) -> None:
        sizes = {KEYS[0]: (1, 1), KEYS[1]: (2, 2)}
        registry.record_files([known(b"/a", KEYS[0])], sizes)
        registry.record_files([known(b"/a", KEYS[1])])
        assert registry.forget_images([KEYS[0], KEYS[1], KEYS[2]]) == [KEYS[0]]
        assert registry.image_size(KEYS[0]) is None
        assert registry.image_size(KEYS[1]) == (2, 2)

    def test_failed_and_counts(self, registry: Registry) -> None:
        bad = [known(b"/y", None, "zero bytes"), known(b"/x", None, "truncated")]
        registry.record_files([known(b"/a"), known(b"/b"), *bad], {KEYS[0]: (1, 1)})
        registry.mark_missing([b"/b"], 1.0)
        registry.add_interest("cat")
        registry.put_question("a", "where?", vector(1))
        assert registry.failed() == [bad[1], bad[0]]
        assert registry.counts() == RegistryCounts(
            images=1, files=4, failed=2, missing=1, interests=1, questions=1
        )

    def test_images_are_given_in_order_page_by_page(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(registry_module, "_CHUNK", 2)
        assert list(registry.images()) == []
        for held in range(1, len(KEYS) + 1):
            registry.record_files([], {KEYS[held - 1]: (4, 3)})
            assert list(registry.images()) == sorted(KEYS[:held])

    def test_thousands_at_once(self, registry: Registry) -> None:
        keys = [ImageKey.of(str(number).encode()) for number in range(3_000)]
        seen = [known(f"/photos/{number:05}.jpg".encode(), key) for number, key in enumerate(keys)]
        start = time.perf_counter()
        registry.record_files(seen, dict.fromkeys(keys, (640, 480)))
        found = registry.files([b"/photos"])
        registry.mark_missing(found, 1.0)
        assert registry.counts().missing == len(seen)
        assert registry.forget_files(found) == sorted(keys)
        assert time.perf_counter() - start < 5  # row by row, each with its own commit, it takes far longer


def test_an_interest_is_pinned_and_archived_and_stays_what_it_is(registry: Registry) -> None:
    cat = registry.add_interest("cat", weight=2.0)
    assert (cat.pinned, cat.archived) == (False, None)
    archived = registry.archive_interest(" CAT", 12.5)
    assert archived == replace(cat, archived=12.5)
    assert registry.interests() == [archived]
    assert registry.pin_interest("cat", True) == replace(cat, pinned=True)
    assert registry.archive_interest("cat", 13.0).pinned
    assert registry.add_interest("cat", weight=3.0) == replace(cat, weight=3.0, pinned=True)
    shown = registry.add_interest("cat", exemplars=[Exemplar("/a.png")])
    assert (shown.id == cat.id, shown.pinned, shown.archived) == (False, True, None)
    assert not registry.pin_interest("cat", False).pinned
    with pytest.raises(UnknownInterestError):
        registry.pin_interest("dog", True)
    with pytest.raises(UnknownInterestError):
        registry.archive_interest("dog", 0.0)
