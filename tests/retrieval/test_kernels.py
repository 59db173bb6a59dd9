"""The fast way from records to a texture equals the numpy reference."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from texcat.catalogue import CHANNELS, ChannelSchema, ImageKey, Interest, Planes, TextureRecord, codec
from texcat.catalogue.channels import Group, Kind
from texcat.catalogue.coded import coded_blend, coded_map, coded_maps
from texcat.catalogue.codes import code_maps
from texcat.catalogue.derived import presence
from texcat.catalogue.distribution import Distribution
from texcat.catalogue.errors import RecordCorruptError, UsageError
from texcat.catalogue.grid import enlarge_map
from texcat.catalogue.lmdb_file import Pages
from texcat.catalogue.quantise import dequantise, quantise
from texcat.catalogue.shards import LmdbTextureStore
from texcat.catalogue.store import MemoryTextureStore
from texcat.catalogue.types import InterestMaps
from texcat.retrieval import Match, Matches, kernels, relevance
from texcat.retrieval.blending import blend, texture_planes
from texcat.retrieval.kernels import Assembler, Floats, Places, _checksum

from ..catalogue.test_codes import Table

KEY, TAG = ImageKey(bytes(16)), bytes(codec.TAG_BYTES)
ALL = ChannelSchema(CHANNELS)
Looked = tuple[Floats, Floats, Places, float]


def random_base(rng: np.random.Generator, schema: ChannelSchema, flat: bool) -> Planes:
    """A base texture within the ranges of its channels: noise, or constant planes."""
    planes = []
    for channel in schema.stored:
        noise = rng.random((1, 1) if flat else (32, 32)) * (channel.high - channel.low) + channel.low
        noise = np.floor(noise / 32) if channel.kind is Kind.LABEL else noise
        planes.append(np.broadcast_to(noise, (32, 32)))
    labels = np.array([channel.kind is Kind.LABEL for channel in schema.stored])
    return quantise(np.stack(planes).astype(np.float32), labels)


def random_maps(rng: np.random.Generator, count: int, side: int, scale: float, offset: float) -> Planes:
    smooth = np.add.outer(np.sin(np.arange(side) * rng.random()), np.cos(np.arange(side) * rng.random()))
    maps = smooth + rng.random((count, side, side)) * rng.random((count, 1, 1))
    return quantise((maps * scale + offset).astype(np.float32))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    side=st.sampled_from([7, 14, 16, 32, 37]),
    scale=st.sampled_from([0.0, 1e-4, 1.0, 1e4]),
    offset=st.sampled_from([0.0, -3.0, 1e3]),
    flat=st.booleans(),
    calibrated=st.booleans(),
    groups=st.sets(st.sampled_from([g for g in Group if g is not Group.INTEREST])),
    data=st.data(),
)
def test_the_fast_way_equals_the_reference(
    seed: int,
    side: int,
    scale: float,
    offset: float,
    flat: bool,
    calibrated: bool,
    groups: set[Group],
    data: st.DataObject,
) -> None:
    rng = np.random.default_rng(seed)
    held = ChannelSchema.of_groups([*groups, Group.INTEREST])
    base = random_base(rng, held, flat)
    group = random_maps(rng, 3, side, scale, offset)
    weights = rng.dirichlet(np.ones(3))

    interests = data.draw(st.lists(st.integers(1, 60), min_size=3, max_size=3, unique=True))
    maps = {
        interest: Planes(group.values[i : i + 1], group.low[i : i + 1], group.high[i : i + 1])
        for i, interest in enumerate(interests)
    }
    known = {i: Distribution.of(dequantise(planes), 1) if calibrated else None for i, planes in maps.items()}
    matches = Matches(
        Match(Interest(i, str(i)), 1.0, w, known[i]) for i, w in zip(interests, weights, strict=True)
    )
    store = MemoryTextureStore()
    store.write([TextureRecord(KEY, base, maps)])
    assembler = Assembler(held, held, side)
    extra = (rng.random((side, side)) * (1 if calibrated else scale)).astype(np.float32)
    records = store.fetch(KEY, matches.parts)
    textures, scores, lacking = assembler.assemble(records, matches, 0.75, extra)

    assert not len(lacking)
    # In strengths the rounding of a large level is divided by the spread, which is 1% of the range or more.
    size = (abs(offset) / scale * 100 if scale else 0) + 100 if calibrated else abs(offset) + scale + 1e-3
    planes_of_maps = [dequantise(planes)[0] for planes in maps.values()]
    blended = np.float32(0.75) * blend(planes_of_maps, matches, calibrated) + extra
    planes = texture_planes(held, base, blended, calibrated)
    rounding_decides = _rounding_decides(planes["similarity"])
    if calibrated:
        rounding_decides = 0 < scale < abs(offset) / 100
    for name, plane in zip(held.names, textures, strict=True):
        bound = 4e-6 * size if name == "similarity" else 2e-4
        if name.startswith("interest") and rounding_decides:
            continue
        np.testing.assert_allclose(plane, planes[name], atol=bound, err_msg=name)
    if not rounding_decides:
        present = presence(planes["similarity"], calibrated)
        expected = relevance(present, planes["edge_magnitude"], planes.get("saliency"))
        np.testing.assert_allclose(scores, expected, atol=2e-4)
    assert scores.min() >= 0
    assert scores.max() <= 1 + 1e-6


def _rounding_decides(similarity: NDArray[np.float32]) -> bool:
    """Whether a map varies by little more than the rounding of its float32 values."""
    return bool(np.ptp(similarity) <= 1e-3 * np.abs(similarity).max())


@pytest.mark.parametrize("names", ["core13", "similarity,red", "saliency"])
def test_wanted_channels_in_the_order_wanted(names: str) -> None:
    rng = np.random.default_rng(3)
    record = codec.encode(range(len(ALL.stored)), random_base(rng, ALL, flat=False), KEY, 0, TAG)
    own = rng.random((16, 16)).astype(np.float32)
    everything, scores, _ = Assembler(ALL, ALL, 16).assemble(record, Matches(), 0.0, own)
    wanted = ChannelSchema.parse(names)
    some, same_scores, _ = Assembler(ALL, wanted, 16).assemble(record, Matches(), 0.0, own)
    np.testing.assert_array_equal(some, everything[[ALL.index(name) for name in wanted.names]])
    np.testing.assert_array_equal(scores, same_scores)


DIGEST = """
import hashlib
import numpy as np
from texcat.catalogue import CHANNELS, ChannelSchema, ImageKey, Planes, codec
from texcat.retrieval import Matches, kernels

