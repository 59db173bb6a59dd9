"""Where the phrases of a graph go on a picture: what is tied lies together, and no two labels overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS = 300
_SPREADING = 150
_GRID = 12.0
_PULL = 0.05
_GATHER = 0.12
_FEW, _MANY = 0.35, 30


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of N nodes on a frame, in pixels.

    Attributes:
        centres: of the boxes, float64 [N, 2]: x to the right, y down.
        fits: whether no two boxes overlap, and all lie in the frame.
    """

    centres: Floats
    fits: bool


def lay_out(
    boxes: Floats,
    edges: Sequence[tuple[int, int, float]],
    groups: Sequence[int],
    frame: tuple[float, float],
) -> Layout:
    """Place boxes on a frame, near those that they are tied to, and apart from all others.

    Forces as Fruchterman and Reingold (1991) have them: all nodes push each other away, ties pull; so does
    the other nodes of its group, weakly. Then boxes that overlap are pushed apart, along the shorter way.
    The same input gives the same layout.

    Args:
        boxes: width and height of each node with its label, float64 [N, 2], in pixels.
        edges: places of two nodes, and the strength of their tie, in (0, 1].
        groups: of each node; nodes of one group start together.
        frame: width and height, in pixels.
    """
    count = len(boxes)
    size = np.array(frame, np.float64)
    if count == 0:
        return Layout(np.zeros((0, 2)), True)
    unit = _forced(edges, np.asarray(groups), count)
    low, high = unit.min(0), unit.max(0)
    span = np.where(high - low > 1e-9, high - low, 1.0)
    # A few nodes keep to the middle.
    room = (size - boxes.max(0)) * min(1.0, _FEW + count / _MANY)
    centres = size / 2 + (np.where(high - low > 1e-9, (unit - low) / span, 0.5) - 0.5) * room
    return _spread(centres, boxes, size)


def _forced(edges: Sequence[tuple[int, int, float]], groups: NDArray[np.int64], count: int) -> Floats:
    """Places where the forces are in balance, on no scale: float64 [N, 2]."""
    chance = np.random.default_rng(0)
    kinds = {group: place for place, group in enumerate(dict.fromkeys(groups.tolist()))}
    turn = 2 * np.pi * np.array([kinds[group] for group in groups.tolist()]) / max(1, len(kinds))
    places = np.stack([np.cos(turn), np.sin(turn)], 1) * (len(kinds) > 1) + chance.normal(0, 0.15, (count, 2))
    pull = np.zeros((count, count))
    for a, b, strength in edges:
        pull[a, b] = pull[b, a] = strength
    together = groups[:, None] == groups[None, :]
    ideal = 1.6 / np.sqrt(count)
    for step in range(_STEPS):
        apart = places[:, None] - places[None, :]
        distance = np.maximum(np.hypot(apart[..., 0], apart[..., 1]), 0.01)
        # Positive moves the first away from the second.
        force = ideal**2 / distance - pull * distance**2 / ideal - _GATHER * together * distance
        np.fill_diagonal(force, 0.0)
        move = (apart / distance[..., None] * force[..., None]).sum(1) - _PULL * count * ideal * places
        length = np.maximum(np.hypot(move[:, 0], move[:, 1]), 1e-9)
        most = 0.1 * (1 - step / _STEPS)
        places = places + move * (np.minimum(length, most) / length)[:, None]
    return places


def _spread(centres: Floats, boxes: Floats, frame: Floats) -> Layout:
    """Push boxes apart that overlap, within the frame; if that has no end, put each where there is room."""
    half = boxes / 2
    reach = (boxes[:, None] + boxes[None, :]) / 2
    upper = np.triu(np.ones((len(boxes), len(boxes)), bool), 1)
    for _ in range(_SPREADING):
        centres = np.clip(centres, half, np.maximum(half, frame - half))
        apart = centres[:, None] - centres[None, :]
        overlap = reach - np.abs(apart)
        hit = (overlap > 1e-6).all(-1) & upper
        if not hit.any():
            return Layout(centres, bool((boxes <= frame).all()))
        move = np.zeros_like(centres)
        for a, b in np.argwhere(hit):
            axis = int(overlap[a, b, 1] < overlap[a, b, 0])
            sign = 1.0 if apart[a, b, axis] >= 0 else -1.0
            step = sign * (overlap[a, b, axis] / 2 + 0.5)
            move[a, axis] += step
            move[b, axis] -= step
        centres = centres + 0.6 * move
    return _settled(np.clip(centres, half, np.maximum(half, frame - half)), boxes, frame)


def _settled(centres: Floats, boxes: Floats, frame: Floats) -> Layout:
    """One box after the other, those nearest to the middle first, at the nearest place that is still free."""
    grid = np.stack(
        np.meshgrid(*(np.arange(0, side + 1, _GRID) for side in frame), indexing="ij"), -1
    ).reshape(-1, 2)
    order = np.argsort(np.hypot(*(centres - frame / 2).T), kind="stable")
    placed = centres.copy()
    for rank, n in enumerate(order):
        before = order[:rank]
        places = np.concatenate([centres[n : n + 1], grid])
        free = ((places >= boxes[n] / 2) & (places <= frame - boxes[n] / 2)).all(1)
        for other in before:
            free &= (np.abs(places - placed[other]) >= (boxes[other] + boxes[n]) / 2).any(1)
        if free.any():
            apart = np.square(places - centres[n]).sum(1)
            placed[n] = places[np.where(free, apart, np.inf).argmin()]
        else:
            return Layout(placed, False)
    return Layout(placed, True)
