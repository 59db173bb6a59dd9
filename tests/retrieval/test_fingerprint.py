"""What a fingerprint tells, and its picture and page: for any phrases, and as many of them as there are."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texcat.catalogue import Catalogue, ImageKey, TextureRecord
from texcat.catalogue.graph import Kind, Standing
from texcat.catalogue.memory import Memory, Mention, Observation
from texcat.catalogue.quantise import quantise
from texcat.catalogue.types import InterestVectors
from texcat.indexer import interest_graph
from texcat.indexer.relating import measure_maps
from texcat.retrieval.drawing import load_font
from texcat.retrieval.fingerprint import MOST_DRAWN, Fingerprint, take_fingerprint
from texcat.retrieval.fingerprint_page import draw_page
from texcat.retrieval.fonts import font_for
from texcat.retrieval.graph_drawing import GraphDrawing, draw_graph
from texcat.retrieval.graph_layout import lay_out
from texcat.retrieval.graph_picture import HEIGHT, WIDTH, draw_picture, label_width

from ..fakes import TinyEncoder

DAY = 86_400.0


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.create(tmp_path / "cat", groups=["appearance"], shards=1) as made:
        yield made


def fingerprint_of(
    catalogue: Catalogue, phrases: Sequence[str], candidates: Sequence[str] = ()
) -> Fingerprint:
    """Of a catalogue of these interests, with ties by the words that they share."""
    catalogue.adopt_encoder("tiny-1", 0.0, 1.0)
    for phrase in phrases:
        catalogue.add_interest(phrase)
    graph = interest_graph(catalogue, candidates=candidates or ["zeppelin"], encoder=TinyEncoder())
    return take_fingerprint(catalogue, graph)


def many(count: int) -> list[str]:
    return [f"{('bike', 'plasma', 'coffee', 'cat')[n % 4]} number {n} of a long list" for n in range(count)]


def assert_readable(drawing: GraphDrawing) -> None:
    """No label lies on another, or on another's disc, and all are in the frame."""
    assert drawing.fits
    boxes = []
    for disc in drawing.discs:
        half = max(disc.radius, label_width(disc.label, drawing.label_size) / 2)
        boxes.append((disc.x - half, disc.y - disc.radius, disc.x + half, disc.baseline + drawing.label_size))
    for n, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0
        assert top >= 0
        assert right <= drawing.width
        assert bottom <= drawing.height
        for other in boxes[:n]:
            assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1]


def test_what_it_tells(catalogue: Catalogue) -> None:
    catalogue.adopt_encoder("tiny-1", 0.0, 1.0)
    bike = catalogue.add_interest("red bike", weight=2.0).id
    catalogue.add_interest("red helmet")
    vectors = InterestVectors(np.ones(2, np.float32), np.ones(3, np.float32))
    catalogue.registry.put_vectors("tiny-1", {bike: vectors})
    base = quantise(np.zeros((len(catalogue.schema.stored), 32, 32), np.float32))
    noise = np.random.default_rng(0)
    for image in range(20):  # five of them show it
        plane = noise.normal(size=(1, 16, 16)).astype(np.float32)
        plane[0, 3, 3] = 30.0 if image < 5 else 0.0
        record = TextureRecord(ImageKey.of(bytes([image])), base, {bike: quantise(plane)})
        catalogue.store.write([record])
    measure_maps(catalogue)
    now = time.time()
    with Memory.of(catalogue) as memory:
        asked = [
            Observation(now - 10 * DAY + n, "stored", 1.0, (Mention("red bike", True),)) for n in range(4)
        ]
        memory.record(asked)
    graph = interest_graph(catalogue, candidates=["red scarf"], encoder=TinyEncoder())
    taken = take_fingerprint(catalogue, graph)
    assert (taken.images, taken.questions, taken.phrases) == (20, 4, 3)
    first, second = taken.interests
    assert (first.phrase, first.maps, first.coverage) == ("red bike", 20, 0.25)
    assert first.use == pytest.approx(4 * 2 ** (-10 / 30), rel=1e-3)
    assert first.effective > first.weight == 2.0
    assert first.history[0] < first.history[1]  # from the first question on
    assert first.history[-1] == pytest.approx(first.effective)
    assert (second.effective, second.maps, second.coverage, second.last) == (1.0, 0, None, None)
    assert taken.times[0] == pytest.approx(now - 10 * DAY)
    assert taken.communities == (("red bike", "red helmet"),)
    assert [each.phrase for each in taken.suggestions] == ["red scarf"]
    assert taken.drawn == {
        "red bike": Standing.INTEREST,
        "red helmet": Standing.INTEREST,
        "red scarf": Standing.CANDIDATE,
    }
    assert {(e.start, e.end, e.kind) for e in taken.edges} == {
        ("red bike", "red helmet", Kind.MEANING),
        ("red bike", "red scarf", Kind.MEANING),
        ("red helmet", "red scarf", Kind.MEANING),
    }
    assert len(taken.hubs) == 2


