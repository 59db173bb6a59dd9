"""Colours of patches."""

from __future__ import annotations

import numpy as np
import torch
from skimage import data
from skimage.color import rgb2lab
from texcat.indexer.encoders.colours import PROTOTYPES, TERMS, colour_coverage, to_lab
from texcat.indexer.encoders.phrases import COLOURS


def test_the_terms_are_those_of_phrases() -> None:
    assert set(TERMS) == set(COLOURS.values())


def test_lab_is_that_of_scikit_image() -> None:
    photo = data.coffee()[::8, ::8] / 255
    np.testing.assert_allclose(to_lab(torch.from_numpy(photo)).numpy(), rgb2lab(photo), atol=0.02)


def test_a_plain_image_has_its_colour_everywhere() -> None:
    for place, term in enumerate(TERMS):
        for prototype in PROTOTYPES[term]:
            plain = torch.tensor(prototype, dtype=torch.uint8)[:, None, None].expand(1, 3, 64, 64)
            coverage = colour_coverage(plain, 8)
            assert coverage.shape == (1, 11, 8, 8)
            torch.testing.assert_close(coverage.sum(1), torch.ones(1, 8, 8))
            assert float(coverage[0, place].min()) > 0.5


def test_coverage_is_where_the_colour_is() -> None:
    image = torch.full((1, 3, 64, 64), 245, dtype=torch.uint8)
    image[0, :, :32, 32:] = torch.tensor([200, 25, 30], dtype=torch.uint8)[:, None, None]
    red, white = (colour_coverage(image, 8)[0, TERMS.index(term)] for term in ("red", "white"))
    assert float(red[:4, 4:].min()) > 0.9
    assert float(white[4:].min()) > 0.9
    assert float(red[4:].max()) < 0.01
