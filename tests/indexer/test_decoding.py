"""Batches of files become batches of squares; what is done on a GPU is in `interpreted_resampling`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.io
from texcat.catalogue.channels import ChannelSchema
from texcat.catalogue.errors import ImageReadError
from texcat.indexer.decoding import Decoder
from texcat.indexer.images import decode_image
from texcat.indexer.squares import square_of
from texcat.indexer.textures import TextureMaker

from ..fakes import TinyEncoder


@pytest.fixture
def maker() -> TextureMaker:
    return TextureMaker(TinyEncoder(), ChannelSchema.parse("core13"), {})


def test_files_that_can_be_read_become_one_batch_in_order(maker: TextureMaker, shared_data: Path) -> None:
    paths = sorted((shared_data / "coco128" / "images").glob("*.jpg"))[:3]
    contents = [path.read_bytes() for path in paths]
    contents.insert(1, contents[0][:1000])
    with Decoder(maker) as decoder:
        made = decoder.decode([(content, b"x") for content in contents])
        nothing = decoder.decode([(b"", b"x")])
    assert isinstance(made.outcomes[1], ImageReadError)
    sizes = [decode_image(path.read_bytes(), b"x").size for path in paths]
    assert [made.outcomes[place] for place in (0, 2, 3)] == sizes
    assert made.working is not None
    assert made.squares is not None
    assert (made.working.shape, made.squares.shape) == ((3, 3, 512, 512), (3, 3, 64, 64))
    for row, path in enumerate(paths):
        image = decode_image(path.read_bytes(), b"x")
        np.testing.assert_array_equal(made.working[row].permute(1, 2, 0).numpy(), square_of(image, 512))
        np.testing.assert_array_equal(made.squares[row].permute(1, 2, 0).numpy(), square_of(image, 64))
    assert nothing.working is None


def test_what_nvjpeg_refuses_is_found_and_what_it_has_no_memory_for_is_told(
    maker: TextureMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torchvision raises the same error of both, for all files at once: a fake, as there is no GPU."""
    out_of_memory = 3  # of another thread, before

    def decode(encoded: Sequence[torch.Tensor], mode: object, device: object) -> list[torch.Tensor]:
        nonlocal out_of_memory
        contents = [each.numpy().tobytes() for each in encoded]
        if b"large" in contents:
            out_of_memory += 1
        if {b"large", b"bad"} & set(contents):
            raise RuntimeError("Error while decoding JPEG images")
        return list(encoded)

    monkeypatch.setattr(torchvision.io, "decode_jpeg", decode)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {"num_ooms": out_of_memory})
    maker.device = torch.device("cuda")
    with Decoder(maker) as decoder:
        found = decoder._by_gpu([b"one", b"bad", b"two", b"bad", b"bad"])
        assert [each if each is None else each.numpy().tobytes() for each in found] == [
            *(b"one", None, b"two", None, None)
        ]
        assert decoder._by_gpu([]) == []
        with pytest.raises(torch.OutOfMemoryError):
            decoder._by_gpu([b"one", b"large", b"two"])
