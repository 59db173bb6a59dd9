"""Balancers: what they look at, their files, and what a retriever makes of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from texcat.catalogue import BalancerError, Catalogue, ImageKey, UsageError
from texcat.indexer import index_corpus
from texcat.retrieval import Lookup, Matches, Retriever, Tier, Timings
from texcat.retrieval.balancing import SHIPPED, Balancer, Kind, Tensions, leaning, shapes, shipped
from texcat.retrieval.evidence import CHANNELS, PLANES, evidence
from texcat.retrieval.knowing import know

from ..fakes import TinyEncoder

ASKED = 64


def made(kind: Kind, encoder: str = "tiny-1") -> Balancer:
    """A balancer whose weights are drawn."""
    drawn = np.random.default_rng(0)
    tensors = {
        name: np.asarray(drawn.normal(0, 0.3, shape), np.float32)
        for name, shape in shapes(kind, 8, 6, ASKED).items()
    }
    return Balancer(kind, encoder, {**tensors, "spread": np.ones(len(PLANES), np.float32)}, {"seed": 0})


def look_up(planes: dict[str, NDArray[np.float32]]) -> Lookup:
    textures = np.stack([planes[name] for name in CHANNELS])
    relevance = np.zeros((32, 32), np.float32)
    zero = Timings(0.0, 0.0, 0.0)
    return Lookup(
        ImageKey(bytes(16)), textures, CHANNELS, Matches(), Tier.STORED, 1.0, 0.0, False, relevance, zero
    )


@st.composite
def look_ups(draw: st.DrawFn) -> Lookup:
    """Constant, one peak, all zero, or anything."""
    drawn = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    planes = {name: drawn.random((32, 32), np.float32) for name in CHANNELS}
    labels = draw(st.sampled_from([1, 5, 256]))
    for name in ("object_id", "cluster_id"):
        planes[name] = drawn.integers(0, labels, (32, 32)).astype(np.float32)
    for name in draw(st.sets(st.sampled_from(CHANNELS))):
        planes[name] = np.full((32, 32), draw(st.sampled_from([0.0, 1.0])), np.float32)
    if draw(st.booleans()):
        planes["similarity"] = np.zeros((32, 32), np.float32)
        planes["similarity"][draw(st.integers(0, 31)), draw(st.integers(0, 31))] = draw(
            st.floats(0, 1e6, width=32)
        )
    return look_up(planes)


@given(look_ups())
@settings(max_examples=50)
def test_evidence_and_relevance_are_finite_and_in_range(hit: Lookup) -> None:
    planes = evidence(hit, know(hit))
    assert (planes.shape, planes.dtype) == ((len(PLANES), 32, 32), np.float32)
    assert np.isfinite(planes).all()
    for kind in get_args(Kind):
        balanced = made(kind).balance(hit, np.zeros(ASKED, np.float32))
        assert (balanced.relevance.shape, balanced.relevance.dtype) == ((32, 32), np.float32)
        assert 0 <= balanced.relevance.min() <= balanced.relevance.max() <= 1
        assert balanced.by == kind


def plain() -> dict[str, NDArray[np.float32]]:
    return {name: np.zeros((32, 32), np.float32) for name in CHANNELS}


def test_evidence_by_hand() -> None:
    planes = plain()
    planes["similarity"][8, 8:16] = 5  # present to one half, in a row of eight
    planes["similarity"][20, 8:16] = 5
    planes["object_id"][:16] = 7
    found = dict(zip(PLANES, evidence(hit := look_up(planes), know(hit)), strict=True))
    assert found["participatory"][8, 8] == pytest.approx(0.5)
    assert found["participatory of its object"][0, 0] == pytest.approx(0.5 * 8 / 512)
    assert found["participatory of its object"][20, 8] == pytest.approx(0.5 * 8 / 512)
    assert found["participatory enclosed"][14, 10] == 0, "nothing to its left"
    assert found["participatory enclosed"][8, 10] == pytest.approx(0.5)
    assert found["participatory across"][8, 8] == pytest.approx(0.5)
    assert found["participatory across"][14, 8] == 0, "its row is empty"
    assert found["object's part"][0, 0] == pytest.approx(np.sqrt(0.5))
    assert found["nearness to the peak"][8, 8] == 1
    assert found["highest"].min() == found["highest"].max() == pytest.approx(0.5)
    assert sorted(found["participatory rank"].ravel()) == pytest.approx(np.linspace(0, 1, 1024))


def test_between_is_enclosed() -> None:
    planes = plain()
    planes["similarity"][[6, 14, 10, 10], [10, 10, 6, 14]] = 5  # a cross without a middle
    found = evidence(hit := look_up(planes), know(hit))[PLANES.index("participatory enclosed")]
    assert found[10, 10] == pytest.approx(0.5)
    assert found[10, 3] == 0


def test_tensions_by_hand() -> None:
    planes = np.zeros((len(PLANES), 1), np.float32)
    for name, value in (
        ("participatory", 0.8),
        ("participatory of its object", 0.4),
        ("perspectival", 0.5),
        ("propositional", 0.1),
        ("nearness to the peak", 0.5),
    ):
        planes[PLANES.index(name)] = value
    assert leaning(planes, Tensions(1, 0, 1))[0] == pytest.approx(0.8)
    assert leaning(planes, Tensions(0, 0, 1))[0] == pytest.approx(0.4)
    assert leaning(planes, Tensions(1, 1, 1))[0] == pytest.approx(0.3)
    assert leaning(planes, Tensions(1, 0, 0))[0] == pytest.approx(0.4)
    assert leaning(planes, Tensions(0.5, 0.5, 0.5))[0] == pytest.approx(0.45 * 0.75)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_file_brings_back_what_was_written(tmp_path: Path, kind: Kind) -> None:
    balancer = made(kind)
    balancer.save(tmp_path / "b.safetensors")
    found = Balancer.load(tmp_path / "b.safetensors")
    assert (found.kind, found.encoder, found.about) == (kind, "tiny-1", {"seed": 0})
    for name, weights in balancer.tensors.items():
        np.testing.assert_array_equal(found.tensors[name], weights)
    balancer.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_files_that_are_no_balancer_are_told(tmp_path: Path) -> None:
    path = tmp_path / "b.safetensors"
    with pytest.raises(BalancerError, match="does not hold a balancer"):
        Balancer.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(BalancerError, match="does not hold a balancer"):
        Balancer.load(path)
    save_file({"x": np.zeros(3, np.float32)}, path)
    with pytest.raises(BalancerError, match=r"does not hold a balancer \(KeyError: 'balancer'\)"):
        Balancer.load(path)


def test_tensors_are_checked_by_name_shape_and_value(tmp_path: Path) -> None:
    path, good = tmp_path / "b.safetensors", made("tension")
    without = {name: each for name, each in good.tensors.items() if name != "pull"}
    replace(good, tensors=without).save(path)
    with pytest.raises(BalancerError, match="tensors pull are missing"):
        Balancer.load(path)
    replace(good, tensors={**good.tensors, "tensions": np.zeros(4, np.float32)}).save(path)
    with pytest.raises(
        BalancerError, match=r"tensor tensions is float32 \[4\]; expected finite float32 \(3,\)"
    ):
        Balancer.load(path)
    replace(good, tensors={**good.tensors, "pull": np.array([np.nan], np.float32)}).save(path)
    with pytest.raises(BalancerError, match="tensor pull is float32"):
        Balancer.load(path)
    replace(good, kind="best").save(path)  # type: ignore[arg-type]
    with pytest.raises(BalancerError, match="it is of kind 'best', format 1; this version"):
        Balancer.load(path)


def test_what_an_adaptive_balancer_reads_must_fit() -> None:
    planes = np.zeros((len(PLANES), 4), np.float32)
    for asked in (None, np.zeros(3, np.float32)):
        with pytest.raises(UsageError, match="reads a text embedding of 64 numbers"):
            made("adaptive").apply(planes, asked)


@pytest.fixture
def retriever(tmp_path: Path, photos: Path) -> Iterator[Retriever]:
    with Catalogue.create(tmp_path / "cat") as catalogue:
        for phrase in ("red", "green"):
            catalogue.add_interest(phrase)
        index_corpus(catalogue, [photos], encoder=TinyEncoder())
        yield Retriever(catalogue, encoder=TinyEncoder())


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_retriever_allocates_by_a_balancer(retriever: Retriever, photos: Path, kind: Kind) -> None:
    hit = retriever.lookup(photos / "a.png", "red")
    balancer = made(kind)
    balanced = retriever.balance(hit, balancer)
    kept = retriever.allocate(hit, 50, balancer=balancer)
    best = np.argsort(-balanced.relevance, axis=None, kind="stable")[:50]
    assert set(kept.indices) == set(best)
    own = retriever.balance(hit)
    assert (own.by, own.tensions) == (None, None)
    np.testing.assert_array_equal(own.relevance, hit.relevance)
    assert 64 <= len(retriever.allocate(hit, None, balancer=balancer).indices) <= 400


def test_another_encoder_s_balancer_is_refused(retriever: Retriever, photos: Path) -> None:
    hit = retriever.lookup(photos / "a.png", "red")
    with pytest.raises(BalancerError, match="trained with the encoder small-1, and the catalogue has tiny-1"):
        retriever.allocate(hit, balancer=made("tension", "small-1"))
    refitted = retriever.allocate(hit, balancer=made("tension", "tiny-2"))
    np.testing.assert_array_equal(refitted.indices, retriever.allocate(hit, balancer=made("tension")).indices)
    with pytest.raises(BalancerError, match="trained with the encoder builtin"):
        retriever.allocate(hit, balancer="tension")
    with pytest.raises(
        UsageError, match="balancer 'best' is not known; expected one of: tension, adaptive, or a file"
    ):
        retriever.allocate(hit, balancer="best")  # type: ignore[arg-type]


def test_what_was_asked_is_what_the_similarity_is_made_of(retriever: Retriever, photos: Path) -> None:
    red, unknown = (TinyEncoder().text([phrase])[0].numpy() for phrase in ("red", "nothing of this"))
    named = retriever.lookup(photos / "a.png", "red", top=1)
    assert named.question is None
    np.testing.assert_allclose(retriever.asked(named), red, atol=1e-6)
    own = retriever.lookup(photos / "a.png", "nothing of this", top=1)
    assert (own.question, own.own_share) == ("nothing of this", 1.0)
    np.testing.assert_allclose(retriever.asked(own), unknown, atol=1e-6)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_the_balancers_that_come_with_texcat_are_sound(kind: Kind) -> None:
    balancer = shipped(kind)
    assert balancer.kind == kind
    assert balancer.encoder.startswith("builtin-")
    assert sum(each.size for each in load_file(SHIPPED[kind]).values()) < 210_000


def test_balancing_needs_no_torch() -> None:
    program = (
        "import sys, texcat.retrieval.balancing as b; b.shipped('tension'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
