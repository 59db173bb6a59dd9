"""Between interests and their names: those that the user gives, and those that an answer is told with."""

from __future__ import annotations

from collections.abc import Sequence

from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import UnknownInterestError, UsageError
from ..catalogue.types import Interest
from .types import Lookup, Match, Matches

OWN_WORDS = "its own words"
SHOWN_SHARE = 0.05


def named_matches(catalogue: Catalogue, phrases: Sequence[str]) -> Matches:
    """Matches for `Retriever.lookup` of the interests with these phrases, in any of their spellings.

    Each has similarity 1, and its share of their weights; the heaviest is first.

    Raises:
        InvalidPhraseError: a phrase can name no interest.
        UnknownInterestError: the catalogue holds no interest of a phrase.
        UsageError: no phrase is given, or all of the interests have weight 0.
    """
    interests: dict[int, Interest] = {}
    for phrase in phrases:
        interest = catalogue.registry.find_interest(phrase)
        if interest is None:
            raise UnknownInterestError(phrase)
        interests[interest.id] = interest
    total = sum(interest.weight for interest in interests.values())
    if total <= 0:
        raise UsageError(f"name at least one interest with a weight above 0, got {list(phrases)}")
    distributions = catalogue.registry.distributions(catalogue.settings.fingerprint)
    matches = [
        Match(interest, 1.0, interest.weight / total, distributions.get(interest.id))
        for interest in interests.values()
    ]
    return Matches(sorted(matches, key=lambda match: (-match.weight, match.interest.id)))


def shares(hit: Lookup) -> list[tuple[str, float]]:
    """What the similarity of a look-up is made of, for people: names and parts in [0, 1], the largest first.

    The question's own map is called `OWN_WORDS`. Parts below `SHOWN_SHARE` are left out.
    """
    parts = [(match.interest.phrase, (1 - hit.own_share) * match.weight) for match in hit.matches]
    parts.append((OWN_WORDS, hit.own_share))
    return sorted((part for part in parts if part[1] >= SHOWN_SHARE), key=lambda part: -part[1])
