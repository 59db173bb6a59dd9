"""Hypothesis strategies for records."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from texcat.catalogue.types import ImageKey, Planes

COUNTS = st.integers(1, 5)
SIDES = st.sampled_from([1, 2, 7, 16, 32])
LEVELS = st.floats(-1e6, 1e6, width=32)


@st.composite
def planes(
    draw: st.DrawFn,
    count: st.SearchStrategy[int] = COUNTS,
    sides: st.SearchStrategy[int] = SIDES,
) -> Planes:
    """Planes of any content."""
    channels, rows, columns = draw(count), draw(sides), draw(sides)
    values = draw(npst.arrays(np.uint8, (channels, rows, columns)))
    levels = npst.arrays(np.float32, channels, elements=LEVELS)
    return Planes(values, draw(levels), draw(levels))


# Few keys, so that operations meet; first bytes that differ, so that they fall into several shards.
KEYS = [ImageKey(bytes([number % 3, 0, 0, number]) + bytes(12)) for number in range(6)]
keys = st.sampled_from(KEYS)
interest_ids = st.sampled_from([1, 2, 3, 15, 16, 255, 2**31])
codes = st.none() | st.binary(max_size=40)
maps = st.dictionaries(interest_ids, planes(st.just(1), st.just(16)), max_size=4)


def same_planes(left: Planes, right: Planes) -> bool:
    """Whether two planes are equal to the last bit."""
    return all(
        np.array_equal(getattr(left, name), getattr(right, name), equal_nan=True)
        and getattr(left, name).dtype == getattr(right, name).dtype
        for name in ("values", "low", "high")
    )
