from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from PIL import Image

from .conftest import Texcat


class References(HTMLParser):
    """What a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]


def test_the_demo_writes_pictures_and_a_page_and_runs_again(texcat: Texcat, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "demo"
    first = texcat("demo", "--out", folder, "--json")
    assert first.code == 0
    told = first.json
    assert set(told) == {"page", "overview", "catalogue", "indexed", "unchanged", "seconds", "answers"}
    assert (told["indexed"], told["unchanged"]) == (11, 0)
    assert len(told["answers"]) == 5
    for answer in told["answers"]:
        assert set(answer) == {
            "photo", "question", "matches", "tier", "confidence", "own_share", "times_us", "kept", "picture",
        }  # fmt: skip
        assert answer["kept"] == 200
        with Image.open(answer["picture"]) as picture:
            picture.load()
    assert [answer["tier"] for answer in told["answers"]] == [*["stored"] * 4, "coded"]
    with Image.open(told["overview"]) as overview:
        assert overview.width == 1200

    page = Path(told["page"]).read_text(encoding="utf-8")
    references = References()
    references.feed(page)
    assert len(references.found) == 5
    assert all((folder / unquote(reference)).is_file() for reference in references.found)
    assert "url(" not in page
    assert "@import" not in page

    again = texcat("demo", "--out", folder)
    assert again.code == 0
    assert "0 indexed, 11 unchanged" in again.out
    assert "What is on the shelves?" in again.out
    assert again.err == ""


def test_a_folder_that_cannot_be_made(texcat: Texcat, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = texcat("demo", "--out", tmp_path / "file" / "demo")
    assert result.code == 2
    assert "cannot write" in result.err
