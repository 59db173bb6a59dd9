"""The page that ``texcat demo`` writes: one HTML file, which loads nothing but the pictures beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from string import Template
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from pathlib import Path

    from PIL.Image import Image

    from ..catalogue import IndexReport
    from ..retrieval import Allocation, Lookup
    from .asking import Times


@dataclass(frozen=True, slots=True)
class Answer:
    """One question of the demo.

    Attributes:
        photo: name of the photo's file.
        question: in words.
        hit: what was found.
        allocation: what was kept.
        times: microseconds of each part: median of many repetitions if stored, else of the first.
        picture: name of the file that shows the answer.
        panels: photo, relevance and kept tokens.
    """

    photo: str
    question: str
    hit: Lookup
    allocation: Allocation
    times: Times
    picture: str
    panels: tuple[Image, Image, Image]


_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>texcat demo</title>
<style>
body { margin: 0 auto; padding: 2.5rem 1.5rem; max-width: 76rem; color: #1c1c20; background: #f5f5f7;
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { margin: 0 0 .5rem; font-size: 2rem; letter-spacing: -.02em; }
.lead { max-width: 46rem; margin: 0 0 2rem; color: #55555e; }
section { margin: 0 0 1.5rem; padding: 1rem 1.25rem 1.25rem; border-radius: .75rem; background: #fff;
  box-shadow: 0 1px 3px rgb(0 0 0 / .08); }
img { display: block; width: 100%; height: auto; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2.5rem; margin: .25rem 0 0; padding: 0 1.2%; }
dt { font-size: .8rem; color: #6e6e76; }
dd { margin: 0; font-variant-numeric: tabular-nums; }
</style>
</head>
<body>
<h1>texcat demo</h1>
<p class="lead">$lead</p>
$sections
</body>
</html>
""")

_SECTION = Template("""<section>
<img src="$source" alt="$alternative">
<dl>$facts</dl>
</section>""")


def write_page(path: Path, answers: Sequence[Answer], report: IndexReport) -> None:
    """Write the page to `path`, in the folder that holds the pictures."""
    lead = (
        f"{report.indexed + report.unchanged} photos were looked at once, offline, through ten interests. "
        "Each question was then matched to the interests, their stored maps were blended, and the most "
        "relevant of 1,024 positions were kept for a vision-language model. Where no interest answers a "
        "question, the map of its own words is made from the photo's code. Times are medians of many "
        "look-ups by key, with all loaded."
    )
    sections = "\n".join(_section(answer) for answer in answers)
    path.write_text(_PAGE.substitute(lead=escape(lead), sections=sections), encoding="utf-8")


def _section(answer: Answer) -> str:
    from ..retrieval.naming import shares

    kept, hit = len(answer.allocation.indices), answer.hit
    facts = {
        "photo": answer.photo,
        "seen through": ", ".join(f"{name} {share:.0%}" for name, share in shares(hit)),
        "confidence": f"{hit.confidence:.2f}",
        "maps": str(hit.tier),
        "time": ", ".join(f"{part} {microseconds:,.0f} µs" for part, microseconds in answer.times.items()),
    }
    return _SECTION.substitute(
        source=escape(quote(answer.picture)),
        alternative=escape(
            f"{answer.question} The photo, its relevance, and the {kept} tokens that were kept."
        ),
        facts="".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts.items()),
    )
