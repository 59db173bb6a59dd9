"""A catalogue: one folder that holds settings, registry and textures, and the rules between them."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

from blake3 import blake3

from .channels import ChannelSchema, Group
from .codes import Codebook
from .errors import (
    CatalogueError,
    CatalogueExistsError,
    CatalogueLockedError,
    FingerprintMismatchError,
    ImageReadError,
    ReadOnlyError,
    UsageError,
)
from .filesystem import require_local
from .format1 import upgrade_shards
from .registry import Registry, sqlite_url
from .settings import (
    DEFAULT_HALF_LIFE_DAYS,
    FILE_NAME,
    FORMAT_VERSION,
    Settings,
    disk_errors,
    read_settings,
    replacing,
    sync_folder,
    write_settings,
)
from .shards import LmdbTextureStore
from .types import Exemplar, ImageKey, Interest
from .weights import check_half_life

REGISTRY_NAME = "registry.sqlite"
SHARDS_NAME = "shards"
CODEBOOK_NAME = "codebook"
LOCK_NAME = "writer.lock"
WANTED_NAME = "writer.wanted"
WAIT_SECONDS = 30.0
"""How long a writer waits for one that gives way: it may be in the middle of a batch, on a busy machine."""

_CHUNK = 1_000
"""Images whose records are deleted in one transaction."""

DEFAULT_SHARDS = 4
MAX_SHARDS = 1024

Mode = Literal["r", "w"]


class Catalogue:
    """An open catalogue. Use as a context manager, or call `close`.

    Attributes:
        path: its folder.
        settings: content of its `catalogue.toml`.
        registry: interests, files and vectors.
        store: textures.
        writable: whether it was opened to write.
        revision: grows with each change of the interests, or of their distributions, made through this
            object.
    """

    def __init__(self, path: Path, mode: Mode, allow_network: bool = False, gives_way: bool = False) -> None:
        self.path = path
        self.writable = mode == "w"
        self.revision = 0
        self._before_close = ExitStack()
        self.settings = read_settings(path)
        self._codebook: Codebook | None = None
        if self.writable and not allow_network:
            require_local(path)
        self._lock = _lock_writer(path, gives_way) if self.writable else None
        try:
            self._upgrade()
            url = self.settings.database or sqlite_url(path / REGISTRY_NAME)
            self.registry = Registry.open(url, read_only=not self.writable)
            self.store = self._open_store(read_only=not self.writable)
        except BaseException:
            self._unlock()
            raise

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        encoder: str = "builtin",
        groups: Sequence[str] = tuple(Group),
        shards: int = DEFAULT_SHARDS,
        database: str = "",
        observe: bool = True,
        half_life_days: float = DEFAULT_HALF_LIFE_DAYS,
        allow_network: bool = False,
    ) -> Self:
        """Make a catalogue in a new or empty folder, and open it to write.

        Args:
            path: the folder. It appears whole, or not at all.
            encoder: ``builtin`` or ``open_clip:MODEL/PRETRAINED``; loaded when the first image is indexed.
            groups: channel groups to hold. The interest group always is.
            shards: LMDB files to spread images over.
            database: SQLAlchemy URL of an empty database; SQLite in the folder when empty.
            observe: whether look-ups record what is asked.
            half_life_days: what was asked so many days ago counts half for the weight of an interest.
            allow_network: as for `open`.

        Raises:
            CatalogueExistsError: the folder has something in it.
            CatalogueError: it cannot be made, or lies on a network file system.
            UnknownChannelError: a group is not known.
            UsageError: `shards` or `half_life_days` is out of range.
        """
        folder = Path(path).absolute()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise CatalogueExistsError(folder, _what_is_at(folder))
        if not 1 <= shards <= MAX_SHARDS:
            raise UsageError(f"shards must be from 1 to {MAX_SHARDS}, got {shards}")
        check_half_life(half_life_days)
        chosen = ChannelSchema.of_groups((*groups, Group.INTEREST)).groups
        if not allow_network:
            require_local(folder)
        settings = Settings(
            encoder,
            tuple(str(group) for group in chosen),
            shards,
            database,
            observe=observe,
            half_life_days=float(half_life_days),
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = folder.with_name(f".{folder.name}.{os.urandom(6).hex()}")
        try:
            draft.mkdir()
            Registry.create(database or sqlite_url(draft / REGISTRY_NAME)).close()
            LmdbTextureStore(draft / SHARDS_NAME, shards=shards, fingerprint="").close()
            write_settings(draft, settings)
            draft.rename(folder)
        except OSError as error:
            raise CatalogueError(f"cannot make a catalogue at {folder}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync_folder(folder.parent)
        return cls(folder, "w", allow_network)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        mode: Mode = "r",
        *,
        allow_network: bool = False,
        gives_way: bool = False,
    ) -> Self:
        """Open the catalogue in folder `path`: to read (``r``), or to write and read (``w``).

        Args:
            path: the folder.
            mode: ``r`` or ``w``.
            allow_network: write though `path` lies on a network file system. Two hosts would damage it.
            gives_way: write as one who can wait: closes soon after `is_wanted` says that others want to
                write. They wait for that, up to `WAIT_SECONDS`, instead of being refused.

        Raises:
            CatalogueMissingError: there is none.
            CatalogueLockedError: ``w``, and another process writes to it; the error says which. With
                `gives_way`, also while another waits to write.
            ReadOnlyError: ``w``, and its folder cannot be written.
            FormatVersionError: another version of texcat made it.
            CatalogueError: ``w``, and it lies on a network file system.
        """
        return cls(Path(path).absolute(), mode, allow_network, gives_way)

    @property
    def schema(self) -> ChannelSchema:
        """Every channel that the catalogue holds, in the order of a full texture."""
        return self.settings.schema

    def add_interest(
        self,
        phrase: str,
        exemplars: Iterable[Exemplar | str | os.PathLike[str]] = (),
        weight: float = 1.0,
        *,
        with_words: bool = False,
    ) -> Interest:
        """Add an interest, or give the one of this phrase a new weight. Its maps are made by the next pass.

        One that was archived is an interest like others again.

        Args:
            phrase: what it is called, and what questions are compared with.
            exemplars: images that show it, whole or in a box, in place of words. Their files are read here
                for their keys, and decoded by the next pass; `texcat.indexer.learn_interest` does so at once.
                Other exemplars than it had take the place of those, and it loses its maps; none leave
                those it has.
            weight: part in a blend, beside other interests; 0 takes no part.
            with_words: the words of the phrase count too, half and half with the exemplars.

        Raises:
            InvalidPhraseError: the phrase is empty, too long, or holds control characters.
            UsageError: the weight is negative or not finite, or there are no exemplars to stand beside words.
            ImageReadError: the file of an exemplar cannot be read. Nothing is added.
        """
        self.require_writable("add an interest")
        identified = [_identified(exemplar) for exemplar in exemplars]
        if with_words and not identified:
            raise UsageError(f"interest {phrase!r} has no exemplars for its words to stand beside; give some")
        before = self.registry.find_interest(phrase)
        self.revision += 1
        added = self.registry.add_interest(phrase, weight=weight, exemplars=identified, with_words=with_words)
        if before is not None and before.id != added.id:
            # Registry first, as in `remove_interest`.
            self.store.drop_interest(before.id)
        return added

    def remove_interest(self, phrase: str) -> Interest:
        """Remove an interest and all its maps.

        Raises:
            UnknownInterestError: no interest has this phrase.
        """
        self.require_writable("remove an interest")
        # Registry first: if this is interrupted, maps stay that nothing refers to. Ids are never used again.
        self.revision += 1
        interest = self.registry.remove_interest(phrase)
        self.store.drop_interest(interest.id)
        return interest

    def pin_interest(self, phrase: str, pinned: bool = True) -> Interest:
        """Keep an interest from being pruned, or no more. One that is pinned is archived no more.

        Raises:
            UnknownInterestError: no interest has this phrase.
        """
        self.require_writable("pin an interest")
        self.revision += 1
        return self.registry.pin_interest(phrase, pinned)

    def archive_interest(self, phrase: str, at: float) -> Interest:
        """Give up the maps of an interest, and keep all else: exemplars, weight, vectors, history.

        Until it is restored, no pass makes maps of it, and look-ups take it from codes.

        Args:
            phrase: of the interest.
            at: now, in seconds since 1970.

        Raises:
            UnknownInterestError: no interest has this phrase.
        """
        self.require_writable("archive an interest")
        # Registry first: if this is interrupted, maps stay that are counted, and go when it is pruned again.
        self.revision += 1
        interest = self.registry.archive_interest(phrase, at)
        self.store.drop_interest(interest.id)
        return interest

    def restore_interest(self, phrase: str) -> Interest:
        """Let an archived interest have maps again. The next pass, or an expansion, makes them.

        Raises:
            UnknownInterestError: no interest has this phrase.
        """
        self.require_writable("restore an interest")
        self.revision += 1
        return self.registry.archive_interest(phrase, None)

    def interests(self) -> list[Interest]:
        """Every interest, archived ones too, in the order in which they were added."""
        return self.registry.interests()

    def mapped_interests(self) -> list[Interest]:
        """The interests that images are to have maps of: those that are not archived."""
        return [interest for interest in self.interests() if interest.archived is None]

    def compact(self, on_progress: Callable[[int, int], None] = lambda done, total: None) -> int:
        """Rewrite shards and registry without their free pages; how many bytes that returned to the disk.

        Other processes may go on reading meanwhile. Needs room for a second copy of the largest shard. When
        it is interrupted, each file is as it was, or compacted.

        Args:
            on_progress: called after each shard, with how many are done, of how many.

        Raises:
            ReadOnlyError: the catalogue is open to read.
            StoreFullError: there is no room for the copy.
        """
        self.require_writable("compact")
        return self.store.compact(on_progress) + self.registry.compact()

    def check_encoder(self, fingerprint: str) -> None:
        """Make sure that the records of this catalogue come from the encoder with this fingerprint.

        Raises:
            FingerprintMismatchError: they come from another.
        """
        if self.settings.fingerprint not in ("", fingerprint):
            raise FingerprintMismatchError(f"catalogue {self.path}", self.settings.fingerprint, fingerprint)

    def adopt_encoder(self, fingerprint: str, match_low: float, match_high: float) -> None:
        """Make the encoder with this fingerprint the catalogue's own, before its first record.

        Args:
            fingerprint: of the encoder.
            match_low, match_high: cosines of its text embeddings that stand for confidence 0 and 1.

        Raises:
            FingerprintMismatchError: it has another already.
            ReadOnlyError: the catalogue is open to read.
        """
        self.check_encoder(fingerprint)
        self.require_writable("index the first image")
        self.settings = replace(
            self.settings, fingerprint=fingerprint, match_low=match_low, match_high=match_high
        )
        write_settings(self.path, self.settings)
        self.store.close()
        self.store = self._open_store(read_only=not self.writable)

    def replace_encoder(self, spec: str, fingerprint: str, match_low: float, match_high: float) -> None:
        """Make another encoder the catalogue's own. All textures and codes of the one before go.

        Interests, what was asked, and what is known of files stay. When it is interrupted, some textures are
        gone, and it is to be called again.

        Args:
            spec: of the encoder, as for `create`.
            fingerprint, match_low, match_high: as for `adopt_encoder`.

        Raises:
            ReadOnlyError: the catalogue is open to read.
        """
        self.require_writable("replace the encoder")
        self.revision += 1
        # Records first: those that are left by an interruption are of the encoder that the settings name.
        keys = self.store.keys()
        while chunk := list(islice(keys, _CHUNK)):
            self.store.delete(chunk)
        self._codebook = None
        self.settings = replace(
            self.settings,
            encoder=spec,
            fingerprint=fingerprint,
            match_low=match_low,
            match_high=match_high,
            codebook="",
        )
        write_settings(self.path, self.settings)
        self.store.close()
        self.store = self._open_store(read_only=not self.writable)

    def codebook(self) -> Codebook:
        """The table that codes are made and read with; as `read_codebook`, and kept once it was read."""
        if self._codebook is None:
            self._codebook = self.read_codebook()
        return self._codebook

    def read_codebook(self) -> Codebook:
        """Read the table that codes are made and read with, and make sure that it is the right one.

        Raises:
            CatalogueError: there is none yet, or its file is lost, damaged, or not the one that codes were
                made with. The next indexing pass makes it again, from the encoder.
            FingerprintMismatchError: it is another encoder's.
        """
        path = self.path / CODEBOOK_NAME
        if not self.settings.codebook:
            raise CatalogueError(f"catalogue {self.path} has no codes yet; `texcat index` makes them")
        if not path.exists():
            raise CatalogueError(f"codebook {os.fspath(path)!r} is lost; `texcat index` makes it again")
        found = Codebook.load(path)
        self.check_encoder(found.fingerprint)
        if _digest(path) != self.settings.codebook:
            raise CatalogueError(
                f"codebook {os.fspath(path)!r} is not the one that the codes were made with; put that one "
                "back from a backup, or let `texcat index` make codebook and codes again"
            )
        return found

    def adopt_codebook(self, codebook: Codebook) -> None:
        """Keep the table that codes are made with, before the first of them is.

        Codes that were made with another table, if there are any, are not read any more, and made again.

        Raises:
            FingerprintMismatchError: it is another encoder's.
            ReadOnlyError: the catalogue is open to read.
            StoreFullError, CatalogueError: the disk has no room, or cannot be written.
        """
        self.check_encoder(codebook.fingerprint)
        self.require_writable("keep a codebook")
        path = self.path / CODEBOOK_NAME
        with replacing(path) as draft:
            codebook.save(draft)
        self._codebook = codebook
        digest = _digest(path)
        if self.settings.codebook != digest:
            self.settings = replace(self.settings, codebook=digest)
            write_settings(self.path, self.settings)
            self.store.close()
            self.store = self._open_store(read_only=not self.writable)

    def require_writable(self, action: str) -> None:
        """Refuse `action` unless the catalogue is open to write.

        Raises:
            ReadOnlyError: it is open to read.
        """
        if not self.writable:
            raise ReadOnlyError(self.path, action)

    def before_close(self, action: Callable[[], object]) -> None:
        """Call `action` when this is closed, before any file is let go of; the last one given goes first."""
        self._before_close.callback(action)

    def is_wanted(self) -> bool:
        """Whether another process waits to write, because this one was opened with `gives_way`."""
        return _is_wanted(self.path)

    def close(self) -> None:
        """Let go of every file. May be called more than once."""
        self._before_close.close()
        self.store.close()
        self.registry.close()
        self._unlock()

    def _upgrade(self) -> None:
        """Bring a catalogue of an earlier format to the present one. Goes on where it was interrupted."""
        settings = self.settings
        if settings.format == FORMAT_VERSION:
            return
        if not self.writable:
            raise CatalogueError(
                f"catalogue {self.path} has format {settings.format}; any command that writes to it, such as "
                f"`texcat index`, brings it to format {FORMAT_VERSION}"
            )
        upgrade_shards(self.path / SHARDS_NAME, settings.shards, settings.schema, settings.fingerprint)
        self.settings = replace(settings, format=FORMAT_VERSION)
        write_settings(self.path, self.settings)

    def write_along(self) -> None:
        """Write textures, though open to read, for the process that has the catalogue open to write.

        That process must keep it open: it lets no other in. Of several that write along, LMDB lets one at a
        time write to a shard. The registry stays open to read.
        """
        self.store.close()
        self.store = self._open_store(read_only=False)

    def _open_store(self, read_only: bool) -> LmdbTextureStore:
        return LmdbTextureStore(
            self.path / SHARDS_NAME,
            shards=self.settings.shards,
            fingerprint=self.settings.fingerprint,
            codebook=self.settings.codebook,
            read_only=read_only,
        )

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _identified(exemplar: Exemplar | str | os.PathLike[str]) -> Exemplar:
    """`exemplar` with an absolute path, and with the key of the content that its file has now."""
    given = exemplar if isinstance(exemplar, Exemplar) else Exemplar(os.fspath(exemplar))
    if given.key is not None:
        return given
    path = Path(given.path).absolute()
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise ImageReadError(path, "is not a regular file")
        key = ImageKey.of(path.read_bytes())
    except OSError as error:
        raise ImageReadError(path, f"cannot be opened: {error.strerror}") from error
    except ValueError as error:
        raise ImageReadError(path, f"cannot be opened: {error}") from error
    return Exemplar(str(path), given.box, key)


def _what_is_at(path: Path) -> str:
    if not path.is_dir():
        return "a file"
    return "a catalogue" if (path / FILE_NAME).exists() else "other files"


def _digest(path: Path) -> str:
    return blake3(path.read_bytes()).hexdigest(length=16)


def _lock_writer(folder: Path, gives_way: bool) -> IO[str]:
    """The open lock file of `folder`; the kernel lets go of the lock with it, however the process ends."""
    if gives_way and _is_wanted(folder):
        raise CatalogueLockedError(folder, "another process, which waits for its turn")
    try:
        file = (folder / LOCK_NAME).open("a+", encoding="utf-8")
    except OSError as error:
        raise ReadOnlyError(folder, f"write ({error.strerror})") from error
    try:
        if not _try_lock(file):
            _wait_for_lock(file, folder, patient=not gives_way)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        with disk_errors(folder / LOCK_NAME):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}")
            file.write(f"{_GIVES_WAY}\n" if gives_way else "\n")
            file.flush()
    except BaseException:
        file.close()
        raise
    return file


_GIVES_WAY = ", which gives way"


def _wait_for_lock(file: IO[str], folder: Path, patient: bool) -> None:
    """Lock `file` as soon as a holder that gives way does so; the others are not waited for."""
    until = time.monotonic() + WAIT_SECONDS
    with (folder / WANTED_NAME).open("a", encoding="utf-8") as wanted:
        while not _try_lock(file):
            file.seek(0)
            holder = file.read().strip() or "another process"
            if not patient or not holder.endswith(_GIVES_WAY) or time.monotonic() > until:
                raise CatalogueLockedError(folder, holder)
            fcntl.flock(wanted, fcntl.LOCK_SH)  # until `wanted` is closed, `_is_wanted` says so
            time.sleep(_LOOK_SECONDS)


_LOOK_SECONDS = 0.005


def _is_wanted(folder: Path) -> bool:
    try:
        file = (folder / WANTED_NAME).open("r+", encoding="utf-8")
    except FileNotFoundError:
        return False
    with file:
        return not _try_lock(file)


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
