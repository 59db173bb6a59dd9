"""What the import rules cannot say: what an import loads, what a package offers, what is installed."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("catalogue", "indexer", "retrieval", "cli")
NOT_IMPORTED = {
    *("aiohttp", "requests"),  # fsspec imports them for URLs of HTTP
    "scikit-image",  # the demo uses the photos that come with it
    "psycopg",  # SQLAlchemy imports it when the URL of a registry asks for it
    "textblob",  # its lexicon is read
}
BROUGHT = {"triton"}
"""By torch, where it is of use: with CUDA."""

OPTIONAL = ("heif", "postgres", "ray", "remote", "vlm")
HEAVY = ("torch", "torchvision", "timm", "open_clip", "transformers", "sentence_transformers", "skimage")

EXPORTED: dict[str, list[str]] = {
    "texcat.catalogue": [
        "BalancerError",
        "Box",
        "CHANNELS",
        "Catalogue",
        "CatalogueError",
        "CatalogueExistsError",
        "CatalogueLockedError",
        "CatalogueMissingError",
        "Channel",
        "ChannelNotHeldError",
        "ChannelSchema",
        "EncoderError",
        "EncoderNeededError",
        "Exemplar",
        "FingerprintMismatchError",
        "FormatVersionError",
        "GRID",
        "Group",
        "ImageKey",
        "ImageReadError",
        "IndexReport",
        "Interest",
        "InvalidPhraseError",
        "Kind",
        "ModelError",
        "PRESETS",
        "Planes",
        "ReadOnlyError",
        "RecordCorruptError",
        "RecordMissingError",
        "RegistryError",
        "Skipped",
        "StoreError",
        "StoreFullError",
        "TexcatError",
        "TextureRecord",
        "UnknownChannelError",
        "UnknownEncoderError",
        "UnknownInterestError",
        "UnrelatedError",
        "UsageError",
    ],
    "texcat.indexer": ["Progress", "index_corpus", "interest_graph", "learn_interest"],
    "texcat.retrieval": [
        "ALLOCATORS",
        "Allocation",
        "Allocator",
        "Lookup",
        "Match",
        "Matcher",
        "Matches",
        "Retriever",
        "Tier",
        "Timings",
        "TopKAllocator",
        "relevance",
    ],
}
"""The public surface, sorted. A change here is a change for users: it wants a line in CHANGELOG.md."""


@pytest.mark.parametrize(
    "module",
    ["texcat.catalogue", "texcat.indexer", "texcat.indexer.encoders", "texcat.retrieval", "texcat.cli.main"],
)
def test_an_import_loads_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize("package", EXPORTED)
def test_exported_names_are_frozen(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(module.__all__) == EXPORTED[package]


@pytest.mark.parametrize("package", EXPORTED)
def test_exported_names_exist_and_are_documented(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if not getattr(module, name).__doc__] == []


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_is_installed() -> None:
    folders = {file.parent for package in PACKAGES for file in (ROOT / package).rglob("*.py")}
    expected = {".".join(("texcat", *folder.relative_to(ROOT).parts)) for folder in folders}
    assert set(project()["tool"]["setuptools"]["packages"]) == expected


def imported_libraries() -> Iterator[str]:
    """Top-level names of what the packages import from others, on demand or for types included."""
    for file in (file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                yield node.module.partition(".")[0]


def canonical(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_dependencies_are_what_is_imported() -> None:
    extras = project()["project"]["optional-dependencies"]
    declared = {
        canonical(requirement)
        for requirements in (project()["project"]["dependencies"], *(extras[name] for name in OPTIONAL))
        for requirement in requirements
    }
    libraries = set(imported_libraries()) - sys.stdlib_module_names - {"texcat"}
    distributions = packages_distributions()
    imported = {canonical(distributions[library][0]) for library in libraries}
    assert declared == imported - BROUGHT | NOT_IMPORTED


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_no_package_owns_the_namespace() -> None:
    assert importlib.import_module("texcat").__file__ is None
