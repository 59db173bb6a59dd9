"""Caches that stay small."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def keep(cache: OrderedDict[_Key, _Value], key: _Key, value: _Value, most: int) -> _Value:
    """Put `value` into a cache of at most `most` entries, and return it; the first to be put there go."""
    cache[key] = value
    while len(cache) > most:
        cache.popitem(last=False)
    return value
