"""A fingerprint as one HTML file: it loads nothing, runs nothing, and shows what scripts the browser can."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from html import escape
from string import Template

from ..catalogue.graph import Kind, Standing
from .fingerprint import Fingerprint, InterestFigures
from .graph_drawing import Disc, GraphDrawing, draw_graph
from .graph_picture import MARKS, label_width, summary

_WIDTH, _HEIGHT = 1200, 760
_EDGE = 50
_SPARK = (120, 26)

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { color-scheme: light dark; --page: #f5f5f7; --card: #fff; --ink: #1c1c20; --faint: #6e6e78;
  --rule: #e6e6ea; --bar: #3b82c4; }
@media (prefers-color-scheme: dark) { :root { --page: #121215; --card: #1c1c21; --ink: #ececf0;
  --faint: #9a9aa5; --rule: #30303a; --bar: #6aa8e0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.5rem; max-width: 80rem; color: var(--ink); background: var(--page);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 2.2rem; letter-spacing: -.02em; }
h2 { margin: 0 0 .75rem; font-size: 1.1rem; }
.lead { margin: .25rem 0 1.5rem; color: var(--faint); }
section { min-width: 0; margin: 0 0 1.5rem; padding: 1.25rem; border-radius: .75rem; background: var(--card);
  box-shadow: 0 1px 3px rgb(0 0 0 / .1); overflow-x: auto; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 0 1.5rem; }
svg { display: block; max-width: 100%; height: auto; }
svg text { fill: var(--ink); text-anchor: middle; paint-order: stroke; stroke: var(--card);
  stroke-width: 4px; stroke-linejoin: round; }
svg .hint { fill: var(--faint); }
svg .page { fill: var(--card); }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { font-weight: 500; font-size: .8rem; text-align: left; color: var(--faint); }
th, td { padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--rule); vertical-align: middle; }
.number { text-align: right; white-space: nowrap; }
.name { overflow-wrap: anywhere; }
.because, .note { color: var(--faint); font-size: .85rem; }
.track { display: inline-block; width: 6rem; height: .5rem; border-radius: .25rem; background: var(--rule); }
.fill { display: block; height: 100%; border-radius: .25rem; background: var(--bar); }
.spark { fill: none; stroke: var(--bar); stroke-width: 1.5; }
ul { margin: 0; padding: 0; list-style: none; }
li { padding: .3rem 0; overflow-wrap: anywhere; }
.dot { display: inline-block; width: .7rem; height: .7rem; margin-right: .5rem; border-radius: 50%; }
</style>
</head>
<body>
<h1>$title</h1>
<p class="lead">$lead</p>
<section>$graph<p class="note">$marks</p></section>
<div class="pair">
<section><h2>You might also like</h2>$suggestions</section>
<section><h2>What belongs together</h2>$communities</section>
<section><h2>What holds it together</h2>$hubs</section>
<section><h2>Not explored yet</h2>$frontier</section>
</div>
<section><h2>Interests</h2>$interests</section>
<p class="note">$sizes</p>
</body>
</html>
""")


def draw_page(fingerprint: Fingerprint, title: str = "What I look for") -> str:
    """The fingerprint as one HTML document, light or dark as the reader's system is.

    All that comes from the user is escaped, and the page forbids itself scripts and addresses.
    """
    drawing = draw_graph(fingerprint, _WIDTH, _HEIGHT, label_width)
    return _PAGE.substitute(
        title=escape(title),
        lead=escape(summary(fingerprint)),
        graph=_graph(drawing),
        marks=escape(MARKS),
        interests=_interests(fingerprint),
        suggestions=_table(
            ("phrase", "#expected use"),
            (
                (
                    _named(each.phrase, ", ".join(f"{r.start} ({r.kind})" for r in each.reasons[:3])),
                    f"{each.expected:.2f}",
                )
                for each in fingerprint.suggestions
            ),
        ),
        communities=_communities(fingerprint, drawing),
        hubs=_table(
            ("phrase", "#part of a walk's time"),
            ((_named(hub.phrase), f"{hub.centrality:.1%}") for hub in fingerprint.hubs),
        ),
        frontier=_table(
            ("from an interest", "to", "#tie"),
            (
                (_named(s.start), _named(s.end), f"{escape(s.kind)} {s.strength:.2f}")
                for s in fingerprint.frontier
            ),
        ),
        sizes=escape(
            f"{fingerprint.phrases:,} phrases, {fingerprint.ties:,} ties. "
            f"{fingerprint.bytes / 1e6:,.1f} MB of textures. "
            f"Made {time.strftime('%Y-%m-%d %H:%M', time.localtime(fingerprint.made))}."
        ),
    )


