"""One catalogue of a few photos, made once with the builtin encoder, and a way to run commands on it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import skimage
from PIL import Image
from texcat.catalogue import Catalogue
from texcat.cli.main import main
from texcat.indexer import index_corpus
from texcat.indexer.encoders import DenseEncoder, load_encoder
from texcat.retrieval import Retriever

INTERESTS = ("cat", "cup of coffee", "rocket")
QUESTION = "Where is the cat?"
"""Asked before, and answered by an interest: no encoder is needed for it."""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Texcat = Callable[..., Result]


@pytest.fixture
def texcat(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Texcat:
    """Run a command in this process, as ``texcat ARGUMENTS…``."""
    monkeypatch.delenv("TEXCAT_CATALOGUE", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = ending.value.code
        assert code is None or isinstance(code, int)
        return Result(code or 0, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def encoder() -> DenseEncoder:
    return load_encoder("builtin", "cpu")


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three photos, and a file that is none."""
    folder = tmp_path_factory.mktemp("photos")
    for name in ("chelsea.png", "coffee.png", "rocket.jpg"):
        with Image.open(Path(skimage.__file__).parent / "data" / name) as photo:
            photo.convert("RGB").resize((240, 160)).save(folder / f"{Path(name).stem}.jpg")
    (folder / "broken.jpg").write_text("<html></html>")
    return folder


@pytest.fixture(scope="session")
def indexed_once(tmp_path_factory: pytest.TempPathFactory, photos: Path, encoder: DenseEncoder) -> Path:
    path = tmp_path_factory.mktemp("indexed") / "catalogue"
    with Catalogue.create(path) as catalogue:
        for phrase in INTERESTS:
            catalogue.add_interest(phrase)
        index_corpus(catalogue, [photos], encoder=encoder)
        Retriever(catalogue, encoder=encoder).embedding(QUESTION)
    return path


@pytest.fixture
def indexed(indexed_once: Path, tmp_path: Path) -> Path:
    """Folder of a catalogue of `photos` that the test may change."""
    return Path(shutil.copytree(indexed_once, tmp_path / "indexed"))


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Folder of a catalogue without interests and images."""
    Catalogue.create(tmp_path / "empty").close()
    return tmp_path / "empty"


@contextmanager
def held_open(path: Path) -> Iterator[None]:
    """While another process has the catalogue at `path` open to write."""
    program = (
        "import sys\nfrom texcat.catalogue import Catalogue\n"
        "with Catalogue.open(sys.argv[1], 'w'): print(flush=True); input()"
    )
    command = [sys.executable, "-c", program, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "\n"
        yield
        holder.communicate("\n")
