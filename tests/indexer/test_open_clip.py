"""The open_clip encoder, on small models that the tests make and save."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from texcat.catalogue.errors import EncoderError, UnknownEncoderError, UsageError
from texcat.indexer.encoders import load_encoder
from texcat.indexer.encoders.negatives import split_negatives
from texcat.indexer.encoders.open_clip import OpenClipEncoder, pixel_statistics
from torch import Tensor
from torch.nn import functional as F

from .clip_models import (
    GRID,
    PATCH,
    PLAIN,
    REFUSED,
    SIZE,
    add_configs,
    by_formula,
    images,
    normalised,
    seeded,
)

VARIANTS = ["naclip", "clearclip", "maskclip", "vanilla"]


@pytest.fixture(scope="module", autouse=True)
def configs(tmp_path_factory: pytest.TempPathFactory) -> None:
    add_configs(tmp_path_factory.mktemp("configs"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Path of a checkpoint with seeded weights of a model, made once."""
    folder = tmp_path_factory.mktemp("checkpoints")

    def save(name: str, seed: int = 0) -> Path:
        path = folder / f"{name}-{seed}.pt"
        if not path.exists():
            torch.save(seeded(name, seed).state_dict(), path)
        return path

    return save


@pytest.mark.parametrize("name", ["texcat-tiny", "texcat-tiny-quickgelu", "texcat-tiny-scaled"])
def test_vanilla_class_token_is_encode_image(name: str, saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder(name, str(saved(name)), "cpu", variant="vanilla")
    expected = seeded(name).encode_image(normalised(images(3)))
    torch.testing.assert_close(encoder.tokens(images(3))[:, 0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PLAIN)
def test_every_plain_model_gives_patches_and_directions(name: str, saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder(name, str(saved(name)), "cpu")
    features = encoder.patches(images(2))
    assert features.shape == (2, encoder.dim, GRID, GRID)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(2, GRID, GRID))
    in_rows = encoder.tokens(images(2))[:, -GRID * GRID :].reshape(2, GRID, GRID, -1)
    torch.testing.assert_close(features, F.normalize(in_rows, dim=-1).movedim(-1, 1))
    assert encoder.direction(["a boat"]).shape == (1, encoder.dim)


def test_what_an_encoder_says_of_itself(saved: Callable[..., Path]) -> None:
    encoder = load_encoder(f"open_clip:texcat-tiny/{saved('texcat-tiny')}", "cpu")
    assert encoder.spec == f"open_clip:texcat-tiny/{saved('texcat-tiny')}"
    assert (encoder.input_size, encoder.grid, encoder.map_size) == (SIZE, (GRID, GRID), GRID)
    assert (encoder.dim, encoder.text_dim, encoder.device) == (24, 24, "cpu")
    features = encoder.patches(images(2))
    assert (features.shape, features.dtype) == ((2, 24, GRID, GRID), torch.float32)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(2, GRID, GRID))


def test_direction_is_the_mean_over_templates(saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu")
    model, tokenize = seeded("texcat-tiny"), open_clip.get_tokenizer("texcat-tiny")
    expected = []
    for phrase in ("red bike", "🚲"):
        prompts = tokenize([template(phrase) for template in open_clip.SIMPLE_IMAGENET_TEMPLATES])
        each = F.normalize(model.encode_text(prompts), dim=1)
        expected.append(F.normalize(each.mean(0), dim=0))
    directions = encoder.direction(["red bike", "🚲"])
    torch.testing.assert_close(directions, torch.stack(expected), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(encoder.text(["red bike", "🚲"]), directions)
    assert encoder.direction([]).shape == (0, 24)


def test_phrases_are_embedded_alike_alone_and_among_many(saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu")
    phrases = [f"boat number {number}" for number in range(70)]
    together = encoder.direction(phrases)
    alone = torch.cat([encoder.direction([phrase]) for phrase in (phrases[0], phrases[63], phrases[69])])
    torch.testing.assert_close(together[[0, 63, 69]], alone, rtol=1e-5, atol=1e-5)


def test_negatives_are_taken_off(saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu")
    bike, person, sign = encoder.direction(["red bike", "person", "road sign"])
    actual = encoder.direction(["boat", "red bike -person -road sign"])[1]
    torch.testing.assert_close(actual, bike - (person + sign) / 2)
    torch.testing.assert_close(encoder.text(["red bike -person -road sign"])[0], bike)


@pytest.mark.parametrize(
    ("phrase", "wanted", "negatives"),
    [
        ("red bike", "red bike", ()),
        ("red bike -person", "red bike", ("person",)),
        ("  red bike  -person\n-road sign ", "red bike", ("person", "road sign")),
        ("t-shirt -black-and-white", "t-shirt", ("black-and-white",)),
        ("a bike - the red one", "a bike - the red one", ()),
        ("a lake at -5 degrees", "a lake at -5 degrees", ()),
        ("where is it -- there?", "where is it -- there?", ()),
        ("-person", "-person", ()),
        ("велосипед -человек", "велосипед", ("человек",)),
        ("", "", ()),
    ],
)
def test_a_minus_before_a_word_starts_a_negative(
    phrase: str, wanted: str, negatives: tuple[str, ...]
) -> None:
    assert split_negatives(phrase) == (wanted, negatives)


WORDS = st.from_regex(r"[a-z]([a-z -]*[a-z])?", fullmatch=True).filter(lambda text: " -" not in text)


@given(wanted=WORDS, negatives=st.lists(WORDS))
def test_negatives_come_back_as_they_were_joined(wanted: str, negatives: list[str]) -> None:
    assert split_negatives(" -".join([wanted, *negatives])) == (wanted, tuple(negatives))


def test_a_question_may_be_long(saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu")
    word = "".join(random.Random(0).choices("abcdefghijklmnopqrstuvwxyz", k=100_000))
    started = time.perf_counter()
    assert encoder.text([word]).isfinite().all()
    assert time.perf_counter() - started < 30  # whole, the word takes minutes
    beginning = "where is the red bike? " * 10
    torch.testing.assert_close(encoder.text(["\n" * 9_000 + beginning * 400]), encoder.text([beginning]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_planted_patches_peak_where_they_are_planted(variant: Any, tmp_path: Path) -> None:
    """Two phrases are taught what a red and a blue image look like; neither map may be negated or moved.

    What they look like comes from the formulas, not from the encoder: it might negate both.
    """
    colours = {"red": (230, 20, 20), "blue": (20, 20, 230)}
    model = seeded("texcat-tiny")
    with torch.no_grad():  # random weights see places more than colours, and their keys are all alike
        model.visual.positional_embedding.zero_()
        model.visual.transformer.resblocks[-1].attn.in_proj_weight[:64] *= 3

    def plain(colour: tuple[int, int, int]) -> Tensor:
        return torch.tensor(colour, dtype=torch.uint8)[None, :, None, None].expand(1, 3, SIZE, SIZE).clone()

    with torch.no_grad():
        tokens = [by_formula(model, normalised(plain(colour))[0], variant) for colour in colours.values()]
    looks = torch.stack([F.normalize(token[1:], dim=-1).mean(0) for token in tokens])
    looks -= looks.mean(0)
    tokenize = open_clip.get_tokenizer("texcat-tiny")
    prompts = [t(phrase) for phrase in colours for t in open_clip.SIMPLE_IMAGENET_TEMPLATES]
    with torch.no_grad():
        model.text_projection = torch.nn.Parameter(torch.eye(32))
        before = model.encode_text(tokenize(prompts))
        model.text_projection = torch.nn.Parameter(
            torch.linalg.lstsq(before, looks.repeat_interleave(len(prompts) // 2, 0)).solution
        )
    path = tmp_path / "planted.pt"
    torch.save(model.state_dict(), path)
    encoder = OpenClipEncoder("texcat-tiny", str(path), "cpu", variant=variant)

    scene = plain((120, 120, 120))
    for (row, column), colour in zip(((0, 1), (3, 2)), colours.values(), strict=True):
        area = scene[0, :, row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH]
        area.copy_(torch.tensor(colour, dtype=torch.uint8)[:, None, None])
    maps = torch.einsum("dij,nd->nij", encoder.patches(scene)[0], encoder.direction(list(colours)))
    assert [int(m.argmax()) for m in maps] == [0 * GRID + 1, 3 * GRID + 2]
    assert (maps.amax((1, 2)) > 0).all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["texcat-tiny", "texcat-tiny-latent"])
def test_an_image_has_the_same_features_in_any_batch(
    name: str, variant: Any, saved: Callable[..., Path]
) -> None:
    encoder = OpenClipEncoder(name, str(saved(name)), "cpu", variant=variant)
    batch = images(5)
    alone = torch.cat([encoder.patches(image[None]) for image in batch])
    torch.testing.assert_close(encoder.patches(batch), alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["texcat-tiny", "texcat-tiny-average", "texcat-tiny-latent"])
def test_bfloat16_is_near_float32(name: str, variant: Any, saved: Callable[..., Path]) -> None:
    """bfloat16 keeps 8 bits of each number: a cosine is right to 2%, and a map keeps its pattern."""
    exact = OpenClipEncoder(name, str(saved(name)), "cpu", variant=variant)
    rounded = OpenClipEncoder(name, str(saved(name)), "cpu", variant=variant, precision="bf16")
    directions = exact.direction(["red bike", "a boat", "fog"])
    torch.testing.assert_close(rounded.direction(["red bike", "a boat", "fog"]), directions, rtol=0, atol=0)
    features = rounded.patches(images(4))
    assert features.dtype == torch.float32
    maps, near = (torch.einsum("bdij,nd->nbij", f, directions) for f in (exact.patches(images(4)), features))
    assert 0 < (maps - near).abs().max() < 0.02
    assert torch.corrcoef(torch.stack([maps.flatten(), near.flatten()]))[0, 1] > 0.995


def test_safetensors_give_the_same_features(saved: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "tiny.safetensors"
    save_file(seeded("texcat-tiny").state_dict(), path)
    a = OpenClipEncoder("texcat-tiny", str(path), "cpu").patches(images(1))
    b = OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu").patches(images(1))
    torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("name", PLAIN)
def test_a_checkpoint_loads_at_another_input_size(name: str, saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder(name, str(saved(name)), "cpu", input_size=96)
    assert (encoder.input_size, encoder.grid, encoder.map_size) == (96, (6, 6), 6)
    batch = F.interpolate(images(1).float(), size=96).to(torch.uint8)
    assert encoder.patches(batch).shape == (1, encoder.dim, 6, 6)


@pytest.mark.parametrize("name", ["texcat-tiny-224", "texcat-tiny-timm-224"])
def test_weights_for_224_pixels_run_at_512(name: str, saved: Callable[..., Path]) -> None:
    """Position embeddings are stretched, not cut or begun anew: a place keeps its own."""
    encoder = load_encoder(f"open_clip:{name}/{saved(name)},size=512", "cpu")
    assert (encoder.input_size, encoder.grid) == (512, (32, 32))
    assert encoder.patches(images(1, size=512)).isfinite().all()
    trained, stretched = (
        model.visual.trunk.pos_embed[0] if "timm" in name else model.visual.positional_embedding
        for model in (seeded(name), encoder._clip)  # type: ignore[attr-defined]
    )
    torch.testing.assert_close(stretched[0], trained[0])
    expected = F.interpolate(
        trained[1:].T.reshape(1, 32, 14, 14), (32, 32), mode="bicubic", antialias=True, align_corners=False
    )
    torch.testing.assert_close(stretched[1:].T.reshape(1, 32, 32, 32), expected, rtol=1e-5, atol=1e-5)


def test_fingerprint_is_stable_and_tells_encoders_apart(saved: Callable[..., Path]) -> None:
    def made(name: str = "texcat-tiny", seed: int = 0, **options: Any) -> str:
        return OpenClipEncoder(name, str(saved("texcat-tiny", seed)), "cpu", **options).fingerprint

    assert made() == made()
    assert made().startswith("open_clip-texcat-tiny-naclip-")
    different = [
        made(),
        made(seed=1),
        *(made(variant=variant) for variant in VARIANTS[1:]),
        made(precision="bf16"),
        made(input_size=96),
        made("texcat-tiny-one-head"),  # takes the same weights
        made("texcat-tiny-quickgelu"),
    ]
    assert len(set(different)) == len(different)


@pytest.mark.parametrize("name", REFUSED)
def test_other_towers_are_refused(name: str, saved: Callable[..., Path]) -> None:
    with pytest.raises(EncoderError, match=f"{REFUSED[name][1]}.*needs a plain ViT"):
        OpenClipEncoder(name, str(saved(name)), "cpu")


def test_weights_of_another_model_are_refused(saved: Callable[..., Path]) -> None:
    with pytest.raises(EncoderError, match=r"cannot load .*texcat-tiny-scaled-0\.pt as texcat-tiny"):
        OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny-scaled")), "cpu")


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.pt"
    path.write_text("<html>not found</html>")
    with pytest.raises(EncoderError, match=r"cannot load .*page\.pt"):
        OpenClipEncoder("texcat-tiny", str(path), "cpu")


@pytest.mark.parametrize(
    ("model", "pretrained", "reason"),
    [
        ("texcat-tiny", "no/such/file.pt", "'no/such/file.pt' is neither a tag .*nor a checkpoint file"),
        ("ViT-B-32", "laion1b", "'laion1b' is neither a tag of ViT-B-32 .*laion2b_s34b_b79k"),
        ("ViT-Z-99", "openai", "no model 'ViT-Z-99'"),
    ],
)
def test_unknown_names_are_named(model: str, pretrained: str, reason: str) -> None:
    with pytest.raises(EncoderError, match=reason):
        OpenClipEncoder(model, pretrained, "cpu")


def test_a_tag_that_cannot_be_downloaded_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(EncoderError, match=r"tag 'laion2b_s34b_b79k' .*give the path of a checkpoint file"):
        OpenClipEncoder("ViT-B-32", "laion2b_s34b_b79k", "cpu")


@pytest.mark.parametrize("spec", ["open_clip", "open_clip:", "open_clip:ViT-B-32", "open_clip:/x.pt"])
def test_a_malformed_spec_is_refused(spec: str) -> None:
    with pytest.raises(UnknownEncoderError, match=r"open_clip:MODEL/PRETRAINED"):
        load_encoder(spec, "cpu")


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("varient=naclip", "options variant, size, precision once"),
        ("size=64,size=96", "options variant, size, precision once"),
        ("size=big", "size 'big'"),
        ("size=-64", "size '-64'"),
    ],
)
def test_options_of_a_spec_that_are_wrong_are_named(
    written: str, reason: str, saved: Callable[..., Path]
) -> None:
    with pytest.raises(UnknownEncoderError, match=reason):
        load_encoder(f"open_clip:texcat-tiny/{saved('texcat-tiny')},{written}", "cpu")


def test_a_spec_with_options_names_one_encoder(saved: Callable[..., Path]) -> None:
    plain = f"open_clip:texcat-tiny/{saved('texcat-tiny')}"
    encoder = load_encoder(f"{plain},precision=bf16,size=96,variant=clearclip", "cpu")
    assert encoder.spec == f"{plain},variant=clearclip,size=96,precision=bf16"
    again = OpenClipEncoder.from_spec(encoder.spec, "cpu")
    assert (again.spec, again.fingerprint, again.input_size) == (encoder.spec, encoder.fingerprint, 96)
    assert load_encoder(f"{plain},variant=naclip,precision=fp32", "cpu").spec == plain


def test_options_that_cannot_be_used_are_named(saved: Callable[..., Path]) -> None:
    path = str(saved("texcat-tiny"))
    with pytest.raises(UsageError, match=r"'densest'.*naclip, clearclip, maskclip, vanilla"):
        OpenClipEncoder("texcat-tiny", path, "cpu", variant="densest")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"'fp8'.*fp32, bf16"):
        OpenClipEncoder("texcat-tiny", path, "cpu", precision="fp8")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"70 is no multiple .* 16"):
        OpenClipEncoder("texcat-tiny", path, "cpu", input_size=70)
    with pytest.raises(UsageError, match=r"0 is not positive"):
        OpenClipEncoder("texcat-tiny", path, "cpu", input_size=0)


def test_pixels_are_normalised_as_the_weights_were_trained() -> None:
    """A file does not say how: SigLIP's tags agree on one way, CLIP's do not."""
    clip = (open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD)
    half = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert pixel_statistics("ViT-B-16-SigLIP", {}) == half
    assert pixel_statistics("ViT-L-14", {}) == clip
    assert pixel_statistics("ViT-L-14", open_clip.get_pretrained_cfg("ViT-L-14", "openai")) == clip
    assert pixel_statistics("texcat-tiny", {}) == clip


def test_images_of_another_size_or_type_are_refused(saved: Callable[..., Path]) -> None:
    encoder = OpenClipEncoder("texcat-tiny", str(saved("texcat-tiny")), "cpu")
    for wrong in (images(1).float(), images(1)[0], images(1)[..., :32]):
        with pytest.raises(UsageError, match=r"uint8 \[B, 3, 64, 64\]"):
            encoder.patches(wrong)
