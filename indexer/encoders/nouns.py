"""The nouns that stand for what phrases may be about."""

from __future__ import annotations

import re
from functools import cache

from timm.data.imagenet_info import ImageNetInfo

from ...catalogue.phrases import normalise_phrase, singulars
from ..lexicon import english_tags


def common_nouns() -> tuple[str, ...]:
    """5,678 English nouns of one word, in alphabetical order: first names of the classes of ImageNet-12k.

    These are the concepts of WordNet for which there are many photos on the web.
    """
    names = (names.partition(", ")[0] for names in ImageNetInfo("imagenet-12k").label_descriptions())
    return tuple(sorted({name for name in names if re.fullmatch("[a-z]+", name)}))


def everyday_things() -> tuple[str, ...]:
    """80 things that photos of everyday life show most: the categories of COCO (Lin et al. 2014).

    The builtin encoder has fitted directions for them (`fitted`).
    """
    names = """
    airplane, apple, backpack, banana, baseball bat, baseball glove, bear, bed, bench, bicycle, bird,
    boat, book, bottle, bowl, broccoli, bus, cake, car, carrot, cat, cell phone, chair, clock, couch,
    cow, cup, dining table, dog, donut, elephant, fire hydrant, fork, frisbee, giraffe, hair drier,
    handbag, horse, hot dog, keyboard, kite, knife, laptop, microwave, motorcycle, mouse, orange, oven,
    parking meter, person, pizza, potted plant, refrigerator, remote, sandwich, scissors, sheep, sink,
    skateboard, skis, snowboard, spoon, sports ball, stop sign, suitcase, surfboard, teddy bear, tennis
    racket, tie, toaster, toilet, toothbrush, traffic light, train, truck, tv, umbrella, vase, wine
    glass, zebra
    """
    return tuple(" ".join(name.split()) for name in names.split(","))


def class_names() -> tuple[str, ...]:
    """20,070 English names of things, in alphabetical order: first names of the classes of ImageNet-21k.

    The first name of a class is the one that is used most. They are normalised, as phrases are.
    """
    descriptions = ImageNetInfo("imagenet-21k-goog").label_descriptions()
    return tuple(sorted({normalise_phrase(names.partition(", ")[0]) for names in descriptions}))


@cache
def thing_names() -> frozenset[str]:
    """Names of the classes of ImageNet-1k and 12k, in small letters: "red fox", "traffic light"."""
    return frozenset(
        name.casefold()
        for classes in ("imagenet-1k", "imagenet-12k")
        for names in ImageNetInfo(classes).label_descriptions()
        for name in names.split(", ")
    )


@cache
def class_words() -> frozenset[str]:
    """The words of `thing_names`."""
    return frozenset(re.findall(r"\w+", " ".join(thing_names())))


def is_known(noun: str) -> bool:
    """Whether at least half of the words of `noun` are English: in the lexicon, or in a name of a class.

    Plurals of such words are, too. What is no word, such as an emoji, is not.
    """
    words = re.findall(r"[^\W_]+", noun.casefold())
    known = sum(any(map(_is_word, (word, *singulars(word)))) for word in words)
    return known > 0 and 2 * known >= len(words)


def _is_word(word: str) -> bool:
    return word in english_tags() or word in class_words()
