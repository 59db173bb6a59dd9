"""The whole way with an open_clip encoder, from a checkpoint that the test makes; others are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from texcat.catalogue import Catalogue
from texcat.catalogue.errors import FingerprintMismatchError
from texcat.indexer import index_corpus
from texcat.retrieval import Retriever, Tier

CONFIG = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 64, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}


@pytest.fixture
def checkpoints(tmp_path: Path) -> list[Path]:
    """Two checkpoints of one model."""
    (tmp_path / "texcat-whole-way.json").write_text(json.dumps(CONFIG))
    open_clip.add_model_config(tmp_path)
    paths = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = open_clip.create_model("texcat-whole-way", pretrained=None)
        paths.append(tmp_path / f"{seed}.pt")
        torch.save(model.state_dict(), paths[-1])
    return paths


def test_other_weights_are_refused_by_name_of_both(tmp_path: Path, checkpoints: list[Path]) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 80, 60, 3), np.uint8)
    for number, photo in enumerate(pixels):
        Image.fromarray(photo).save(photos / f"{number}.png")
    first, second = (f"open_clip:texcat-whole-way/{path}" for path in checkpoints)
    with Catalogue.create(tmp_path / "cat", encoder=first) as catalogue:
        catalogue.add_interest("red kite")
        assert index_corpus(catalogue, [photos], device="cpu").indexed == 2
        hit = Retriever(catalogue, device="cpu").lookup(photos / "0.png", "red kite")
        assert (hit.tier, hit.textures.shape) == (Tier.STORED, (27, 32, 32))
        own = catalogue.settings.fingerprint
    settings = tmp_path / "cat" / "catalogue.toml"
    settings.write_text(settings.read_text().replace(first, second))
    Image.fromarray(pixels[0, ::-1]).save(photos / "new.png")
    with Catalogue.open(tmp_path / "cat", "w") as catalogue:
        with pytest.raises(FingerprintMismatchError) as caught:
            index_corpus(catalogue, [photos], device="cpu")
        assert caught.value.expected == own
        assert caught.value.actual != own
        for name in (own, caught.value.actual):
            assert name.startswith("open_clip")
            assert name in str(caught.value)
        with pytest.raises(FingerprintMismatchError):
            Retriever(catalogue, device="cpu").similarity(photos / "new.png", "a boat")
