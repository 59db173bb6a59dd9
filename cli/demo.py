"""``texcat demo``: the whole job, on photos that come with scikit-image."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from .asking import answer, write_picture
from .demo_page import Answer, write_page
from .options import JsonOption
from .output import count, out, print_json, printable, table, writing
from .progress import progress_bar

if TYPE_CHECKING:
    from ..catalogue import IndexReport
    from ..retrieval import Retriever

PHOTOS = (
    "astronaut.png", "chelsea.png", "coffee.png", "coins.png", "horse.png", "hubble_deep_field.jpg",
    "moon.png", "motorcycle_left.png", "page.png", "retina.jpg", "rocket.jpg",
)  # fmt: skip

INTERESTS = (
    "cat", "cup of coffee", "rocket", "people", "motorcycle",
    "coins", "printed text", "horse", "stars and galaxies", "the moon",
)  # fmt: skip

QUESTIONS = (
    ("chelsea.png", "What does the cat look like?"),
    ("coffee.png", "Is the cup of coffee full?"),
    ("astronaut.png", "Where is the rocket?"),
    ("motorcycle_left.png", "What colour is the motorcycle?"),
    ("motorcycle_left.png", "What is on the shelves?"),
)
"""The last is answered by no interest: it shows what happens then."""

TOP = 3
BUDGET = 200
STRATEGY = "topk"
REPEATS = 200

OVERVIEW_WIDTH = 1200


def demo(
    folder: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="For pictures, page and catalogue.")
    ] = Path("demo"),
    as_json: JsonOption = False,
) -> None:
    """Index sample photos under ten interests, ask five questions, and draw the answers. Needs no network."""
    from ..catalogue import Catalogue
    from ..indexer import index_corpus
    from ..indexer.encoders import load_encoder
    from ..retrieval import Retriever

    photos = _photos()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    place = folder / "catalogue"
    with Catalogue.open(place, "w") if place.exists() else Catalogue.create(place) as catalogue:
        with progress_bar("indexing", shown=not as_json) as on_progress:
            encoder = load_encoder(catalogue.settings.encoder)
            for phrase in INTERESTS:
                catalogue.add_interest(phrase)
            paths = [photos / name for name in PHOTOS]
            report = index_corpus(catalogue, paths, encoder=encoder, on_progress=on_progress)
        retriever = Retriever(catalogue, encoder=encoder)
        answers = [
            _ask(retriever, photos / name, question, folder / f"question-{number}.png")
            for number, (name, question) in enumerate(QUESTIONS, 1)
        ]
    _draw_overview(answers, folder / "overview.png")
    with writing(folder / "index.html"):
        write_page(folder / "index.html", answers, report)
    if as_json:
        print_json(
            {
                "page": str(folder / "index.html"),
                "overview": str(folder / "overview.png"),
                "catalogue": str(place),
                "indexed": report.indexed,
                "unchanged": report.unchanged,
                "seconds": report.seconds,
                "answers": [_document(answered, folder) for answered in answers],
            }
        )
    else:
        _show(folder, answers, report)


def _photos() -> Path:
    """Folder of scikit-image's photos, found without importing it."""
    from ..catalogue import CatalogueError

    package = find_spec("skimage")
    places = package.submodule_search_locations if package is not None else None
    folder = Path(places[0]) / "data" if places else None
    if folder is None or not all((folder / name).is_file() for name in PHOTOS):
        raise CatalogueError("the demo's photos come with scikit-image: `pip install scikit-image`")
    return folder


def _ask(retriever: Retriever, path: Path, question: str, picture: Path) -> Answer:
    """Ask, draw the answer, and time it as an application sees it that asks all day."""
    from ..indexer.images import load_image
    from ..retrieval.homunculus import Homunculus
    from ..retrieval.pictures import panels
    from ..retrieval.types import Tier

    hit, allocation, times = answer(retriever, str(path), question, top=TOP, budget=BUDGET, strategy=STRATEGY)
    if hit.tier is not Tier.COMPUTED:
        repeated = [
            answer(retriever, hit.key, question, top=TOP, budget=BUDGET, strategy=STRATEGY)[2]
            for _ in range(REPEATS)
        ]
        times = {part: median(once[part] for once in repeated) for part in times}
    photo = load_image(path).image
    drawn = Homunculus(photo, hit, retriever.balance(hit), allocation, question)
    write_picture(drawn.picture(), picture)
    return Answer(path.name, question, hit, allocation, times, picture.name, panels(photo, hit, allocation))


def _draw_overview(answers: list[Answer], path: Path) -> None:
    from ..retrieval.pictures import overview

    columns = [(answered.question, answered.panels) for answered in answers]
    write_picture(overview(columns, OVERVIEW_WIDTH), path)


def _document(answered: Answer, folder: Path) -> dict[str, object]:
    hit = answered.hit
    return {
        "photo": answered.photo,
        "question": answered.question,
        "matches": [{"phrase": m.interest.phrase, "weight": m.weight} for m in hit.matches],
        "tier": str(hit.tier),
        "confidence": hit.confidence,
        "own_share": hit.own_share,
        "times_us": answered.times,
        "kept": len(answered.allocation.indices),
        "picture": str(folder / answered.picture),
    }


def _show(folder: Path, answers: list[Answer], report: IndexReport) -> None:
    from ..retrieval.naming import shares

    console = out()
    console.print(
        f"{count(report.indexed + report.unchanged, 'photo')} under {len(INTERESTS)} interests: "
        f"{report.indexed} indexed, {report.unchanged} unchanged, in {report.seconds:.1f} s"
    )
    rows = table("question", "photo", "seen through", "tier", "#conf.", "#µs", "#tokens")
    for answered in answers:
        hit = answered.hit
        rows.add_row(
            answered.question,
            Path(answered.photo).stem,
            ", ".join(f"{name} {share:.0%}" for name, share in shares(hit)),
            hit.tier,
            f"{hit.confidence:.2f}",
            f"{sum(answered.times.values()):,.0f}",
            str(len(answered.allocation.indices)),
        )
    console.print(rows)
    console.print(
        f"µs: to match, look up, blend and allocate, asked by key, all loaded, median of {REPEATS}.\n"
        "Coded: no interest answers the question (conf.); its own map is made from the photo's code."
    )
    console.print(f"Wrote {printable(str(folder / 'index.html'))} and its pictures")
