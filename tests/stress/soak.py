"""Write records over and over: the files must not grow.

    python -m tests.stress soak [--writes 1000000] [--images 500] [--seed 0]

Each write replaces an image's base by another, larger or smaller, and one of its maps, so that pages are
freed and used again all the time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from texcat.catalogue import ImageKey, Planes, TextureRecord
from texcat.catalogue.shards import LmdbTextureStore

BATCH = 500
WARM_ROUNDS = 150
"""After each image has been written so many times, the files have the size that they must keep: by then, free
pages lie in runs that large values find room in."""

BOUND = 1.25


def run(folder: Path, writes: int, images: int, seed: int) -> dict[str, object]:
    """Write `writes` records of `images` images, in the empty folder `folder`.

    Returns:
        Bytes of the files when warm, at most, and in the end.

    Raises:
        AssertionError: the files grew beyond `BOUND` times what they were when warm, or a record is not as
            it was written.
    """
    numbers = np.random.default_rng(seed)
    keys = [ImageKey.of(b"%d" % number) for number in range(images)]
    pool = [_planes(numbers, count) for count in (1, 1, 1, 3, 6, 9, 12, 15)]
    store = LmdbTextureStore(folder / "shards", shards=2, fingerprint="an encoder")
    warm = most = done = 0
    last: dict[ImageKey, Planes] = {}
    while done < writes:
        chosen = [keys[(done + place) % images] for place in range(min(BATCH, images, writes - done))]
        picks = numbers.integers(3, len(pool), len(chosen))
        bases = {key: pool[pick] for key, pick in zip(chosen, picks.tolist(), strict=True)}
        store.write(
            TextureRecord(key, base, {int(numbers.integers(1, 40)): pool[0]}) for key, base in bases.items()
        )
        last |= bases
        done += len(chosen)
        size = sum(file.stat().st_blocks * 512 for file in (folder / "shards").glob("*.lmdb"))
        if done <= WARM_ROUNDS * images:
            warm = size
        most = max(most, size)
        if most > BOUND * warm:
            raise AssertionError(f"after {done:,} writes the files have {most:,} bytes, {warm:,} when warm")
    for key, base in last.items():
        found = store.read(key).base
        if found is None or found.values.tobytes() != base.values.tobytes():
            raise AssertionError(f"{key} is not as it was written last")
    problems = list(store.check())
    store.close()
    if problems:
        raise AssertionError(f"the store is not sound: {problems[0]}")
    return {"writes": done, "warm_bytes": warm, "most_bytes": most, "last_bytes": size}


def _planes(numbers: np.random.Generator, count: int) -> Planes:
    values = numbers.integers(0, 256, (count, 16, 16), np.uint8)
    return Planes(values, np.zeros(count, np.float32), np.ones(count, np.float32))
