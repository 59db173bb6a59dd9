"""What a catalogue is told once: `catalogue.toml` in its folder."""

from __future__ import annotations

import errno
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import tomlkit

from .channels import ChannelSchema
from .errors import CatalogueError, CatalogueMissingError, FormatVersionError, StoreFullError, UsageError
from .weights import HALF_LIFE, check_half_life

FILE_NAME = "catalogue.toml"
FORMAT_VERSION = 2
_READ = (1, FORMAT_VERSION)
_DAY = 86_400.0
DEFAULT_HALF_LIFE_DAYS = HALF_LIFE / _DAY

_TYPES: dict[str, type] = {
    "encoder": str,
    "groups": list,
    "shards": int,
    "database": str,
    "fingerprint": str,
    "match_low": float,
    "match_high": float,
    "codebook": str,
    "observe": bool,
    "half_life_days": float,
    "format": int,
}


# What catalogues that were made before there was such a thing have in its place.
_LATER: dict[str, Any] = {"codebook": "", "observe": True, "half_life_days": DEFAULT_HALF_LIFE_DAYS}


@dataclass(frozen=True, slots=True)
class Settings:
    """Content of `catalogue.toml`.

    Attributes:
        encoder: specification of the encoder, as `load_encoder` takes it.
        groups: channel groups that are held, in the order of a texture.
        shards: number of LMDB files.
        database: SQLAlchemy URL of the registry; empty for `registry.sqlite` in the folder.
        fingerprint: of the encoder that made the records; empty until the first image is indexed.
        match_low: cosine of question and interest that stands for confidence 0, with this encoder.
        match_high: cosine that stands for confidence 1.
        codebook: digest of the codebook that codes are made with; empty until the first code is made.
        observe: whether look-ups record what is asked, unless they are told otherwise.
        half_life_days: what was asked so many days ago counts half; see `weights`.
        format: version of the folder's layout.
    """

    encoder: str
    groups: tuple[str, ...]
    shards: int
    database: str = ""
    fingerprint: str = ""
    match_low: float = 0.0
    match_high: float = 1.0
    codebook: str = ""
    observe: bool = True
    half_life_days: float = DEFAULT_HALF_LIFE_DAYS
    format: int = FORMAT_VERSION

    @property
    def schema(self) -> ChannelSchema:
        """Every channel that the catalogue holds."""
        return ChannelSchema.of_groups(self.groups)

    @property
    def half_life(self) -> float:
        """`half_life_days` in seconds, as `weights` and `Memory` take it."""
        return self.half_life_days * _DAY


def read_settings(folder: Path) -> Settings:
    """Settings of the catalogue in `folder`.

    Raises:
        CatalogueMissingError: there is no catalogue in `folder`.
        FormatVersionError: a later version of texcat made it.
        CatalogueError: the file cannot be read, or a value is missing or of the wrong type.
    """
    path = folder / FILE_NAME
    try:
        content = _LATER | tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CatalogueMissingError(folder) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogueError(f"{path}: cannot be read ({error}); put it back from a copy") from error
    if content.get("format") not in _READ:
        raise FormatVersionError(str(path), content.get("format"), FORMAT_VERSION)
    for name, kind in _TYPES.items():
        if kind is float and type(content.get(name)) is int:  # a person writes 30, not 30.0
            content[name] = float(content[name])
        if type(content.get(name)) is not kind:
            raise CatalogueError(f"{path}: {name} must be a {kind.__name__}, got {content.get(name)!r}")
    values = {field.name: content[field.name] for field in fields(Settings)}
    settings = Settings(**{**values, "groups": tuple(values["groups"])})
    if settings.shards < 1:
        raise CatalogueError(f"{path}: shards must be at least 1, got {settings.shards}")
    try:
        check_half_life(settings.half_life)
    except UsageError as error:
        raise CatalogueError(f"{path}: half_life_days: {error}") from error
    return settings


def write_settings(folder: Path, settings: Settings) -> None:
    """Put `settings` in place of those in `folder`: whole, or not at all.

    Raises:
        StoreFullError, CatalogueError: as `replacing`.
    """
    with replacing(folder / FILE_NAME) as draft, draft.open("w", encoding="utf-8") as file:
        tomlkit.dump({**asdict(settings), "groups": list(settings.groups)}, file)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to; when that is done, the file takes the place of `path`: whole, or not at all.

    It is on the disk then. What was written is removed when there is an error.

    Raises:
        StoreFullError: the disk has no room.
        CatalogueError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    with disk_errors(path):
        try:
            yield draft
            sync_file(draft)
            draft.replace(path)
            sync_folder(path.parent)
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the disk says, when `path` is written, into our errors.

    Raises:
        StoreFullError: the disk has no room.
        CatalogueError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFullError(path, error.strerror or str(error)) from error
        raise CatalogueError(f"cannot write {os.fspath(path)!r}: {error.strerror or error}") from error


def sync_file(path: Path) -> None:
    """Make the content of the file `path` survive a power cut."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Make new names in `folder` survive a power cut."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
