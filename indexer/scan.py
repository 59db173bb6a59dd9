"""Finding the image files of a corpus on the disk, and telling what a rescan must open.

Nothing here opens a file: names, sizes and times are enough to tell a file that is new or has changed
from one that is known.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..catalogue.types import Skipped
from .places import absolute, split_member

if TYPE_CHECKING:
    from ..catalogue.registry import KnownArchive, KnownFile

IMAGE_SUFFIXES = frozenset(
    b".avif .bmp .dib .gif .heic .heif .j2k .jfif .jp2 .jpe .jpeg .jpg .jpx .mpo .pbm .pfm .pgm .png .pnm "
    b".ppm .tif .tiff .webp".split()
)
"""Suffixes, in lower case, of the files that are taken from a folder. Their content is told by its bytes."""

CATALOGUE_FILE = b"catalogue.toml"
"""The file that marks a folder as a catalogue, whose content is no corpus."""

NOT_THERE = "does not exist: is its disk not mounted?"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file that was found.

    Attributes:
        path: absolute, as the file system spells it; links are not resolved.
        size: in bytes.
        mtime_ns: time of the last change, in nanoseconds since 1970.
        device: number of the file system that holds the file (`st_dev`).
        span: where it lies in its archive, first byte and number of bytes, of a member whose archive was
            listed.

    Of a member and of a URL, the others are as `KnownFile` has them.
    """

    path: bytes
    size: int
    mtime_ns: int
    device: int
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What became of each file that was found, and of each known file below the scanned folders.

    A file is in exactly one of `new`, `unchanged`, `failed`, `missing` and `unavailable`.

    Attributes:
        new: files to open: unknown, or with another size or time than when they were read.
        unchanged: files that are in the catalogue as they are.
        failed: unchanged files that could not be read the last time.
        renewed: rows of `unchanged` and `failed`, as they should be recorded now, that had been missing or
            whose disk has another number than before.
        missing: files that are gone for certain.
        unavailable: files that were not found, but may be on a disk that is not mounted, or in a folder
            that could not be read.
        skipped: paths that could not be looked at, and why.
        archives: archives that were listed, as they should be recorded now.
    """

    new: tuple[FoundFile, ...] = ()
    unchanged: tuple[KnownFile, ...] = ()
    failed: tuple[KnownFile, ...] = ()
    renewed: tuple[KnownFile, ...] = ()
    missing: tuple[KnownFile, ...] = ()
    unavailable: tuple[KnownFile, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    archives: tuple[KnownArchive, ...] = ()


def walk(
    paths: Iterable[str | bytes | os.PathLike[str]], files: Iterable[bytes] = ()
) -> Iterator[FoundFile | Skipped]:
    """Find the image files at and below `paths`, and `files`, in an order that depends on names alone.

    A path to a file is taken whatever its suffix, a path to a folder is searched to its depths for files
    with one of `IMAGE_SUFFIXES`. Within a folder, files come first, then sub-folders, each by name. Links to
    files and folders are followed. Each folder is visited once, however many ways lead to it, so that loops
    end: silently, and by its real path where there is one, because folders behind links come last. Hidden
    files and folders (with a leading dot) and catalogues are left out, unless they are given as a path.
    `files`, absolute, are taken like paths to files; where one of them is a folder, it is not searched.

    What cannot be looked at is given as `Skipped`, and the walk goes on.
    """
    folders = dict.fromkeys(absolute(path) for path in paths)
    given = dict.fromkeys((*folders, *files))
    files_given = frozenset(given)
    seen: set[tuple[int, int]] = set()
    linked: list[bytes] = []
    for path in given:
        try:
            status = os.stat(path)
        except OSError as error:
            yield _skipped(path, NOT_THERE if _is_absent(error) else f"cannot be looked at: {error.strerror}")
            continue
        if stat.S_ISDIR(status.st_mode) and path in folders:
            if os.path.exists(os.path.join(path, CATALOGUE_FILE)):
                yield _skipped(path, "is a catalogue, not a folder of images")
                continue
            yield from _walk_tree(path, files_given, seen, linked)
        else:
            yield _found(path, status)
    for path in linked:  # grows as links are found behind links
        yield from _walk_tree(path, files_given, seen, linked)


def plan_scan(
    paths: Iterable[str | bytes | os.PathLike[str]],
    known: Mapping[bytes, KnownFile],
    files: Iterable[bytes] = (),
) -> ScanPlan:
    """Compare what `walk(paths, files)` finds with the `known` files, keyed by path. Opens no file.

    A file is unchanged when its size and its time of change are those recorded. Known files outside `paths`
    are not looked at, and are in no part of the plan. Members of archives are not, either. A known file that
    the walk does not come upon (its suffix is not an image's, or its folder was visited by another way) but
    that exists counts as found.

    A known file that does not exist is missing only when the nearest folder above it that does exist could
    be listed and lies on the file's own device: otherwise its disk may just not be mounted, and the file is
    unavailable. Device numbers can change when a machine starts, so what a recorded number stands for now is
    read off the files that were found: when files recorded on device d lie on device e, then e is d; without
    such files d stands for itself, unless e has been seen to stand for another. Two cases cannot be told
    apart from deletion: another disk that got the number of the first, and a bind mount of the same disk.
    """
    roots = dict.fromkeys(absolute(path) for path in paths)
    given = dict.fromkeys(files)
    walked = list(walk(roots, given))
    found = {item.path: item for item in walked if isinstance(item, FoundFile)}
    skipped = {os.fsencode(item.path): item for item in walked if isinstance(item, Skipped)}

    # Of a folder that is not there nothing is known; what is known of a file follows from its folder.
    above = _Above(path for path, item in skipped.items() if item.reason != NOT_THERE or path in roots)
    absent: list[KnownFile] = []
    for path, file in known.items():
        if path in found or not (path in given or _is_below(path, roots)):
            continue
        overlooked = above.find(path)
        if overlooked is None:
            absent.append(file)
        else:
            found[path] = overlooked

    new, unchanged, failed = compare(found.values(), known)
    devices: defaultdict[int, set[int]] = defaultdict(set)
    for file in (*unchanged, *failed):
        devices[file.device].add(found[file.path].device)
    missing: list[KnownFile] = []
    unavailable: list[KnownFile] = []
    for file in absent:
        device = above.device(file.path)
        gone = device is not None and _stands_for(device, file.device, devices)
        (missing if gone else unavailable).append(file)
        if gone:
            skipped.pop(file.path, None)
    return ScanPlan(
        new=tuple(new),
        unchanged=tuple(unchanged),
        failed=tuple(failed),
        renewed=renewed((*unchanged, *failed), found),
        missing=tuple(missing),
        unavailable=tuple(unavailable),
        skipped=tuple(skipped.values()),
    )


def renewed(files: Iterable[KnownFile], found: Mapping[bytes, FoundFile]) -> tuple[KnownFile, ...]:
    """Rows of `files`, all of which were `found`, that had been missing or lie on another device now."""
    return tuple(
        replace(file, device=found[file.path].device, missing_since=None)
        for file in files
        if file.missing_since is not None or file.device != found[file.path].device
    )


def file_type(mode: int) -> str:
    """What a `st_mode` stands for, with its article: ``a folder``, ``a named pipe``, ..."""
    kinds = {
        stat.S_IFREG: "a regular file",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "a special file")


class _Above:
    """What is known of the folders above files that were not found; each folder is looked at once.

    `unlisted` are the paths that could not be looked at.
    """

    def __init__(self, unlisted: Iterable[bytes]) -> None:
        self._unlisted = set(unlisted)
        self._devices: dict[bytes, int | None] = {}

    def device(self, path: bytes) -> int | None:
        """Device of the nearest folder above `path` that exists; None when it is not known for certain."""
        if path in self._unlisted:
            return None
        folder = os.path.dirname(path)
        if folder not in self._devices:
            self._devices[folder] = self._look(folder)
        return self._devices[folder]

    def find(self, path: bytes) -> FoundFile | None:
        """The regular file at `path`, where there is one that can be looked at."""
        if self.device(path) is None:
            return None
        try:
            status = os.stat(path)
        except OSError as error:
            if not _is_absent(error):
                self._unlisted.add(path)
            return None
        item = _found(path, status)
        return item if isinstance(item, FoundFile) else None

    def _look(self, folder: bytes) -> int | None:
        if folder in self._unlisted:
            return None
        try:
            status = os.stat(folder)
        except OSError as error:
            return self.device(folder) if _is_absent(error) else None
        return status.st_dev if stat.S_ISDIR(status.st_mode) else self.device(folder)


def _is_below(path: bytes, roots: Collection[bytes]) -> bool:
    """Whether `path` is one of `roots`, or a file somewhere below one."""
    if split_member(path) is not None:
        return False
    while path not in roots:
        folder = os.path.dirname(path)
        if folder == path:
            return False
        path = folder
    return True


def _stands_for(device: int, recorded: int, devices: Mapping[int, set[int]]) -> bool:
    """Whether `device` is the one that was called `recorded`. `devices`: what numbers were seen to be now."""
    if recorded in devices:
        return device in devices[recorded]
    return device == recorded and all(device not in now for now in devices.values())


def compare(
    found: Iterable[FoundFile], known: Mapping[bytes, KnownFile]
) -> tuple[list[FoundFile], list[KnownFile], list[KnownFile]]:
    """The files found, apart: new or changed, unchanged, and unchanged but not readable the last time."""
    new: list[FoundFile] = []
    unchanged: list[KnownFile] = []
    failed: list[KnownFile] = []
    for item in found:
        record = known.get(item.path)
        if record is None or (record.size, record.mtime_ns) != (item.size, item.mtime_ns):
            new.append(item)
        elif record.key is not None:
            unchanged.append(record)
        else:
            failed.append(record)
    return new, unchanged, failed


def _walk_tree(
    root: bytes, files_given: frozenset[bytes], seen: set[tuple[int, int]], linked: list[bytes]
) -> Iterator[FoundFile | Skipped]:
    """Files below `root` through real folders; folders behind links are added to `linked`."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            yield _skipped(folder, f"folder cannot be read: {error.strerror}")
            continue
        if any(entry.name == CATALOGUE_FILE for entry in entries):
            continue
        folders: list[bytes] = []
        for entry in entries:
            if entry.name.startswith(b"."):
                continue
            try:
                if entry.is_dir():
                    (linked if entry.is_symlink() else folders).append(entry.path)
                elif has_image_suffix(entry.name) and entry.path not in files_given:
                    yield _found(entry.path, entry.stat())
            except OSError as error:
                # What is not a file with an image's suffix may be a folder that has gone with its disk. That
                # is said of a disk that fails, but a link to nothing is no news.
                if has_image_suffix(entry.name) or not _is_absent(error):
                    yield _skipped(entry.path, _why_no_file(entry, error))
        waiting.extend(reversed(folders))


def has_image_suffix(name: bytes) -> bool:
    """Whether a file of this name is taken from a folder."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def _found(path: bytes, status: os.stat_result) -> FoundFile | Skipped:
    if not stat.S_ISREG(status.st_mode):
        return _skipped(path, f"is {file_type(status.st_mode)}, not a regular file")
    return FoundFile(path, status.st_size, status.st_mtime_ns, status.st_dev)


def _why_no_file(entry: os.DirEntry[bytes], error: OSError) -> str:
    if not _is_absent(error):
        return f"cannot be looked at: {error.strerror}"
    return "is a link to nothing" if entry.is_symlink() else "vanished while the folder was read"


def _is_absent(error: OSError) -> bool:
    """Whether nothing is there; a link that leads back to itself leads to nothing."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _skipped(path: bytes, reason: str) -> Skipped:
    return Skipped(os.fsdecode(path), reason)
