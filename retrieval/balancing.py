"""Balancing: from what is known of each position to one relevance, by weights that were learned.

Three tensions pull at an allocation (after Vervaeke's account of relevance realization). Each is a number in
[0, 1] between two poles:

- *compress* 0, *particularize* 1: what was asked for is read over a position's whole object, or at the
  position: ``told = (1 - p) participatory of its object + p participatory``
- *exploit* 0, *explore* 1: what was asked for counts, or what is there whatever was asked:
  ``drawn = (1 - e) told + e (perspectival + propositional) / 2``
- *focus* 0, *diversify* 1: what is near the peak counts, or every place alike:
  ``leaning = drawn ((1 - d) nearness to the peak + d)``

A small network over the `evidence` of a position, the same for all positions, adds what three numbers cannot
say: with x the evidence, each plane less its mean and divided by its spread over the photos of the training,

    relevance = sigmoid(pull * leaning + a . (g * relu(W2 relu(W1 x + b1) + b2)) + c)

A ``tension`` balancer has learned its tensions as three constants, and g = 1. An ``adaptive`` one makes
tensions and gates for each question: a network of one hidden layer reads the text embedding of what was asked
for, and mean, maximum and standard deviation of the three scores, and its sigmoids are the tensions, and half
of each gate g.

This module only applies weights, in numpy; `training` makes them, in torch, and tests hold the two equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ..catalogue.errors import BalancerError, UsageError
from .evidence import PLANES, evidence
from .knowing import Scores, know
from .types import Lookup

FORMAT = "1"
"""Version of the files: raised with any change of the formulas, of the planes, or of the tensors' names."""

Kind = Literal["tension", "adaptive"]

SHIPPED: Mapping[str, Path] = {
    kind: Path(__file__).with_name(f"{kind}.safetensors") for kind in get_args(Kind)
}
"""Files of the balancers that come with texcat, by kind: trained for the builtin encoder (design/0016)."""

SCORES = ("participatory", "perspectival", "propositional")
"""Planes that are the three scores themselves."""

LEANING = (
    "participatory",
    "participatory of its object",
    "perspectival",
    "propositional",
    "nearness to the peak",
)
"""Planes that the tensions act on."""

STATISTICS = 9
"""Mean, maximum and standard deviation of each of the three scores."""

ASKED_SCALE = 4.0
"""What an embedding of unit norm is multiplied by, beside figures of about 1/2."""

Plane = NDArray[np.float32]
Floats = NDArray[np.float32]


