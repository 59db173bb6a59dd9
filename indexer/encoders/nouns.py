"""The nouns that stand for what phrases may be about."""

from __future__ import annotations

import re

from timm.data.imagenet_info import ImageNetInfo

from ...catalogue.phrases import normalise_phrase


def common_nouns() -> tuple[str, ...]:
    """5,678 English nouns of one word, in alphabetical order: first names of the classes of ImageNet-12k.

    These are the concepts of WordNet for which there are many photos on the web.
    """
    names = (names.partition(", ")[0] for names in ImageNetInfo("imagenet-12k").label_descriptions())
    return tuple(sorted({name for name in names if re.fullmatch("[a-z]+", name)}))


def class_names() -> tuple[str, ...]:
    """20,070 English names of things, in alphabetical order: first names of the classes of ImageNet-21k.

    The first name of a class is the one that is used most. They are normalised, as phrases are.
    """
    descriptions = ImageNetInfo("imagenet-21k-goog").label_descriptions()
    return tuple(sorted({normalise_phrase(names.partition(", ")[0]) for names in descriptions}))
