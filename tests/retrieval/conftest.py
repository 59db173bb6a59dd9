"""Photos whose quarters have plain colours, which `TinyEncoder` knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

RED, GREEN, BLUE, GREY = (220, 30, 30), (30, 200, 30), (30, 30, 220), (120, 120, 120)


def quarters(path: Path, *colours: tuple[int, int, int]) -> Path:
    image = Image.new("RGB", (128, 96))
    for place, colour in zip(((0, 0), (64, 0), (0, 48), (64, 48)), colours, strict=True):
        image.paste(colour, (*place, place[0] + 64, place[1] + 48))
    image.save(path)
    return path


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    quarters(folder / "a.png", RED, GREEN, BLUE, GREY)
    quarters(folder / "b.png", GREY, GREY, RED, GREY)
    return folder


def peak(plane: NDArray[np.float32]) -> tuple[int, int]:
    row, column = np.unravel_index(plane.argmax(), plane.shape)
    return int(row), int(column)
