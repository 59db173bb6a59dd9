"""Flip bits in shard files, one at a time, and see whether a reader is ever given something that is wrong.

    python -m tests.stress bit_flips [--flips 1000] [--headers 1000] [--images 60] [--seed 0]

`--flips` are anywhere in the files, `--headers` in the first bytes of pages, which LMDB trusts. For each
flip two processes open the damaged copy. One looks up every image, and reads its records, without a check
before: each record must be what was written, or refused, and each texture must be of what was written. LMDB
itself may not survive a damaged page; that is counted. The other runs the store's check, which must survive
every flip, and must find each that the first one noticed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from blake3 import blake3
from texcat.catalogue import CHANNELS, ChannelSchema, ImageKey, Interest, Planes, TexcatError, TextureRecord
from texcat.catalogue.shards import LmdbTextureStore
from texcat.catalogue.types import GRID
from texcat.retrieval import Match, Matches
from texcat.retrieval.kernels import Assembler

SHARDS = 2
SECONDS = 20
PAGE = 4096
META_BYTES = 152
HEADER_BYTES = 48
FINGERPRINT = "an encoder"

Parts = dict[str, str]
"""What is served of an image: its base as ``0`` and its maps by interest, each in hexadecimal digits."""

Values = Mapping[str, Parts]

Digests = Mapping[str, set[str]]
"""Of the textures of an image, at each commit."""

SCHEMA = ChannelSchema(CHANNELS)
SIDE = 16
ASSEMBLER = Assembler(SCHEMA, SCHEMA, SIDE)
MATCHES = Matches(Match(Interest(i, str(i)), 1.0, 0.5) for i in (1, 20))


def run(folder: Path, flips: int, headers: int, images: int, seed: int) -> dict[str, object]:
    """Flip bits, chosen at random, in a store of `images` images, in the empty folder `folder`.

    Returns:
        For flips anywhere and for those in headers: how many flips a reader was untouched by, was told of (a
        record, or the file, is refused), did not find a map by (it is made again), was given an older state
        by, or did not survive; and how many of each kind the check found.

    Raises:
        AssertionError: a wrong record was served, a process hung, or the check missed a flip or did not
            survive it.
    """
    chance = random.Random(seed)
    written, older, digests = _fill(folder / "sound", images, seed)
    sound = {path.name: path.read_bytes() for path in sorted((folder / "sound").glob("*.lmdb"))}
    result: dict[str, object] = {"bytes": sum(map(len, sound.values()))}
    for kind, number in (("anywhere", flips), ("headers", headers)):
        counts, found = Counter[str](), Counter[str]()
        for _ in range(number):
            name, bit = _choose(sound, chance, kind)
            told, missed = _flip(folder, sound, name, bit, written, older, digests)
            counts[told] += 1
            found[told] += not missed
        result[kind] = {
            "flips": number, "reader": dict(sorted(counts.items())), "found": dict(sorted(found.items()))
        }  # fmt: skip
    return result


def _flip(
    folder: Path,
    sound: Mapping[str, bytes],
    name: str,
    bit: int,
    written: Values,
    older: list[Values],
    digests: Digests,
) -> tuple[str, bool]:
    """What the flip of one bit is to a reader, and whether the check misses it."""
    damaged = folder / "damaged"
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(folder / "sound", damaged, ignore=shutil.ignore_patterns("*-lock"))
    content = bytearray(sound[name])
    content[bit // 8] ^= 1 << bit % 8
    (damaged / name).write_bytes(content)
    where = f"bit {bit} of {name}"
    kind = _reading(damaged, written, older, digests, where)
    told = _in_child(lambda: _check(damaged))
    if told not in ("clean", "found"):
        raise AssertionError(f"{where}: the check ended with {told}")
    if told == "clean" and kind != "untouched":
        raise AssertionError(f"{where}: a reader was {kind}, and the check finds nothing")
    return kind, told == "clean"


def _fill(folder: Path, images: int, seed: int) -> tuple[Values, list[Values], Digests]:
    """A store with free pages and several commits; what it holds now, what it held at earlier commits."""
    numbers = np.random.default_rng(seed)
    keys = [ImageKey.of(b"%d" % number) for number in range(images)]
    states: list[Values] = []
    digests: dict[str, set[str]] = {str(key): set() for key in keys}

    def write(records: list[TextureRecord]) -> None:
        store.write(records)
        states.append({str(key): _parts(store.read(key)) for key in store.keys()})
        for key in keys:
            digest = _looked_up(store, key)
            assert digest is not None
            digests[str(key)].add(digest)

    def planes(count: int, side: int = SIDE) -> Planes:
        low = numbers.normal(size=count).astype(np.float32)
        return Planes(numbers.integers(0, 256, (count, side, side), np.uint8), low, low + 1)

    store = LmdbTextureStore(folder, shards=SHARDS, fingerprint=FINGERPRINT)
    channels = len(SCHEMA.stored)
    write([TextureRecord(key, planes(channels, GRID), {1: planes(1), 20: planes(1)}) for key in keys])
    write([TextureRecord(key, None, {2: planes(1)}) for key in keys])
    write([TextureRecord(key, planes(channels, GRID)) for key in keys[::3]])
    store.close()
    return states[-1], states[:-1], digests


def _choose(sound: Mapping[str, bytes], chance: random.Random, kind: str) -> tuple[str, int]:
    """A file, and a bit in it."""
    name = chance.choice(sorted(sound))
    pages = len(sound[name]) // PAGE
    if kind == "anywhere":
        return name, chance.randrange(8 * PAGE * pages)
    page = chance.randrange(pages + 2) % pages  # meta pages twice as often
    return name, 8 * PAGE * page + chance.randrange(8 * (META_BYTES if page < 2 else HEADER_BYTES))


def _reading(folder: Path, written: Values, older: list[Values], digests: Digests, where: str) -> str:
    answer = _in_child(lambda: _read(folder, list(written)))
    if answer.startswith("killed by"):
        if "SIGALRM" in answer:
            raise AssertionError(f"{where}: a reader hung")
        return "not survived"
    if answer == "not opened":
        return "told at opening"
    served: dict[str, Parts | None]
    looked: dict[str, str | None]
    served, looked = json.loads(answer)
    for key, digest in looked.items():
        if digest is not None and digest not in digests[key]:
            raise AssertionError(f"{where}: the look-up of {key} was wrong")
    told = {key for key, parts in served.items() if parts is None}
    less = {key for key, parts in served.items() if parts is not None and parts != written[key]}
    old = {key for key in less if not _part_of(served[key], written[key])}
    for key in old:
        if not any(_part_of(served[key], state.get(key, {})) for state in older):
            raise AssertionError(f"{where}: record {key} was served wrong")
    if old:
        return "given an older state"
    return "told" if told else "not given a map" if less else "untouched"


def _part_of(served: Parts | None, written: Parts) -> bool:
    return served is not None and served.items() <= written.items()


def _read(folder: Path, keys: list[str]) -> str:
    """As JSON, what is served of each key: its parts, or null where it is refused; and of its texture."""
    try:
        store = LmdbTextureStore(folder, shards=SHARDS, fingerprint=FINGERPRINT, read_only=True)
    except TexcatError:
        return "not opened"
    served: dict[str, Parts | None] = {}
    looked: dict[str, str | None] = {}
    for text in keys:
        key = ImageKey.parse(text)
        try:
            looked[text] = _looked_up(store, key)
            store.fetch(key, [1, 2])
            served[text] = _parts(store.read(key))
        except TexcatError:
            served[text] = None
    return json.dumps((served, looked))


def _looked_up(store: LmdbTextureStore, key: ImageKey) -> str | None:
    """Digest of what a look-up gives; None where it leaves the image to `fetch`."""
    found = store.look(key, ASSEMBLER.look_up, MATCHES)
    if found is None or len(found[2]):
        return None
    return blake3(found[0].tobytes() + found[1].tobytes()).hexdigest()


def _check(folder: Path) -> str:
    try:
        store = LmdbTextureStore(folder, shards=SHARDS, fingerprint=FINGERPRINT, read_only=True)
    except TexcatError:
        return "found"
    return "found" if list(store.check()) else "clean"


def _parts(record: TextureRecord) -> Parts:
    assert record.base is not None
    parts = {0: record.base, **record.maps}
    return {
        str(number): (p.low.tobytes() + p.high.tobytes() + p.values.tobytes()).hex()
        for number, p in parts.items()
    }


def _in_child(function: Callable[[], str]) -> str:
    """What `function` returns in a forked process, or the name of the signal that ended it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(SECONDS)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # LMDB names its failed assertion
        try:
            answer = function().encode()
        except BaseException as error:
            answer = repr(error).encode()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return answer.decode()
