"""Tar archives as they are, such as the shards of WebDataset: where their members lie, and reading one.

An archive is gone through once, from header to header, past what the members hold; then a member is one read
of a range of bytes. Nothing is unpacked. An archive must not be compressed, for that reason.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from types import MappingProxyType
from typing import IO, cast

from . import remote
from .places import is_url

Span = tuple[int, int]
"""First byte and number of bytes of a member, within its archive."""

HEADER_BYTES = tarfile.BLOCKSIZE
MAX_HEADER = 1 << 20
"""Bytes that are read for one header. Those that hold a long name take about two thousand."""

KEPT = 16
"""Archives whose spans are kept in memory: 2 MB for one of ten thousand members."""

_COMPRESSED = ((b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"))
_listing = Lock()


@dataclass(frozen=True, slots=True)
class Listing:
    """What an archive holds.

    Attributes:
        spans: by name, in the order of the archive; of members with one name, the last.
        damage: why there may be more in it; None when it was read to its end.
    """

    spans: Mapping[bytes, Span]
    damage: str | None


def list_archive(archive: bytes, size: int, mtime_ns: int) -> Listing:
    """The regular files in `archive`. Kept until its `size` or `mtime_ns` are others.

    Raises:
        OSError, RemoteError: it cannot be read. What is wrong with its content is no error, but its damage.
    """
    with _listing:  # threads that want the same archive wait for one of them
        return _list(archive, size, mtime_ns)


def read_span(file: IO[bytes], span: Span) -> bytes:
    """Header and content of the member of `file` at `span`; `content_of` makes sure of them."""
    file.seek(span[0] - HEADER_BYTES)
    return file.read(HEADER_BYTES + span[1])


def content_of(member: bytes, span: Span) -> bytes:
    """Content of a member, of which header and content are given.

    Raises:
        ValueError: it is not all there, or not where it was.
    """
    try:
        header = tarfile.TarInfo.frombuf(member[:HEADER_BYTES], "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise ValueError("is not where it was: its archive has changed") from error
    if not header.isreg():
        raise ValueError("is not where it was: its archive has changed")
    content = member[HEADER_BYTES:]
    if len(content) != span[1]:
        raise ValueError(f"is cut short: {len(content):,} of {span[1]:,} bytes are in its archive")
    return content


@lru_cache(KEPT)
def _list(archive: bytes, size: int, mtime_ns: int) -> Listing:
    with closing(remote.open_file(archive) if is_url(archive) else open(archive, "rb")) as file:
        try:
            return _walk(file)
        except OSError:
            raise
        except Exception as error:
            if not is_url(archive):
                raise
            raise remote.RemoteError(f"cannot be read: {remote.reason(error)}") from error


def _walk(file: IO[bytes]) -> Listing:
    head = file.read(HEADER_BYTES)
    for signature, name in _COMPRESSED:
        if head.startswith(signature):
            return Listing(
                MappingProxyType({}),
                f"is compressed ({name}), so that no member can be read alone; unpack it to a plain .tar",
            )
    file.seek(0)
    spans: dict[bytes, Span] = {}
    damage: str | None = None
    at = 0
    try:
        headers = cast(IO[bytes], _Headers(file))
        with tarfile.TarFile(fileobj=headers, encoding="utf-8", errors="surrogateescape") as tar:
            at = tar.offset
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # or it would keep them all
                at = tar.offset
                if member.isreg() and not member.issparse():
                    spans[os.fsencode(member.name)] = (member.offset_data, member.size)
        file.seek(at)
        # At a header that it does not understand, tarfile ends as if that was the end.
        if file.read(HEADER_BYTES).strip(b"\0"):
            damage = "what follows is no header"
    except (tarfile.TarError, ValueError, OverflowError) as error:  # the latter for fields of nonsense
        damage = remote.reason(error)
    if damage is not None and not spans:
        damage = f"is no tar archive, or damaged: {damage}"
    elif damage is not None:
        damage = f"is damaged at byte {at:,} ({damage}): nothing behind that was found"
    return Listing(MappingProxyType(spans), damage)


class _Headers:
    """A file of which no more is read at once than a header takes, whatever the archive claims."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        if size > MAX_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)