rng, schema = np.random.default_rng(7), ChannelSchema(CHANNELS)
digest = hashlib.blake2b()
for _ in range(20):
    count = len(schema.stored)
    levels = np.zeros(count, np.float32), np.ones(count, np.float32)
    base = Planes(rng.integers(0, 256, (count, 32, 32), np.uint8), *levels)
    record = codec.encode(range(count), base, ImageKey(bytes(16)), 0, bytes(codec.TAG_BYTES))
    own = rng.random((16, 16)).astype(np.float32)
    for made in kernels.Assembler(schema, schema, 16).assemble(record, Matches(), 0.0, own):
        digest.update(made.tobytes())
print(sum(kernels._assemble.stats.cache_hits.values()), digest.hexdigest())
"""


def test_machine_code_from_the_disk_gives_the_bits_of_what_was_just_compiled(tmp_path: Path) -> None:
    def run() -> list[str]:
        command = [sys.executable, "-c", DIGEST]
        surroundings = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        return subprocess.run(
            command, env=surroundings, capture_output=True, text=True, check=True
        ).stdout.split()

    (compiled, first), (found, second) = run(), run()
    assert (compiled, found) == ("0", "1")
    assert first == second


def test_bytes_that_may_be_written_have_no_machine_code_of_their_own() -> None:
    rng = np.random.default_rng(5)
    record = codec.encode(range(len(ALL.stored)), random_base(rng, ALL, flat=False), KEY, 0, TAG)
    own = rng.random((16, 16)).astype(np.float32)
    assembler = Assembler(ALL, ALL, 16)
    one = assembler.assemble(record, Matches(), 0.0, own)
    compiled = len(kernels._assemble.signatures)
    other = assembler.assemble(memoryview(bytearray(record)), Matches(), 0.0, own)
    assert len(kernels._assemble.signatures) == compiled
    for found, expected in zip(other, one, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_maps_that_are_not_there_are_named() -> None:
    rng = np.random.default_rng(0)
    maps = random_maps(rng, 2, 16, 1.0, 0.0)
    one, two = (Planes(maps.values[i : i + 1], maps.low[i : i + 1], maps.high[i : i + 1]) for i in (0, 1))
    store = MemoryTextureStore()
    store.write([TextureRecord(KEY, random_base(rng, ALL, flat=False), {3: one, 40: two})])
    matches = Matches(Match(Interest(i, str(i)), 1.0, 0.2) for i in (2, 3, 17, 40, 31))
    nothing, assembler = np.zeros((16, 16), np.float32), Assembler(ALL, ALL, 16)
    records = store.fetch(KEY, matches.parts)
    assert assembler.assemble(records, matches)[2].tolist() == [0, 2, 4]
    textures, _, lacking = assembler.assemble(records, matches, extra=nothing)
    assert lacking.tolist() == [0, 2, 4]
    expected = enlarge_map(0.2 * (dequantise(one) + dequantise(two))[0])
    np.testing.assert_allclose(textures[ALL.index("similarity")], expected, atol=1e-6)


@given(st.sets(st.integers(1, 200), min_size=1, max_size=8), st.permutations(range(1, 161)))
def test_any_number_of_matches_may_lack_a_map(stored: set[int], asked: list[int]) -> None:
    rng = np.random.default_rng(0)
    plane = random_maps(rng, 1, 16, 1.0, 0.0)
    store = MemoryTextureStore()
    store.write([TextureRecord(KEY, random_base(rng, ALL, flat=True), dict.fromkeys(stored, plane))])
    matches = Matches(Match(Interest(i, str(i)), 1.0, 1 / len(asked)) for i in asked)
    *_, lacking = Assembler(ALL, ALL, 16).assemble(store.fetch(KEY, matches.parts), matches)
    assert lacking.tolist() == [place for place, i in enumerate(asked) if i not in stored]


@given(st.binary(min_size=241, max_size=4000), st.integers(0, 40), st.integers(-(2**63), 2**63 - 1))
def test_a_checksum_is_that_of_the_library(content: bytes, start: int, seed: int) -> None:
    held, work = np.frombuffer(bytes(start) + content, np.uint8), np.empty(32, np.uint64)
    expected = xxhash.xxh3_64_intdigest(content, seed % 2**64)
    assert int(_checksum(held, start, len(content), seed, work)) == expected


class Filled:
    """A store of some images, its assembler, and what their records give."""

    def __init__(self, folder: Path, images: int) -> None:
        rng = np.random.default_rng(images)
        self.store = LmdbTextureStore(folder, shards=1, fingerprint="an encoder")
        self.assembler = Assembler(ALL, ALL, 16)
        self.keys = [ImageKey.of(b"%d" % number) for number in range(images)]
        self.matches = Matches(Match(Interest(i, str(i)), 1.0, 0.2) for i in (17, 2, 3, 40))
        for key in self.keys:
            held = sorted({17, *rng.choice(np.arange(1, 50), 20).tolist()})
            maps = InterestMaps(tuple(held), random_maps(rng, len(held), 16, 1.0, 0.0))
            self.store.write([TextureRecord(key, random_base(rng, ALL, flat=False), maps)])

    def looked_up(self, key: ImageKey) -> Looked | None:
        return self.store.look(key, self.assembler.look_up, self.matches)

    def expected(self, key: ImageKey, extra: NDArray[np.float32] | None = None) -> Looked:
        records = self.store.fetch(key, self.matches.parts)
        return (*self.assembler.assemble(records, self.matches, extra=extra), 0.0)


def same(found: Looked, expected: Looked) -> bool:
    """Whether all is the same, bit by bit; what is left unmade is not looked at."""
    if found[2].tolist() != expected[2].tolist():
        return False
    return bool(len(expected[2])) or all(
        np.array_equal(one, other) for one, other in zip(found[:2], expected[:2], strict=True)
    )


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    made = Filled(tmp_path_factory.mktemp("filled"), 150)
    yield made
    made.store.close()


def test_what_is_found_in_the_pages_is_what_is_fetched(filled: Filled) -> None:
    complete = 0
    nothing = np.zeros((16, 16), np.float32)
    for key in filled.keys:
        found, expected = filled.looked_up(key), filled.expected(key)
        assert found is not None
        assert same(found, expected)
        complete += not len(found[2])
        whole = filled.store.look(key, filled.assembler.look_up, filled.matches, nothing)
        assert whole is not None
        for one, other in zip(whole[:2], filled.expected(key, nothing)[:2], strict=True):
            np.testing.assert_array_equal(one, other)
    assert 0 < complete < len(filled.keys)


def test_the_pages_tell_when_all_was_read(filled: Filled) -> None:
    started = perf_counter()
    found = filled.looked_up(filled.keys[0])
    assert found is not None
    assert started < found[3] < perf_counter()


def test_an_image_that_is_not_held_or_of_another_encoder_is_not_found(filled: Filled) -> None:
    assert filled.looked_up(ImageKey.of(b"another")) is None

    def foreign(pages: Pages, transaction: int, key: ImageKey, stamp: bytes) -> Looked | None:
        other = codec.stamp(codec.fingerprint_tag("another encoder"))
        return filled.assembler.look_up(pages, transaction, key, other, filled.matches)

    assert filled.store.look(filled.keys[0], foreign) is None


def write_more(folder: Path, keys: list[bytes]) -> None:
    """The first image again, under other keys."""
    store = LmdbTextureStore(folder, shards=1, fingerprint="an encoder")
    record = store.read(next(store.keys()))
    for start in range(0, len(keys), 100):
        chosen = keys[start : start + 100]
        store.write([TextureRecord(ImageKey(key), record.base, record.maps) for key in chosen])
    store.close()


def test_a_file_that_another_process_grows_is_followed(tmp_path: Path) -> None:
    filled = Filled(tmp_path, 3)
    filled.store.close()
    filled.store = LmdbTextureStore(tmp_path, shards=1, fingerprint="an encoder", read_only=True)
    before = [filled.looked_up(key) for key in filled.keys]
    new = [ImageKey.of(b"new %d" % number) for number in range(1500)]  # 45 MB
    writer = get_context("spawn").Process(target=write_more, args=(tmp_path, [bytes(key) for key in new]))
    writer.start()
    while writer.is_alive():
        for key, one in zip(filled.keys, before, strict=True):
            found = filled.looked_up(key)
            assert found is not None
            assert one is not None
            assert same(found, one)
    writer.join()
    assert writer.exitcode == 0
    for key in (new[0], new[-1]):
        found = filled.looked_up(key)
        assert found is not None
        assert same(found, filled.expected(key))
    filled.store.close()


def test_a_store_that_this_process_changes_is_followed(tmp_path: Path) -> None:
    filled = Filled(tmp_path, 30)
    assert filled.store.delete(filled.keys[:10]) == 10
    assert filled.looked_up(filled.keys[0]) is None
    expected = filled.expected(filled.keys[-1])
    assert filled.store.compact() > 0
    found = filled.looked_up(filled.keys[-1])
    assert found is not None
    assert same(found, expected)
    assert filled.looked_up(filled.keys[0]) is None
    filled.store.close()


@settings(max_examples=300)
@given(data=st.data())
def test_of_damaged_pages_nothing_wrong_is_served(filled: Filled, data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(filled.keys))
    expected = filled.expected(key)
    kind = data.draw(st.sampled_from(["a bit of a record", "a bit", "numbers of a page", "a cut"]))

    def damaged(pages: Pages, transaction: int, key: ImageKey, stamp: bytes) -> Looked | None:
        changed = pages.copy()
        used = 1 + int(np.flatnonzero(pages)[-1])
        if kind == "a bit of a record":
            record = filled.store.fetch(key, filled.matches.parts)
            start = pages.tobytes().index(record[:64])
            changed[start + data.draw(st.integers(0, 15533))] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "a bit":
            changed[data.draw(st.integers(0, used - 1))] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "a cut":
            changed = changed[: data.draw(st.integers(0, used - 1))]
        else:  # as a tree that leads anywhere
            page = 4096 * data.draw(st.sampled_from(trees(pages)))
            at = page + 2 * data.draw(st.integers(0, 2047))
            changed[at : at + 2] = data.draw(st.tuples(st.integers(0, 255), st.integers(0, 255)))
        changed.setflags(write=False)
        return filled.assembler.look_up(changed, transaction, key, stamp, filled.matches)

    found = filled.store.look(key, damaged)
    assert found is None or same(found, expected)
    if kind == "a bit of a record":
        assert found is None


def trees(pages: Pages) -> list[int]:
    """Pages that hold the tree: meta pages, branches and leaves."""
    flags = pages[: len(pages) // 4096 * 4096].reshape(-1, 4096)[:, 10:12].copy().view("<u2")[:, 0]
    own = pages[: len(pages) // 4096 * 4096].reshape(-1, 4096)[:, :8].copy().view("<u8")[:, 0]
    kept: list[int] = np.flatnonzero((flags & 0xB != 0) & (own == np.arange(len(own)))).tolist()
    return [0, 1, *kept]


@given(
    rank=st.integers(0, 9),
    frequencies=st.integers(1, 6),
    width=st.integers(1, 100),
    large=st.sampled_from([1, 7, 8, 127]),
    seed=st.integers(0, 99),
)
@example(rank=1, frequencies=3, width=100, large=127, seed=49)
def test_a_coded_map_is_that_of_the_reference(
    rank: int, frequencies: int, width: int, large: int, seed: int
) -> None:
    rng, rank = np.random.default_rng(seed), min(rank, frequencies**2)
    u, b = (
        (rng.integers(-large, large + 1, shape) * (rng.random(shape) < 0.5)).astype(np.int8)
        for shape in ((rank, frequencies**2), (1 + rank, width))
    )
    scales = rng.random(1 + rank).astype(np.float16)
    code = Table(8, np.float32(0.5), scales, u, b).pack()
    coordinates = rng.normal(size=width).astype(np.float32)
    made, expected = coded_map(code, coordinates), code_maps(code, coordinates[None])[0]
    # What is summed may cancel: rounding is measured against the terms, not against the sum.
    weights = 0.5 * scales * (np.abs(b).astype(float) @ np.abs(coordinates))
    terms = weights[0] + weights[1:] @ np.abs(u).max(1, initial=0).astype(float)
    np.testing.assert_allclose(made, expected, atol=5e-6 * (1 + terms))


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_blend_of_coded_maps_is_that_of_the_reference(calibrated: bool) -> None:
    rng = np.random.default_rng(5)
    u, b = (rng.integers(-20, 21, shape).astype(np.int8) for shape in ((7, 9), (8, 70)))
    code = Table(16, np.float32(0.1), np.linspace(1, 0.1, 8).astype(np.float16), u, b).pack()
    coordinates = rng.normal(size=(3, 70)).astype(np.float32)
    maps = code_maps(code, coordinates)
    rounding = 1e-5 * (1 + np.abs(maps).max())
    np.testing.assert_allclose(coded_maps(code, coordinates), maps, atol=rounding)
    known = [Distribution.of(plane[None] - 5, 1) if calibrated else None for plane in maps]
    matches = Matches(
        Match(Interest(i, str(i)), 1.0, w, each)
        for i, w, each in zip((1, 2, 3), (0.5, 0.3, 0.2), known, strict=True)
    )
    made = coded_blend(code, coordinates, matches.gains, matches.medians, matches.calibrated)
    expected = blend(maps, matches, calibrated)
    np.testing.assert_allclose(made, expected, atol=1e-5 * (1 + np.abs(expected).max()))


def test_a_coded_map_is_refused_as_by_the_reference() -> None:
    u, b = np.ones((1, 4), np.int8), np.ones((2, 40), np.int8)
    code = Table(8, np.float32(1), np.ones(2, np.float16), u, b).pack()
    with pytest.raises(UsageError, match=r"coordinates must be \[N, 40\], got \[1, 39\]"):
        coded_map(code, np.ones(39, np.float32))
    with pytest.raises(RecordCorruptError):
        coded_map(code[:-3], np.ones(40, np.float32))
