"""Image keys."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from texcat.catalogue.errors import UsageError
from texcat.catalogue.types import Box, ImageKey


@given(st.binary(max_size=100))
def test_a_key_is_the_digest_of_the_content(content: bytes) -> None:
    key = ImageKey.of(content)
    assert key == ImageKey.of(bytes(content))
    assert key != ImageKey.of(content + b"\0")
    assert ImageKey.parse(str(key)) == key


def test_known_digest() -> None:
    # BLAKE3 of the empty input, from the test vectors of the BLAKE3 repository, cut to 16 bytes.
    assert str(ImageKey.of(b"")) == "af1349b9f5f9a1a6a0404dea36dcc949"


@pytest.mark.parametrize("text", ["", "af", "z" * 32, "af1349b9f5f9a1a6a0404dea36dcc94900"])
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(UsageError, match=r"hexadecimal digits|has 16 bytes"):
        ImageKey.parse(text)


@pytest.mark.parametrize(
    "edges",
    [
        (0.5, 0, 0.5, 1),
        (0, 0.6, 1, 0.5),
        (-0.1, 0, 1, 1),
        (0, 0, 1.01, 1),
        (0, 0, 640, 480),
        (0, 0, math.nan, 1),
    ],
)
def test_a_box_lies_within_its_image(edges: tuple[float, float, float, float]) -> None:
    with pytest.raises(UsageError, match=r"is no rectangle in fractions of an image: .* divide pixels"):
        Box(*edges)
