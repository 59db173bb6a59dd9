"""Look-ups: what is stored is read, what is not is computed and says so, and maps are where they must be.

Nothing is observed here: what is asked would move the weights from one look-up to the next.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from texcat.catalogue import Catalogue, ImageKey
from texcat.catalogue.errors import (
    ChannelNotHeldError,
    EncoderNeededError,
    ImageReadError,
    InvalidPhraseError,
    RecordMissingError,
    UnknownChannelError,
    UsageError,
)
from texcat.catalogue.grid import enlarge_map
from texcat.catalogue.quantise import dequantise
from texcat.indexer import index_corpus
from texcat.retrieval import Retriever, Tier
from texcat.retrieval.blending import own_share
from torch import Tensor

from ..fakes import TinyEncoder
from .conftest import BLUE, GREY, RED, peak, quarters


@pytest.fixture
def catalogue(tmp_path: Path, photos: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat") as made:
        for phrase in ("red kite", "green field", "blue sea"):
            made.add_interest(phrase)
        index_corpus(made, [photos], encoder=TinyEncoder())
        yield made


@pytest.fixture
def retriever(catalogue: Catalogue) -> Retriever:
    return Retriever(catalogue, encoder=TinyEncoder(), observe=False)


@pytest.fixture
def uncoded(tmp_path: Path, photos: Path) -> Iterator[Retriever]:
    """Of a catalogue that has no codes: what is not stored must be computed."""
    with Catalogue.create(tmp_path / "uncoded") as made:
        for phrase in ("red kite", "green field", "blue sea"):
            made.add_interest(phrase)
        index_corpus(made, [photos], encoder=TinyEncoder(), codes=False)
        yield Retriever(made, encoder=TinyEncoder(), observe=False)


def test_the_map_is_where_the_interest_is(retriever: Retriever, photos: Path) -> None:
    hit = retriever.lookup(photos / "a.png", "red kite", top=1)
    assert (hit.tier, hit.confidence, hit.own_share, hit.saved) == (Tier.STORED, 1.0, 0.0, False)
    row, column = peak(hit.channel("similarity"))
    assert row < 16
    assert column < 16
    assert peak(retriever.lookup(photos / "a.png", "green field", top=1).relevance)[1] >= 16
    assert peak(retriever.lookup(photos / "a.png", "blue sea", top=1).relevance)[0] >= 16


def test_a_texture_has_every_channel_on_its_scale(retriever: Retriever, photos: Path) -> None:
    hit = retriever.lookup(photos / "a.png", "red kite")
    assert hit.textures.shape == (len(retriever.catalogue.schema), 32, 32)
    assert hit.textures.dtype == hit.relevance.dtype == np.float32
    for channel in retriever.catalogue.schema:
        plane = hit.channel(channel.name)
        assert channel.low <= plane.min()
        assert plane.max() <= channel.high
    assert hit.channel("red")[0, 0] == pytest.approx(220 / 255, abs=0.01)
    assert hit.relevance.min() >= 0
    assert hit.relevance.max() <= 1
    with pytest.raises(UnknownChannelError):
        hit.channel("depth")


def test_a_blend_is_the_weighted_sum_of_the_stored_maps(retriever: Retriever, photos: Path) -> None:
    hit = retriever.lookup(photos / "a.png", "red kite on a green field", top=3)
    assert sum(match.weight for match in hit.matches) == pytest.approx(1)
    stored = retriever.catalogue.store.read(hit.key).maps
    expected = 0
    for match in hit.matches:
        assert match.distribution is not None
        strength = match.distribution.strength(dequantise(stored[match.interest.id])[0])
        expected = expected + match.weight * enlarge_map(strength)
    assert hit.own_share == 0
    np.testing.assert_allclose(hit.channel("similarity"), np.maximum(expected, 0), atol=1e-6)


def test_the_hot_path_gives_the_same_texture(retriever: Retriever, photos: Path) -> None:
    hit = retriever.lookup(photos / "a.png", "red kite")
    hot = retriever.lookup(hit.key, matches=hit.matches)
    np.testing.assert_array_equal(hot.textures, hit.textures)
    np.testing.assert_array_equal(hot.relevance, hit.relevance)
    assert (hot.matches, hot.confidence, hot.tier) == (hit.matches, hit.confidence, Tier.STORED)
    many = list(retriever.lookup_many([hit.key, photos / "b.png"], hit.matches))
    np.testing.assert_array_equal(many[0].textures, hit.textures)
    assert many[1].key != hit.key


def test_many_lookups_are_made_as_they_are_asked_for(retriever: Retriever, photos: Path) -> None:
    hit = retriever.lookup(photos / "a.png", "red kite")
    asked: list[ImageKey] = []

    def keys() -> Iterator[ImageKey]:
        for _ in range(3):
            asked.append(hit.key)
            yield hit.key

    many = retriever.lookup_many(keys(), hit.matches)
    first, second = next(many), next(many)
    assert len(asked) == 2
    assert not np.shares_memory(first.textures, second.textures)
    np.testing.assert_array_equal(first.textures, hit.textures)
    with pytest.raises(UsageError, match="give the matches"):
        retriever.lookup_many([hit.key], [])


def test_threads_get_answers_of_their_own(retriever: Retriever, photos: Path) -> None:
    asked = [retriever.lookup(photos / name, "red kite") for name in ("a.png", "b.png")]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            answers = pool.map(lambda hit: list(retriever.lookup_many([hit.key] * 8, hit.matches)), asked * 4)
            for hit, many in zip(asked * 4, answers, strict=True):
                assert all(np.array_equal(one.textures, hit.textures) for one in many)


def test_every_form_of_an_image_is_the_same_image(retriever: Retriever, photos: Path) -> None:
    path = photos / "a.png"
    content = path.read_bytes()
    forms = [path, str(path), content, ImageKey.of(content)]
    hits = [retriever.lookup(form, "red kite") for form in forms]
    assert {hit.key for hit in hits} == {ImageKey.of(content)}
    assert {hit.tier for hit in hits} == {Tier.STORED}


def test_a_pillow_image_is_computed_once(retriever: Retriever, photos: Path) -> None:
    with Image.open(photos / "a.png") as image:
        image.load()
    first = retriever.lookup(image, "red kite")
    again = retriever.lookup(image.copy(), "red kite")
    assert (first.tier, first.saved, again.tier) == (Tier.COMPUTED, True, Tier.STORED)
    stored = retriever.lookup(photos / "a.png", "red kite")
    np.testing.assert_allclose(first.textures, stored.textures, atol=1e-6)


def test_an_image_not_indexed_is_computed_saved_and_known_to_the_next_pass(
    retriever: Retriever, photos: Path
) -> None:
    path = quarters(photos / "new.png", GREY, GREY, GREY, BLUE)
    hit = retriever.lookup(path, "blue sea", top=1)
    assert (hit.tier, hit.saved) == (Tier.COMPUTED, True)
    row, column = peak(hit.channel("similarity"))
    assert row >= 16
    assert column >= 16
    assert retriever.lookup(path, "blue sea", top=1).tier is Tier.STORED
    # The other interests' maps are made by the pass; the image itself is not new to it.
    assert retriever.catalogue.registry.image_size(hit.key) == (128, 96)


def test_a_new_interest_is_computed_for_the_image_asked_about(uncoded: Retriever, photos: Path) -> None:
    uncoded.catalogue.add_interest("grey stone")
    hit = uncoded.lookup(photos / "a.png", "grey stone", top=1)
    assert hit.matches[0].interest.phrase == "grey stone"
    assert (hit.tier, hit.saved) == (Tier.COMPUTED, True)
    assert uncoded.lookup(photos / "a.png", "grey stone", top=1).tier is Tier.STORED
    assert uncoded.lookup(photos / "b.png", "grey stone", top=1).tier is Tier.COMPUTED


def test_a_question_no_interest_answers_is_seen_through_its_own_words(
    uncoded: Retriever, photos: Path
) -> None:
    catalogue = uncoded.catalogue
    for interest in catalogue.interests():
        if interest.phrase != "blue sea":
            catalogue.remove_interest(interest.phrase)
    retriever = Retriever(catalogue, encoder=TinyEncoder(), observe=False)
    hit = retriever.lookup(photos / "a.png", "green umbrella")
    assert (hit.confidence, hit.own_share, hit.tier) == (0.0, 1.0, Tier.COMPUTED)
    assert peak(hit.channel("similarity"))[1] >= 16
    np.testing.assert_allclose(
        hit.channel("similarity"),
        retriever.similarity(photos / "a.png", "green umbrella", "strength"),
        atol=1e-6,
    )
    alone = Retriever(catalogue, encoder=TinyEncoder(), compute=True, observe=False).lookup(
        hit.key, matches=hit.matches
    )
    assert alone.own_share == 0.0


def test_a_mix_is_in_proportion(catalogue: Catalogue, photos: Path) -> None:
    retriever = Retriever(catalogue, encoder=TinyEncoder(), observe=False)
    # One word of three is shared, so that the cosine lies between the two that stand for 0 and 1.
    hit = retriever.lookup(photos / "a.png", "green boat harbour", top=1)
    assert 0 < hit.own_share < 1
    blend = retriever.lookup(hit.key, matches=hit.matches).channel("similarity")
    own = retriever.similarity(photos / "a.png", "green boat harbour", "strength")
    expected = (1 - hit.own_share) * blend + hit.own_share * own
    above = (blend > 0) & (own > 0)  # elsewhere one of the two was cut off after it was enlarged
    assert above.mean() > 0.25
    np.testing.assert_allclose(hit.channel("similarity")[above], expected[above], atol=2e-6)


@given(st.floats(0, 1))
def test_own_share_is_the_stated_rule(confidence: float) -> None:
    assert own_share(confidence) == max(0.0, 1 - 2 * confidence)


def test_a_catalogue_without_interests_answers_from_the_question_alone(tmp_path: Path, photos: Path) -> None:
    with Catalogue.create(tmp_path / "empty") as made:
        hit = Retriever(made, encoder=TinyEncoder(), observe=False).lookup(photos / "a.png", "red")
        assert (hit.matches, hit.own_share, hit.tier) == ((), 1.0, Tier.COMPUTED)
        assert peak(hit.channel("similarity")) < (16, 16)


class _Unsure(TinyEncoder):
    """Cannot place a phrase without a colour that it knows."""

    def direction(self, phrases: Sequence[str]) -> Tensor:
        known = [any(colour in phrase for colour in ("red", "green", "blue")) for phrase in phrases]
        return super().direction(phrases) * torch.tensor(known)[:, None]


@pytest.mark.parametrize("codes", [True, False])
@pytest.mark.parametrize("interests", [(), ("zxqv blorf",), ("red kite", "zxqv blorf")])
def test_a_phrase_that_cannot_be_placed_gets_no_confident_map(
    tmp_path: Path, photos: Path, interests: tuple[str, ...], codes: bool
) -> None:
    with Catalogue.create(tmp_path / "cat") as made:
        for phrase in interests:
            made.add_interest(phrase)
        index_corpus(made, [photos], encoder=_Unsure(), codes=codes)
        hit = Retriever(made, encoder=_Unsure()).lookup(photos / "a.png", "zxqv blorf")
        assert hit.confidence < 0.1
        assert [match.interest.phrase for match in hit.matches] == [i for i in interests if i == "red kite"]
        assert hit.own_share > 0.8
        shown = Retriever(made, encoder=_Unsure()).lookup(photos / "a.png", "red")
        assert hit.channel("similarity").max() < 0.2 * shown.channel("similarity").max()


def test_scales_of_a_similarity(retriever: Retriever, photos: Path) -> None:
    raw, strength, percentile = (
        retriever.similarity(photos / "a.png", "red kite", scale)
        for scale in ("raw", "strength", "percentile")
    )
    assert all(max(peak(plane)) < 16 for plane in (raw, strength, percentile))
    assert strength.min() == 0
    assert 0.5 < percentile.max() <= 1
    with pytest.raises(UsageError, match="scale 'loud' is not known; expected one of: raw, strength, percen"):
        retriever.similarity(photos / "a.png", "red kite", "loud")  # type: ignore[arg-type]


def test_similarity_of_any_phrase(retriever: Retriever, photos: Path) -> None:
    stored = retriever.similarity(photos / "a.png", "  RED   kite ")
    assert stored.shape == (32, 32)
    assert peak(stored) < (16, 16)
    computed = retriever.similarity(photos / "b.png", "red balloon")
    assert computed.dtype == np.float32
    assert peak(computed)[0] >= 16


def test_without_the_encoder_only_what_is_stored_is_served(catalogue: Catalogue, photos: Path) -> None:
    Retriever(catalogue, encoder=TinyEncoder(), observe=False).embedding("green boat harbour")
    retriever = Retriever(catalogue, compute=False)
    hit = retriever.lookup(photos / "a.png", "green boat harbour")
    assert (hit.tier, hit.own_share) == (Tier.STORED, 0.0)
    assert hit.confidence < 0.5
    with pytest.raises(EncoderNeededError, match="a question that was not asked before needs the encoder"):
        retriever.lookup(photos / "a.png", "never asked")
    with pytest.raises(EncoderNeededError):
        retriever.similarity(photos / "a.png", "red balloon")
    with pytest.raises(EncoderNeededError):
        retriever.lookup(quarters(photos / "new.png", RED, RED, RED, GREY), matches=hit.matches)


def test_a_catalogue_open_to_read_computes_and_does_not_save(catalogue: Catalogue, photos: Path) -> None:
    path = catalogue.path
    catalogue.close()
    new = quarters(photos / "new.png", GREY, GREY, GREY, BLUE)
    with Catalogue.open(path) as reading:
        retriever = Retriever(reading, encoder=TinyEncoder(), observe=False)
        for _ in range(2):
            hit = retriever.lookup(new, "blue sea")
            assert (hit.tier, hit.saved) == (Tier.COMPUTED, False)
        assert reading.store.held(hit.key) is None


def test_the_file_of_a_key_may_be_gone(uncoded: Retriever, photos: Path) -> None:
    hit = uncoded.lookup(photos / "a.png", "red kite")
    (photos / "a.png").unlink()
    assert uncoded.lookup(hit.key, "red kite").tier is Tier.STORED
    low = uncoded.lookup(hit.key, "green boat harbour")
    assert (low.own_share, low.tier) == (0.0, Tier.STORED)
    uncoded.catalogue.add_interest("grey stone")
    fresh = Retriever(uncoded.catalogue, encoder=TinyEncoder(), observe=False)
    with pytest.raises(RecordMissingError, match=str(hit.key)):
        fresh.lookup(hit.key, "grey stone", top=1)


def test_what_cannot_be_asked(retriever: Retriever, photos: Path) -> None:
    hit = retriever.lookup(photos / "a.png", "red kite")
    for bad in ({}, {"question": "red kite", "matches": hit.matches}, {"matches": ()}):
        with pytest.raises(UsageError, match="a question, or the matches"):
            retriever.lookup(photos / "a.png", **bad)  # type: ignore[arg-type]
    with pytest.raises(ImageReadError, match=r"none\.png"):
        retriever.lookup(photos / "none.png", "red kite")
    with pytest.raises(UsageError, match="strategy 'best' is not known; expected one of: topk"):
        retriever.allocate(hit, strategy="best")


@pytest.mark.parametrize("question", ["", " ", "\t\n", "\0\x1b", "where? \udcff"])
@pytest.mark.parametrize("compute", [True, False])
def test_a_question_that_cannot_be_asked(
    catalogue: Catalogue, photos: Path, question: str, compute: bool
) -> None:
    retriever = Retriever(catalogue, compute=compute, encoder=TinyEncoder(), observe=False)
    with pytest.raises(InvalidPhraseError):
        retriever.lookup(photos / "a.png", question)
    with pytest.raises(InvalidPhraseError):
        retriever.embedding(question)


def test_a_question_is_taken_as_it_is_written(retriever: Retriever, photos: Path) -> None:
    for question in ("RED\n\tkite \0", "🪁 red kite", "red kite " * 11_000):
        assert retriever.lookup(photos / "a.png", question).matches[0].interest.phrase == "red kite"
        assert retriever.catalogue.registry.question("tiny-1", question) is not None


def test_channels_are_chosen_by_name(catalogue: Catalogue, photos: Path, tmp_path: Path) -> None:
    retriever = Retriever(catalogue, channels="core13", encoder=TinyEncoder(), observe=False)
    hit = retriever.lookup(photos / "a.png", "red kite")
    assert hit.textures.shape == (13, 32, 32)
    np.testing.assert_allclose(hit.channel("y")[:, 0], (np.arange(32) + 0.5) / 32, rtol=1e-6)
    with Catalogue.create(tmp_path / "small", groups=["appearance"]) as small:
        with pytest.raises(ChannelNotHeldError, match="group 'saliency' is not enabled"):
            Retriever(small, channels=["red", "saliency"])
        assert (
            Retriever(small, encoder=TinyEncoder(), observe=False)
            .lookup(photos / "a.png", "red")
            .relevance.max()
            <= 1
        )


def test_allocate(retriever: Retriever, photos: Path) -> None:
    hit = retriever.lookup(photos / "a.png", "red kite", top=1)
    allocation = retriever.allocate(hit, budget=200)
    inside = ((allocation.positions < 16).all(axis=1)).mean()
    assert len(allocation.indices) == 200
    assert inside > 0.9


def test_a_stored_lookup_loads_no_torch(catalogue: Catalogue, photos: Path) -> None:
    Retriever(catalogue, encoder=TinyEncoder(), observe=False).embedding("red kite")
    path = catalogue.path
    catalogue.close()
    code = (
        "import sys\n"
        "from texcat.catalogue import Catalogue\n"
        "from texcat.retrieval import Retriever\n"
        "with Catalogue.open(sys.argv[1]) as catalogue:\n"
        "    hit = Retriever(catalogue).lookup(sys.argv[2], 'red kite')\n"
        "heavy = ('torch', 'timm', 'open_clip', 'transformers', 'skimage')\n"
        "print(hit.tier, [name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(photos / "a.png")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "stored []\n"


def test_refresh_takes_notice_of_what_another_process_added(retriever: Retriever, photos: Path) -> None:
    retriever.lookup(photos / "a.png", "grey stone")
    # What another process does goes past this object, which counts only its own changes.
    retriever.catalogue.registry.add_interest("grey stone")
    assert retriever.lookup(photos / "a.png", "grey stone", top=1).matches[0].interest.phrase != "grey stone"
    retriever.refresh()
    assert retriever.lookup(photos / "a.png", "grey stone", top=1).matches[0].interest.phrase == "grey stone"
