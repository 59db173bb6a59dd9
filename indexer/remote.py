"""Files behind URLs, by fsspec: whether they are as they were, and what is in them.

Any file system that fsspec knows will do. Nothing is cached on the disk, and a URL is used as it is: fsspec's
chains (``a::b``) are not.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Any

from blake3 import blake3

from ..catalogue.errors import UsageError

_VERSIONS = (
    *("ETag", "etag", "md5Hash", "md5", "content_md5", "Content-MD5", "Digest", "generation"),
    *("mtime", "updated", "LastModified", "last_modified", "Last-Modified", "created"),
)
"""Where file systems tell that a file is another than before, the surest first."""

_HTTP = ("http", "https")
_GONE = (404, 410)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file behind a URL.

    Attributes:
        url: of the file.
        size: in bytes; -1 when it is not told.
        stamp: stands for its ETag, checksum or time of change, the first of these that its file system tells;
            None when it tells none.
    """

    url: bytes
    size: int
    stamp: int | None


class RemoteError(Exception):
    """What hinders the use of a URL, in one line; `gone` when its server says that nothing is there."""

    def __init__(self, reason: str, *, gone: bool = False) -> None:
        self.reason = reason
        self.gone = gone
        super().__init__(reason)


def require(url: bytes) -> None:
    """Make sure that there is a file system for `url`. Nothing is connected to.

    Raises:
        UsageError: there is none, or it needs a package that is not installed.
    """
    try:
        _resolve(url)
    except RemoteError as error:
        raise UsageError(f"{os.fsdecode(url)!r} {error.reason}") from error


def look(url: bytes) -> RemoteFile | None:
    """The file at `url`; None when a folder is there.

    Raises:
        RemoteError: it is gone, or cannot be looked at.
    """
    system, path = _resolve(url)
    try:
        system.invalidate_cache()
        info = system.info(path)
    except Exception as error:  # each file system has its own
        raise _told(error, "cannot be looked at") from error
    return None if info.get("type") == "directory" else _remote_file(url, info)


def look_below(url: bytes) -> list[RemoteFile]:
    """The files at any depth below `url`, by name. Some file systems tell less of them than `look` does.

    Raises:
        RemoteError: nothing is there, or it cannot be listed.
    """
    system, path = _resolve(url)
    root = path.rstrip("/") + "/"
    try:
        system.invalidate_cache()
        found = system.find(root if system.protocol in (_HTTP, *_HTTP) else path, detail=True)
    except Exception as error:
        raise _told(error, "cannot be listed") from error
    base = url if url.endswith(b"/") else url + b"/"
    files = [
        _remote_file(base + os.fsencode(name.removeprefix(root)), info)
        for name, info in sorted(found.items())
        if name.startswith(root) and name != root and info.get("type") != "directory"
    ]
    if not files:  # a store of objects has no empty folders
        raise RemoteError("has nothing below it, or does not exist", gone=True)
    return files


def read(url: bytes, start: int, stop: int) -> bytes:
    """Bytes `start` to `stop` of the file at `url`; less where it ends before.

    Raises:
        RemoteError: it cannot be read.
    """
    system, path = _resolve(url)
    try:
        content: bytes = system.cat_file(path, start=start or None, end=stop)
    except Exception as error:
        raise _told(error, "cannot be read") from error
    return content


def open_file(url: bytes) -> IO[bytes]:
    """The file at `url`, open to read, with `seek`; the next bytes are read ahead.

    What its methods raise, `reason` tells.

    Raises:
        RemoteError: it cannot be opened.
    """
    system, path = _resolve(url)
    try:
        file: IO[bytes] = system.open(path, "rb")
    except Exception as error:
        raise _told(error, "cannot be opened") from error
    return file


def reason(error: BaseException) -> str:
    """What `error` says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _resolve(url: bytes) -> tuple[Any, str]:
    """File system of `url`, kept by fsspec, and the path in it."""
    text = os.fsdecode(url)
    protocol = text.partition("://")[0]
    if "::" in text:
        raise RemoteError("is a chain of URLs (::), which is not used; give the URL of one file")
    import fsspec  # here, because most corpora are on the disk

    try:
        kind = fsspec.get_filesystem_class(protocol)
        return kind(**kind._get_kwargs_from_urls(text)), kind._strip_protocol(text)
    except ImportError as error:
        extra = ': `pip install "texcat[remote]"`' if protocol in _HTTP else ""
        raise RemoteError(f"needs a package that is not installed ({reason(error)}){extra}") from error
    except Exception as error:
        raise RemoteError(f"is no URL that can be used: {reason(error)}") from error


def _remote_file(url: bytes, info: dict[str, Any]) -> RemoteFile:
    size = info.get("size")
    return RemoteFile(url, -1 if size is None else int(size), _stamp(info))


def _stamp(info: dict[str, Any]) -> int | None:
    told = next((info[name] for name in _VERSIONS if info.get(name) is not None), None)
    if told is None:
        return None
    if isinstance(told, datetime):
        told = told.timestamp()
    if isinstance(told, float):  # one file system gives the same time as either
        told = round(1e6 * told)
    digest = blake3(str(told).encode("utf-8", "backslashreplace")).digest(length=8)
    return int.from_bytes(digest) >> 1


def _told(error: Exception, failed: str) -> RemoteError:
    if isinstance(error, FileNotFoundError) and _is_answer(error.__cause__):
        return RemoteError("does not exist", gone=True)
    cause = error.__cause__ if isinstance(error, FileNotFoundError) else None
    return RemoteError(f"{failed}: {reason(cause or error)}")


def _is_answer(cause: BaseException | None) -> bool:
    """Whether a FileNotFoundError was the server's answer: over HTTP, fsspec makes one of every failure."""
    status = getattr(cause, "status", None)
    if status is not None:
        return status in _GONE
    is_failure = isinstance(cause, OSError) or type(cause).__module__.startswith("aiohttp.")
    return isinstance(cause, FileNotFoundError) or not is_failure
