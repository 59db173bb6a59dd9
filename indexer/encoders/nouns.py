"""The nouns that stand for what phrases may be about."""

from __future__ import annotations

import re

from timm.data.imagenet_info import ImageNetInfo


def common_nouns() -> tuple[str, ...]:
    """5,678 English nouns of one word, in alphabetical order: first names of the classes of ImageNet-12k.

    These are the concepts of WordNet for which there are many photos on the web.
    """
    names = (names.partition(", ")[0] for names in ImageNetInfo("imagenet-12k").label_descriptions())
    return tuple(sorted({name for name in names if re.fullmatch("[a-z]+", name)}))