class Tensions(NamedTuple):
    """Where a balancer stands between three pairs of poles, each in [0, 1]."""

    particularize: float
    explore: float
    diversify: float

    def poles(self) -> tuple[tuple[str, str, float], ...]:
        """``(pole at 0, pole at 1, where it stands)`` of each."""
        return (
            ("compress", "particularize", self.particularize),
            ("exploit", "explore", self.explore),
            ("focus", "diversify", self.diversify),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Balanced:
    """What an allocator reads, and what it was made of.

    Attributes:
        relevance: float32 [32, 32] in [0, 1].
        scores: the three scores.
        tensions: of the balancer; None without one.
        by: kind of the balancer; None where the relevance is that of the look-up.
    """

    relevance: Plane
    scores: Scores
    tensions: Tensions | None
    by: Kind | None


@dataclass(frozen=True, slots=True, eq=False)
class Balancer:
    """Learned weights, ready to be applied.

    Attributes:
        kind: which of the two it is.
        encoder: fingerprint of the encoder that it was trained with.
        tensors: float32 weights, by name.
        about: how they were made, as `training` wrote it.
    """

    kind: Kind
    encoder: str
    tensors: Mapping[str, Floats]
    about: Mapping[str, object]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that `save` wrote.

        Raises:
            BalancerError: it is missing, no such file, of another version, or its tensors are not those of
                its kind.
        """
        try:
            with safe_open(path, "np") as content:
                tensors = {name: content.get_tensor(name) for name in content.keys()}
                metadata = content.metadata() or {}
            told = json.loads(metadata["balancer"])
            version, kind, encoder, planes, about = (
                told[name] for name in ("format", "kind", "encoder", "planes", "about")
            )
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise BalancerError(
                path, f"it does not hold a balancer ({type(error).__name__}: {error})"
            ) from error
        if version != FORMAT or kind not in SHIPPED or tuple(planes) != PLANES:
            raise BalancerError(
                path,
                f"it is of kind {kind!r}, format {version}; this version of texcat reads format {FORMAT}",
            )
        _check(path, kind, tensors)
        return cls(kind, encoder, tensors, about)

    def save(self, path: Path) -> None:
        """Write a safetensors file. The same weights make the same bytes."""
        told = {
            "format": FORMAT,
            "kind": self.kind,
            "encoder": self.encoder,
            "planes": PLANES,
            "about": self.about,
        }
        metadata = {"balancer": json.dumps(told)}  # of several entries, the order would be left to chance
        save_file({name: np.ascontiguousarray(each) for name, each in self.tensors.items()}, path, metadata)

    def check_encoder(self, fingerprint: str) -> None:
        """That a catalogue of the encoder with this fingerprint is one that the balancer was trained for.

        Fingerprints are a name and a hash. The name must be the same: it stands for the network and the model
        of texts. Their hash changes with each fit of an encoder's directions, and what a balancer reads is
        measured against the corpus.

        Raises:
            BalancerError: it is another encoder.
        """
        if self.encoder.rpartition("-")[0] != fingerprint.rpartition("-")[0]:
            raise BalancerError(
                self.kind,
                f"it was trained with the encoder {self.encoder}, and the catalogue has {fingerprint}; train "
                "one with `texcat train-balancer`, or balance with none",
            )

    def balance(self, hit: Lookup, asked: Floats | None) -> Balanced:
        """The relevance of a look-up.

        Args:
            hit: a look-up in a catalogue of the encoder that the balancer was trained with.
            asked: float32 [d_text], what was asked for (`Retriever.asked`): an ``adaptive`` one needs it.

        Raises:
            UsageError: the look-up was made with too few channels, or `asked` is not what it must be.
        """
        scores = know(hit)
        planes = evidence(hit, scores).reshape(len(PLANES), -1)
        relevance, tensions = self.apply(planes, asked)
        return Balanced(relevance.reshape(hit.relevance.shape), scores, tensions, self.kind)

    def apply(self, planes: Floats, asked: Floats | None = None) -> tuple[Floats, Tensions]:
        """Relevance float32 [N] in [0, 1] of N positions, by their evidence [F, N]; and the tensions.

        Raises:
            UsageError: as `balance`.
        """
        held = self.tensors
        x = (planes - held["mean"][:, None]) / held["spread"][:, None]
        hidden = np.maximum(held["cells.0.weight"] @ x + held["cells.0.bias"][:, None], 0)
        hidden = np.maximum(held["cells.1.weight"] @ hidden + held["cells.1.bias"][:, None], 0)
        weights = held["out.weight"][0]
        if self.kind == "tension":
            settings = _sigmoid(held["tensions"])
        else:
            wanted = held["setting.0.weight"].shape[1] - STATISTICS
            if asked is None or asked.shape != (wanted,):
                got = None if asked is None else asked.shape
                raise UsageError(
                    f"an adaptive balancer reads a text embedding of {wanted} numbers, got {got}"
                )
            read = np.concatenate([ASKED_SCALE * asked, statistics(planes)])
            inner = np.maximum(held["setting.0.weight"] @ read + held["setting.0.bias"], 0)
            settings = _sigmoid(held["setting.1.weight"] @ inner + held["setting.1.bias"])
            weights = weights * (2 * settings[3:])
        tensions = Tensions(*(float(each) for each in settings[:3]))
        logits = held["pull"] * leaning(planes, tensions) + weights @ hidden + held["out.bias"]
        return _sigmoid(logits), tensions


@cache
def shipped(kind: Kind) -> Balancer:
    """The balancer of this kind that comes with texcat, read once.

    Raises:
        UsageError: there is none of this name.
        BalancerError: its file is damaged.
    """
    if kind not in SHIPPED:
        raise UsageError(f"balancer {kind!r} is not known; expected one of: {', '.join(SHIPPED)}, or a file")
    return Balancer.load(SHIPPED[kind])


def named_balancer(name: str) -> Balancer | None:
    """The balancer that a user names: ``none``, one that comes with texcat, or the path of a file.

    Raises:
        UsageError: there is neither a balancer nor a file of this name.
        BalancerError: the file is no balancer's.
    """
    if name == "none":
        return None
    if name in SHIPPED or not Path(name).is_file():
        return shipped(cast("Kind", name))
    return Balancer.load(Path(name))


def leaning(planes: Floats, tensions: Tensions) -> Floats:
    """What the tensions alone make of evidence [F, N]: float32 [N] in [0, 1]; see the module."""
    own, whole, drawing, telling, peak = (planes[PLANES.index(name)] for name in LEANING)
    told = (1 - tensions.particularize) * whole + tensions.particularize * own
    drawn = (1 - tensions.explore) * told + tensions.explore * (drawing + telling) / 2
    return np.asarray(drawn * ((1 - tensions.diversify) * peak + tensions.diversify), np.float32)


def statistics(planes: Floats) -> Floats:
    """Mean, maximum and standard deviation of each of the three scores, from evidence [F, N]: float32 [9]."""
    scores = planes[[PLANES.index(name) for name in SCORES]]
    return np.concatenate([scores.mean(axis=1), scores.max(axis=1), scores.std(axis=1)])


def shapes(kind: Kind, hidden: int, inner: int, asked: int) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor of a balancer, by name.

    Args:
        kind: which balancer.
        hidden: numbers of the network over positions.
        inner: numbers of the network over questions, of an ``adaptive`` one.
        asked: length of the text embeddings.
    """
    common: dict[str, tuple[int, ...]] = {
        "mean": (len(PLANES),),
        "spread": (len(PLANES),),
        "pull": (1,),
        "cells.0.weight": (hidden, len(PLANES)),
        "cells.0.bias": (hidden,),
        "cells.1.weight": (hidden, hidden),
        "cells.1.bias": (hidden,),
        "out.weight": (1, hidden),
        "out.bias": (1,),
    }
    if kind == "tension":
        return {**common, "tensions": (3,)}
    return {
        **common,
        "setting.0.weight": (inner, asked + STATISTICS),
        "setting.0.bias": (inner,),
        "setting.1.weight": (3 + hidden, inner),
        "setting.1.bias": (3 + hidden,),
    }


def _check(path: Path, kind: Kind, tensors: Mapping[str, Floats]) -> None:
    """That a file holds the tensors of its kind, in shapes that go together."""
    missing = shapes(kind, 0, 0, 0).keys() ^ tensors.keys()
    if missing:
        raise BalancerError(
            path, f"tensors {', '.join(sorted(missing))} are missing, or are none of a balancer"
        )
    hidden = len(tensors["cells.0.bias"])
    inner, asked = tensors["setting.0.weight"].shape if kind == "adaptive" else (0, 0)
    for name, expected in shapes(kind, hidden, inner, asked - STATISTICS).items():
        found = tensors[name]
        if found.shape != expected or found.dtype != np.float32 or not np.isfinite(found).all():
            raise BalancerError(
                path,
                f"tensor {name} is {found.dtype} {list(found.shape)}; expected finite float32 {expected}",
            )


def _sigmoid(values: Floats) -> Floats:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * values), np.float32)  # never overflows
