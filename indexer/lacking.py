"""What an image lacks of its texture record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lacking:
    """What is to be made of an image: its base texture, the maps of interests, its code."""

    base: bool = False
    interests: frozenset[int] = frozenset()
    code: bool = False

    def __bool__(self) -> bool:
        return self.base or bool(self.interests) or self.code
