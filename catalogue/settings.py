"""What a catalogue is told once: `catalogue.toml` in its folder."""

from __future__ import annotations

import os
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import tomlkit

from .channels import ChannelSchema
from .errors import CatalogueError, CatalogueMissingError, FormatVersionError

FILE_NAME = "catalogue.toml"
FORMAT_VERSION = 2
_READ = (1, FORMAT_VERSION)

_TYPES: dict[str, type] = {
    "encoder": str,
    "groups": list,
    "shards": int,
    "database": str,
    "fingerprint": str,
    "match_low": float,
    "match_high": float,
    "format": int,
}


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
        format: version of the folder's layout.
    """

    encoder: str
    groups: tuple[str, ...]
    shards: int
    database: str = ""
    fingerprint: str = ""
    match_low: float = 0.0
    match_high: float = 1.0
    format: int = FORMAT_VERSION

    @property
    def schema(self) -> ChannelSchema:
        """Every channel that the catalogue holds."""
        return ChannelSchema.of_groups(self.groups)


def read_settings(folder: Path) -> Settings:
    """Settings of the catalogue in `folder`.

    Raises:
        CatalogueMissingError: there is no catalogue in `folder`.
        FormatVersionError: a later version of texcat made it.
        CatalogueError: the file cannot be read, or a value is missing or of the wrong type.
    """
    path = folder / FILE_NAME
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CatalogueMissingError(folder) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogueError(f"{path}: cannot be read ({error}); put it back from a copy") from error
    if content.get("format") not in _READ:
        raise FormatVersionError(str(path), content.get("format"), FORMAT_VERSION)
    for name, kind in _TYPES.items():
        if not isinstance(content.get(name), kind):
            raise CatalogueError(f"{path}: {name} must be a {kind.__name__}, got {content.get(name)!r}")
    values = {field.name: content[field.name] for field in fields(Settings)}
    settings = Settings(**{**values, "groups": tuple(values["groups"])})
    if settings.shards < 1:
        raise CatalogueError(f"{path}: shards must be at least 1, got {settings.shards}")
    return settings


def write_settings(folder: Path, settings: Settings) -> None:
    """Put `settings` in place of those in `folder`: whole, or not at all."""
    path = folder / FILE_NAME
    draft = folder / f".{FILE_NAME}.{os.urandom(6).hex()}"
    with draft.open("w", encoding="utf-8") as file:
        tomlkit.dump({**asdict(settings), "groups": list(settings.groups)}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make new names in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
