"""Attending: the strategies by name, and how many tokens an image needs."""

from __future__ import annotations

from ..catalogue.errors import UsageError
from .allocation import Allocator, Plane, TopKAllocator
from .coverage import CoverageAllocator
from .neighbourhoods import QuadtreeAllocator, WindowAllocator
from .regional import BudgetsAllocator

ALLOCATORS: dict[str, Allocator] = {
    "topk": TopKAllocator(),
    "window": WindowAllocator(),
    "quadtree": QuadtreeAllocator(),
    "coverage": CoverageAllocator(),
    "budgets": BudgetsAllocator(),
}
"""Allocators by the name of their strategy."""

FEWEST, MOST = 64, 400
"""Tokens of an image of 1,024 positions; of another, in proportion."""

WITH_TEXT = 512
"""Fewest tokens of 1,024 where an image shows text: reading breaks down at small fixed budgets."""

COVERED = 0.9
"""Part of the relevance that the tokens must cover."""

TEXT_LIKELY = 0.5
"""Likelihood above which a position counts as text."""

TEXT_SHARE = 0.02
"""Part of the positions that must be text for the image to be one to read."""


def allocator(strategy: str) -> Allocator:
    """The allocator of this name.

    Raises:
        UsageError: there is none.
    """
    if strategy not in ALLOCATORS:
        raise UsageError(f"strategy {strategy!r} is not known; expected one of: {', '.join(ALLOCATORS)}")
    return ALLOCATORS[strategy]


def needed_budget(relevance: Plane, text_likelihood: Plane | None = None, covered: float = COVERED) -> int:
    """How many tokens an image needs: as many as cover its relevance, within bounds.

    The fewest positions that cover `covered` of the relevance, by `CoverageAllocator`, but at least 64 and at
    most 400 of 1,024; at least 512 where more than 2% of the positions are likely text.

    Args:
        relevance: float32 [rows, columns].
        text_likelihood: float32 [rows, columns] in [0, 1], if it is known.
        covered: in (0, 1].

    Raises:
        UsageError: a value is not as it must be.
    """
    if not 0 < covered <= 1:
        raise UsageError(f"the part to cover must be above 0 and at most 1, got {covered}")
    fewest, most, reading = (max(1, round(n / 1024 * relevance.size)) for n in (FEWEST, MOST, WITH_TEXT))
    chosen = max(fewest, min(most, CoverageAllocator().cover(relevance, most).budget(covered)))
    if text_likelihood is not None and (text_likelihood > TEXT_LIKELY).mean() > TEXT_SHARE:
        chosen = max(chosen, reading)
    return chosen
