"""The documents are true: their commands run, in order, and their links lead somewhere.

A document runs in a folder that holds ``photos/`` with pictures from scikit-image, with a home of its own and
without network. Only the cache is that of all tests: what it keeps of the vocabularies takes a minute.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import skimage

from .run_document import blocks, commands

ROOT = Path(__file__).parents[1]
RUNNER = Path(__file__).with_name("run_document.py")
RUN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
READ = [*RUN, ROOT / "CHANGELOG.md", *sorted(ROOT.glob("design/*.md"))]
PHOTOS = ("astronaut.png", "chelsea.png", "coffee.png", "horse.png", "motorcycle_left.png", "rocket.jpg")
LINK = re.compile(r"\]\((?P<target>[^)\s#]+)|(?:src|href)=\"(?P<html>[^\"#]+)")


def name(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def run(document: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    home = folder / "home"
    work = folder / "work"
    home.mkdir()
    work.mkdir()
    nowhere = "http://127.0.0.1:9"  # the discard port: whatever asks for the network is refused at once
    environment = {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "LANG": "C.UTF-8",
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "HF_HUB_OFFLINE": "1",
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
    }
    if threads := os.environ.get("OMP_NUM_THREADS"):
        environment["OMP_NUM_THREADS"] = threads
    photos = work / "photos"
    photos.mkdir()
    for photo in PHOTOS:
        shutil.copy(Path(skimage.__file__).parent / "data" / photo, photos)
    return subprocess.run(
        [sys.executable, RUNNER, document],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(600)  # README.md starts texcat 28 times: 4 minutes alone
@pytest.mark.parametrize("document", RUN, ids=name)
def test_every_block_runs(document: Path, tmp_path: Path) -> None:
    done = run(document, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("document", READ, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [link["target"] or link["html"] for link in LINK.finditer(text)]
    files = [target for target in targets if not target.startswith(("https://", "http://", "mailto:"))]
    assert [target for target in files if not (document.parent / target).exists()] == []


def test_the_list_of_suggestions_is_that_of_the_last_run() -> None:
    def rows(document: Path) -> list[str]:
        lines = document.read_text(encoding="utf-8").splitlines()
        head = next(
            i for i, line in enumerate(lines) if "you might also like" in line and line.startswith("|")
        )
        return [line for line in lines[head:] if line.startswith("|")]

    last = max((ROOT / "benchmarks" / "results").glob("*-suggesting.md"))
    listed = rows(last)
    assert len(listed) > 10
    assert rows(ROOT / "README.md")[: len(listed)] == listed


def written(folder: Path, text: str) -> Path:
    document = folder / "document.md"
    document.write_text(text, encoding="utf-8")
    return document


def test_blocks_share_one_session(tmp_path: Path) -> None:
    document = written(
        tmp_path,
        """
```sh
mkdir inner
cd inner
export COLOUR='deep
blue'
```
```python
import os
from pathlib import Path
assert Path.cwd().name == "inner"
colour = os.environ["COLOUR"]
```
Some words.
```python
Path("seen").write_text(colour)
```
```console
$ printf '%s' "$COLOUR" | \\
>   cmp - seen
this is output, and no command
$ touch done
```
""",
    )
    done = run(document, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "work" / "inner" / "done").exists()


@pytest.mark.parametrize(
    ("language", "failing"),
    [("sh", "false\ntrue"), ("sh", "false | true"), ("console", "$ false"), ("python", "1 / 0")],
    ids=["command", "pipe", "console", "python"],
)
def test_a_block_that_fails_is_named_and_stops_the_run(language: str, failing: str, tmp_path: Path) -> None:
    document = written(tmp_path, f"Words.\n\n```{language}\n{failing}\n```\n\n```sh\ntouch after\n```\n")
    done = run(document, tmp_path)
    assert done.returncode != 0
    assert f"{document}:4: this" in done.stderr
    assert not (tmp_path / "work" / "after").exists()


def test_a_traceback_counts_lines_as_the_document_does(tmp_path: Path) -> None:
    document = written(tmp_path, "Words.\n\n```python\nx = 1\nx / 0\n```\n")
    assert f'File "{document}", line 5' in run(document, tmp_path).stderr


def test_a_block_marked_so_is_listed_and_not_run(tmp_path: Path) -> None:
    document = written(
        tmp_path, "<!-- not run: needs the network -->\n\n```sh\ntouch one\n```\n\n```sh\ntouch two\n```\n"
    )
    done = run(document, tmp_path)
    assert done.stdout == f"{document}:4: not run: needs the network\n"
    assert not (tmp_path / "work" / "one").exists()
    assert (tmp_path / "work" / "two").exists()


def test_a_mark_without_a_reason_does_not_count(tmp_path: Path) -> None:
    run(written(tmp_path, "<!-- not run:  -->\n```sh\ntouch ran\n```\n"), tmp_path)
    assert (tmp_path / "work" / "ran").exists()


def test_the_reader_has_photos_and_a_home_of_their_own(tmp_path: Path) -> None:
    document = written(tmp_path, '```sh\ntest -s photos/coffee.png\ntouch "$HOME/mine"\n```\n')
    assert run(document, tmp_path).returncode == 0
    assert (tmp_path / "home" / "mine").exists()


def test_blocks_of_other_languages_and_indented_blocks() -> None:
    text = "```toml\n```sh\n```\n\n1. Do\n\n   ```sh\n   a\n     b\n   ```\n\n````sh\n```\n````\n"
    assert [(block.line, block.code) for block in blocks(text)] == [(8, "a\n  b"), (13, "```")]


def test_a_block_that_is_never_closed_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 2: this block has no closing ```"):
        list(blocks("Words.\n```sh\ntrue\n"))


def test_commands_of_a_console() -> None:
    assert commands("$ one \\\n>   two\noutput > file\n$ three") == "one \\\n  two\nthree"
