"""Reading one image file whole, wherever it is: on the disk, in a tar archive, or behind a URL."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import replace

from ..catalogue.errors import ImageReadError
from . import remote, tars
from .places import absolute, is_url, split_member
from .scan import FoundFile, file_type

MAX_FILE_BYTES = 1 << 30
"""Largest file that is read, 1 GiB: a file is held in memory whole, because its key is its content."""


class _UnreadableError(Exception):
    """Why content cannot be read, before the name of the file is added."""


def read_content(path: str | bytes | os.PathLike[str], span: tars.Span | None = None) -> bytes:
    """Whole content of the regular file, the member of an archive, or the URL at `path`.

    A pipe, socket or device is refused at once, and never waited for.

    Args:
        path: as `places` describes them.
        span: where in its archive a member lies, if that is known; otherwise the archive is gone through.

    Raises:
        ImageReadError: the file cannot be opened or read, is not a regular file, has more than
            `MAX_FILE_BYTES`, or vanished or changed while it was read.
    """
    name = os.fspath(path)
    try:
        return _read(os.fsencode(name), span)
    except _UnreadableError as error:
        raise ImageReadError(name, str(error)) from error
    except remote.RemoteError as error:
        raise ImageReadError(name, error.reason) from error
    except OSError as error:
        raise ImageReadError(name, f"cannot be read: {one_line(error)}") from error
    except ValueError as error:  # the path holds a null character
        raise ImageReadError(name, f"cannot be opened: {one_line(error)}") from error


def look(place: bytes) -> FoundFile | None:
    """The file, member of an archive, or URL at `place`, absolute, as it is now; None if there is none.

    Whether its archive holds a member is not looked at.
    """
    try:
        member = None if os.path.lexists(place) else split_member(place)
        holder = place if member is None else member[0]
        if is_url(holder):
            found = remote.look(holder)
            return None if found is None else replace(from_remote(found), path=place)
        status = os.stat(holder)
    except (OSError, ValueError, remote.RemoteError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return FoundFile(place, status.st_size, status.st_mtime_ns, status.st_dev)


def from_remote(file: remote.RemoteFile) -> FoundFile:
    """`file` as one that was found. Where its server tells no state, it may just have changed."""
    return FoundFile(file.url, file.size, time.time_ns() if file.stamp is None else file.stamp, 0)


def one_line(error: BaseException) -> str:
    """What `error` says, in one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


def _read(place: bytes, span: tars.Span | None) -> bytes:
    if is_url(place):
        place = absolute(place)
    if not is_url(place):
        try:
            return _read_file(place)
        except _UnreadableError:
            if split_member(place) is None or os.path.lexists(place):
                raise
    member = split_member(place)
    if member is not None:
        return _read_member(*member, span)
    content = remote.read(place, 0, MAX_FILE_BYTES + 1)
    _check_size(len(content))
    return content


def _read_member(archive: bytes, name: bytes, span: tars.Span | None) -> bytes:
    if span is None:
        span = _find_member(archive, name)
    start, length = span
    _check_size(length)
    if is_url(archive):
        member = remote.read(archive, start - tars.HEADER_BYTES, start + length)
    else:
        descriptor, _ = _open(archive)
        with open(descriptor, "rb") as file:
            member = tars.read_span(file, span)
    try:
        return tars.content_of(member, span)
    except ValueError as error:
        raise _UnreadableError(str(error)) from error


def _find_member(archive: bytes, name: bytes) -> tars.Span:
    found = look(archive)
    if found is None:
        raise _UnreadableError(f"cannot be opened: {os.fsdecode(archive)!r} is not there, or no file")
    listing = tars.list_archive(archive, found.size, found.mtime_ns)
    if name not in listing.spans:
        damage = f"; it {listing.damage}" if listing.damage else ""
        raise _UnreadableError(f"is not in its archive{damage}")
    return listing.spans[name]


def _open(path: bytes) -> tuple[int, os.stat_result]:
    """The regular file at `path`, open to read, and its state."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise _UnreadableError(f"cannot be opened: {one_line(error)}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise _UnreadableError(f"is {file_type(status.st_mode)}, not a regular file")
    return descriptor, status


def _read_file(path: bytes) -> bytes:
    """Whole content of the regular file at `path`.

    With as few calls of the system as can be: after each, Python's lock has to be waited for.
    """
    descriptor, before = _open(path)
    try:
        _check_size(before.st_size)
        content = os.read(descriptor, before.st_size + 1)  # one more, to see a file that has grown
        while len(content) < before.st_size and (more := os.read(descriptor, before.st_size - len(content))):
            content += more
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if after.st_nlink == 0:
        raise _UnreadableError("vanished while it was read")
    if len(content) != before.st_size or (before.st_size, before.st_mtime_ns) != (
        after.st_size,
        after.st_mtime_ns,
    ):
        raise _UnreadableError("changed while it was read; index it again when it is at rest")
    return content


def _check_size(size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise _UnreadableError(f"has {size:,} bytes, more than the limit of {MAX_FILE_BYTES:,}")
