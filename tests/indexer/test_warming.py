"""What is loaded before the first batch."""

from __future__ import annotations

import pytest
import torch
from texcat.catalogue.errors import UsageError
from texcat.indexer.textures import ENCODED_AT_ONCE
from texcat.indexer.warming import make_and_drop, warm_up

from ..fakes import TinyEncoder


class Other(TinyEncoder):
    """On a device that no other test names, and that is not known to be the processor."""

    device = "cpu:0"


class Broken(TinyEncoder):
    def patches(self, images: torch.Tensor) -> torch.Tensor:
        return super().patches(images) * torch.nan


def test_a_device_is_warmed_up_once() -> None:
    encoder = Other()
    warm_up(encoder)
    assert encoder.encoded == ENCODED_AT_ONCE
    warm_up(encoder)
    assert encoder.encoded == ENCODED_AT_ONCE
    processor = TinyEncoder()
    warm_up(processor)
    assert not processor.encoded


def test_what_a_stage_raises_is_told() -> None:
    with pytest.raises(UsageError, match="NaN"):
        make_and_drop(Broken())
