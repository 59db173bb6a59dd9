"""How the place of an image is written: as a path, as a URL, or as a member of a tar archive.

A member is written ``ARCHIVE::NAME``, as in ``/data/0007.tar::cat.jpg``; the archive is a path or a URL whose
name ends in ``.tar``. A file on the disk that has such a name comes before the member.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote_to_bytes

from ..catalogue.errors import UsageError

_URL = re.compile(rb"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_FILE_URL = re.compile(rb"file://(?:localhost)?(?=/)", re.IGNORECASE)
_MEMBER = re.compile(rb"(.*?\.tar)::(.+)", re.IGNORECASE | re.DOTALL)


def is_url(place: bytes) -> bool:
    """Whether `place` is a URL, or a member of an archive at one; ``file://`` ones are, too."""
    return _URL.match(place) is not None


def split_member(place: bytes) -> tuple[bytes, bytes] | None:
    """Archive and name of the member that `place` may be; None when it is not written as one."""
    found = _MEMBER.fullmatch(place)
    return None if found is None else (found[1], found[2])


def member_of(archive: bytes, name: bytes) -> bytes:
    """Place of the member `name` of `archive`."""
    return archive + b"::" + name


def absolute(place: str | bytes | os.PathLike[str]) -> bytes:
    """`place` as the registry has it.

    A path is made absolute, without ``.`` and ``..``; links are not resolved. A URL stays as it is spelled;
    one of a local file (RFC 8089) becomes its path. Of a member, this is done to the archive alone.

    Raises:
        UsageError: a ``file:`` URL names another host.
    """
    name = os.fsencode(place)
    member = split_member(name)
    if member is not None:
        return member_of(absolute(member[0]), member[1])
    local = _FILE_URL.match(name)
    if local is not None:
        name = unquote_to_bytes(name[local.end() :])
    elif name[:7].lower() == b"file://":
        raise UsageError(f"{os.fsdecode(name)!r} is no file of this machine; expected file:///PATH")
    elif is_url(name):
        return name
    return os.path.abspath(name)