@pytest.mark.parametrize("count", [0, 1, 5, 30, 200])
def test_pictures_and_pages_of_any_size(catalogue: Catalogue, count: int) -> None:
    taken = fingerprint_of(catalogue, many(count))
    assert len(taken.interests) == count
    assert len(taken.drawn) <= MOST_DRAWN
    assert_readable(draw_graph(taken, WIDTH - 96, HEIGHT - 226, label_width))
    picture = draw_picture(taken)
    assert (picture.mode, picture.size) == ("RGB", (WIDTH, HEIGHT))
    page = draw_page(taken)
    assert page.count("<circle") >= len(taken.drawn)


@given(
    st.lists(st.tuples(st.floats(20, 200), st.floats(20, 60)), max_size=30),
    st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29), st.floats(0.01, 1.0)), max_size=60),
)
@settings(max_examples=10, deadline=None)
def test_boxes_never_overlap(sizes: list[tuple[float, float]], ties: list[tuple[int, int, float]]) -> None:
    boxes = np.array(sizes, np.float64).reshape(-1, 2)
    edges = [(a, b, strength) for a, b, strength in ties if a != b and max(a, b) < len(boxes)]
    layout = lay_out(boxes, edges, [n % 3 for n in range(len(boxes))], (1_500.0, 900.0))
    assert layout.fits
    again = lay_out(boxes, edges, [n % 3 for n in range(len(boxes))], (1_500.0, 900.0))
    assert np.array_equal(layout.centres, again.centres)
    for n, (centre, box) in enumerate(zip(layout.centres, boxes, strict=True)):
        assert (centre - box / 2 >= -1e-6).all()
        for other, size in zip(layout.centres[:n], boxes[:n], strict=True):
            assert (np.abs(centre - other) >= (box + size) / 2 - 1e-5).any()


def test_a_frame_that_is_too_small_is_told() -> None:
    assert not lay_out(np.full((10, 2), 100.0), [], [0] * 10, (200.0, 200.0)).fits


HOSTILE = (
    "<script>alert(1)</script>",
    '"onload="alert(1)',
    "&lt;b&gt; ' </title></svg>",
    "${title} $graph",
    "שלום עולם",
    "🚲🚲🚲",
    "x" * 400,
)


class Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_nothing_that_the_user_wrote_becomes_part_of_the_page(catalogue: Catalogue) -> None:
    taken = fingerprint_of(catalogue, HOSTILE)
    page = draw_page(taken, title="<i>mine</i> & yours")
    outline = Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == []
    assert not outline.tags & {"script", "img", "link", "iframe", "i", "b", "a", "object"}
    assert not {name for name in outline.attributes if name.startswith("on")} | (
        outline.attributes & {"src", "href"}
    )
    for phrase in HOSTILE:
        assert phrase in outline.text
    assert "<i>mine</i> & yours" in outline.text
    assert "http:" not in page
    assert "https:" not in page
    draw_picture(taken, title="<i>mine</i>")


def test_fonts() -> None:
    own = font_for("coffee cup", 16)
    assert own is not None
    assert own.getname() == load_font(16).getname()
    assert font_for("\U0003fffe", 16) is None  # no font has what is no character


def test_a_community_has_one_colour(catalogue: Catalogue) -> None:
    taken = fingerprint_of(catalogue, ["red bike", "red car", "blue sea", "blue sky"], ["red scarf"])
    drawing = draw_graph(taken, 1_000, 700, label_width)
    colours = {disc.phrase: disc.colour for disc in drawing.discs}
    for members in taken.communities:
        assert len({colours[phrase] for phrase in members}) == 1
    assert len({disc.community for disc in drawing.discs if disc.community is not None}) == len(
        taken.communities
    )
