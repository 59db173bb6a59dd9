from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from .conftest import INTERESTS, Texcat

WORDS = "kitten\nteacup\nsaucer\n\nspacecraft\n  Launch   Pad\nlion\n"


@pytest.fixture
def words(tmp_path: Path) -> Path:
    file = tmp_path / "words.txt"
    file.write_text(WORDS, encoding="utf-8")
    return file


def test_suggest_and_path(texcat: Texcat, indexed: Path, words: Path) -> None:
    told = texcat("suggest", "-n", 4, "--vocabulary", words, "-c", indexed, "--json")
    assert (told.code, told.err) == (0, "")
    suggestions = told.json["suggestions"]
    phrases = [each["phrase"] for each in suggestions]
    assert len(phrases) == 4
    assert {"kitten", "teacup", "spacecraft"} <= set(phrases)
    assert [each["expected"] for each in suggestions] == sorted(
        (s["expected"] for s in suggestions), reverse=True
    )
    kitten = suggestions[phrases.index("kitten")]
    assert (kitten["standing"], kitten["asked"]) == ("candidate", 0.0)
    assert kitten["reasons"][0].items() >= {"start": "cat", "end": "kitten", "kind": "meaning"}.items()

    shown = texcat("suggest", "-c", indexed).out  # what was taken up is kept
    assert "you might also like" in shown
    assert "cat (meaning 0." in shown
    assert f'Next: texcat expand "{phrases[0]}"' in shown

    steps = texcat("path", "  CAT ", "lion", "-c", indexed, "--json").json["steps"]
    assert steps[0]["start"] == "cat"
    assert steps[-1]["end"] == "lion"
    assert all(step["kind"] == "meaning" and 0 < step["strength"] <= 1 for step in steps)
    walked = texcat("path", "cat", "lion", "-c", indexed).out
    assert "an interest" in walked
    assert "a candidate" in walked

    apart = texcat("path", "cat", "launch pad", "-c", indexed)
    assert apart.code == 1
    assert "nothing leads from 'cat' to 'launch pad'" in apart.err
    unknown = texcat("path", "cat", "zeppelin", "-c", indexed)
    assert unknown.code == 2
    assert "the graph holds no phrase 'zeppelin'" in unknown.err
    assert texcat("path", "cat", "cat", "-c", indexed, "--json").json["steps"] == []


def test_nothing_to_suggest(texcat: Texcat, empty: Path) -> None:
    assert texcat("suggest", "-c", empty, "--json").json == {"suggestions": []}
    assert "Nothing to suggest yet: texcat index FOLDER" in texcat("suggest", "-c", empty).out


@pytest.mark.parametrize("content", [None, b"\n \n", b"\xff\xfe"], ids=["missing", "blank", "not UTF-8"])
def test_a_file_of_no_phrases(texcat: Texcat, empty: Path, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "words.txt"
    if content is not None:
        file.write_bytes(content)
    result = texcat("suggest", "--vocabulary", file, "-c", empty)
    assert result.code == 2
    assert "words.txt" in result.err


def test_fingerprint(texcat: Texcat, indexed: Path, words: Path, tmp_path: Path) -> None:
    texcat("suggest", "--vocabulary", words, "-c", indexed)
    told = texcat("fingerprint", "-c", indexed, "--out", tmp_path / "mine.png", "--json")
    assert (told.code, told.err) == (0, "")
    assert (told.json["images"], told.json["questions"]) == (3, 0)
    assert {each["phrase"] for each in told.json["interests"]} == set(INTERESTS)
    assert set(told.json["drawn"]) >= set(INTERESTS)
    with Image.open(tmp_path / "mine.png") as picture:
        assert picture.format == "PNG"
    shown = texcat("fingerprint", "--out", tmp_path / "mine.html", "--title", "<Mine>", "-c", indexed).out
    assert "you might also like" in shown
    assert f"Wrote {tmp_path / 'mine.html'}" in shown
    assert "<h1>&lt;Mine&gt;</h1>" in (tmp_path / "mine.html").read_text(encoding="utf-8")
    missing = texcat("fingerprint", "--out", tmp_path / "no" / "mine.html", "-c", indexed)
    assert missing.code == 2
    assert "cannot write" in missing.err


def test_fingerprint_of_an_empty_catalogue(texcat: Texcat, empty: Path) -> None:
    assert "No interests yet" in texcat("fingerprint", "-c", empty).out