def _graph(drawing: GraphDrawing) -> str:
    if not drawing.discs:
        return '<p class="note">No interests yet.</p>'
    parts = [
        f'<svg viewBox="{-_EDGE} {-_EDGE} {drawing.width + 2 * _EDGE} {drawing.height + 2 * _EDGE}" '
        'role="img" aria-label="Graph of interests">',
        '<defs><filter id="soft" x="-50%" y="-50%" width="200%" height="200%">'
        '<feGaussianBlur stdDeviation="34"/></filter></defs><g filter="url(#soft)" opacity=".16">',
    ]
    parts += [
        f'<circle cx="{disc.x:.1f}" cy="{disc.y:.1f}" r="{disc.radius + 46:.1f}" fill="{_hex(disc)}"/>'
        for disc in drawing.discs
        if disc.community is not None
    ]
    parts.append("</g>")
    for line in sorted(drawing.lines, key=lambda line: line.strength):
        one, other = line.start, line.end
        colour = _hex(one) if one.community == other.community else "#9a9aa5"
        dash = {Kind.SIGHT: ' stroke-dasharray="7 6"', Kind.USE: ""}.get(line.kind, "")
        place = f'x1="{one.x:.1f}" y1="{one.y:.1f}" x2="{other.x:.1f}" y2="{other.y:.1f}"'
        width = 1 + 3 * line.strength + 2 * (line.kind is Kind.USE)
        told = escape(f"{one.phrase} – {other.phrase}: {line.kind} {line.strength:.2f}")
        parts.append(
            f'<line {place} stroke="{colour}" stroke-width="{width:.1f}" '
            f'opacity="{0.25 + 0.55 * line.strength:.2f}"{dash}><title>{told}</title></line>'
        )
        if line.kind is Kind.USE:
            parts.append(f'<line {place} style="stroke: var(--card)" stroke-width="{width / 2.5:.1f}"/>')
    for disc in drawing.discs:
        parts.append(_disc(disc, drawing.label_size))
    return "".join((*parts, "</svg>"))


def _disc(disc: Disc, size: int) -> str:
    circle = f'<circle cx="{disc.x:.1f}" cy="{disc.y:.1f}" r="{disc.radius:.1f}"'
    if disc.standing is Standing.INTEREST:
        circle += f' fill="{_hex(disc)}"/>'
    else:
        circle += f' class="page" stroke="{_hex(disc)}" stroke-width="3"/>'
    hint = "" if disc.standing is Standing.INTEREST else ' class="hint"'
    # A little smaller than it was measured: the reader's font may be wider than Pillow's.
    text = (
        f'<text x="{disc.x:.1f}" y="{disc.baseline + 0.85 * size:.1f}" font-size="{0.92 * size:.1f}"{hint}>'
        f"{escape(disc.label)}</text>"
    )
    return f"<g>{circle}{text}<title>{escape(disc.phrase)}</title></g>"


def _interests(fingerprint: Fingerprint) -> str:
    most = max((each.effective for each in fingerprint.interests), default=0.0)
    rows = (
        (
            _named(each.phrase),
            f"{_bar(each.effective / most if most > 0 else 0.0)} {each.effective:.2f}",
            _sparkline(each, fingerprint.times, most),
            f"{each.use:.1f}",
            "not known" if each.coverage is None else f"{_bar(each.coverage)} {each.coverage:.0%}",
            f"{each.maps:,}",
            f"{each.bytes / 1e3:,.0f} kB",
        )
        for each in fingerprint.interests
    )
    since = time.strftime("%Y-%m-%d", time.localtime(fingerprint.times[0])) if fingerprint.times else ""
    return _table(
        (
            "interest",
            "weight now",
            f"since {since}" if since else "over time",
            "#use",
            "photos that show it",
            "#maps",
            "#size",
        ),
        rows,
    )


def _sparkline(interest: InterestFigures, times: Sequence[float], most: float) -> str:
    """The effective weight over time, on one scale for all interests."""
    if len(times) < 2 or most <= 0:
        return ""
    width, height = _SPARK
    highest = max(most, *interest.history)
    points = " ".join(
        f"{place * width / (len(times) - 1):.1f},{(height - 2) * (1 - value / highest) + 1:.1f}"
        for place, value in enumerate(interest.history)
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="weight over time"><polyline class="spark" points="{points}"/></svg>'
    )


def _communities(fingerprint: Fingerprint, drawing: GraphDrawing) -> str:
    if not fingerprint.communities:
        return '<p class="note">None yet.</p>'
    colours = {disc.phrase: _hex(disc) for disc in drawing.discs}
    items = []
    for members in fingerprint.communities:
        colour = next((colours[phrase] for phrase in members if phrase in colours), "#8c8c96")
        more = f" and {len(members) - 8:,} more" if len(members) > 8 else ""
        names = ", ".join(f"<bdi>{escape(phrase)}</bdi>" for phrase in members[:8])
        items.append(f'<li><span class="dot" style="background: {colour}"></span>{names}{more}</li>')
    return f"<ul>{''.join(items)}</ul>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already. A column whose name starts with ``#`` holds numbers."""
    number = [' class="number"' if column.startswith("#") else "" for column in columns]
    body = "".join(
        f"<tr>{''.join(f'<td{n}>{cell}</td>' for n, cell in zip(number, row, strict=True))}</tr>"
        for row in rows
    )
    if not body:
        return '<p class="note">None yet.</p>'
    head = "".join(f"<th{n}>{escape(c.removeprefix('#'))}</th>" for n, c in zip(number, columns, strict=True))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _named(phrase: str, because: str = "") -> str:
    """A phrase in a cell, apart from the direction of what stands around it."""
    note = f'<br><span class="because">{escape(because)}</span>' if because else ""
    return f'<bdi class="name">{escape(phrase)}</bdi>{note}'


def _bar(part: float) -> str:
    return (
        f'<span class="track"><span class="fill" style="width: {min(1.0, max(0.0, part)):.1%}"></span></span>'
    )


def _hex(disc: Disc) -> str:
    return "#" + "".join(f"{part:02x}" for part in disc.colour)
