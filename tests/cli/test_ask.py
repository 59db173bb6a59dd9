from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from transformers import GenerationConfig

from ..retrieval.qwen_models import save
from .conftest import QUESTION, Texcat


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen3_vl")
    save("qwen3_vl", folder)
    GenerationConfig(pad_token_id=104, do_sample=False).save_pretrained(folder)
    return folder


def test_ask_answers_from_fewer_tokens(texcat: Texcat, indexed: Path, photos: Path, model: Path) -> None:
    options = ("--model", model, "--max-new-tokens", 8, "--device", "cpu", "-c", indexed)
    result = texcat("ask", photos / "chelsea.jpg", QUESTION, *options, "--budget", 100, "--json")
    assert result.code == 0, result.err
    told = result.json
    assert told["grid"] == [20, 30]
    assert (told["kept"], len(told["positions"])) == (100, 100)
    assert told["whole_prompt_tokens"] - told["prompt_tokens"] == 500
    assert told["whole_prompt_tokens"] == 600 + 2 + len(QUESTION)
    assert (told["tier"], told["matches"][0]["phrase"]) == ("stored", "cat")

    shown = texcat("ask", photos / "chelsea.jpg", QUESTION, *options, "--budget", 5000)
    assert shown.code == 0
    assert "600 tokens of 600 of the photo, by topk: a prompt of 619 in place of 619" in shown.out
    whole = texcat("ask", photos / "chelsea.jpg", QUESTION, *options, "--budget", 600, "--json").json
    assert shown.out.startswith(whole["answer"])


def test_ask_says_what_is_wrong_before_it_loads_anything(
    texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo = photos / "chelsea.jpg"
    result = texcat("ask", photo, QUESTION, "--model", tmp_path, "--strategy", "best", "-c", indexed)
    assert (result.code, "strategy 'best' is not known; expected one of: topk" in result.err) == (2, True)
    result = texcat("ask", photo, QUESTION, "--model", tmp_path, "-c", indexed)
    assert (result.code, result.err.splitlines()) == (
        1,
        [f"texcat: error: model {tmp_path}: is no folder of a checkpoint: it has no config.json"],
    )
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "texcat.retrieval.realizing")
    result = texcat("ask", photo, QUESTION, "--model", tmp_path, "-c", indexed)
    assert (result.code, "pip install 'texcat[vlm]'" in result.err) == (2, True)


def test_a_damaged_checkpoint_is_told_in_one_line(
    texcat: Texcat, indexed: Path, photos: Path, model: Path, tmp_path: Path
) -> None:
    damaged = shutil.copytree(model, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"nothing")
    result = texcat("ask", photos / "chelsea.jpg", QUESTION, "--model", damaged, "-c", indexed)
    assert result.code == 1
    assert len(result.err.splitlines()) == 1
    assert f"model {damaged}: cannot be loaded" in result.err
