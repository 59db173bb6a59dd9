"""On which kind of file system a path lies, and whether other hosts may see it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .errors import CatalogueError

NETWORK_TYPES = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs",
        "fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "gfs2", "glusterfs", "gpfs", "lustre",
        "nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs",
    }
)  # fmt: skip
"""Types, as the kernel calls them, of file systems that several hosts may have mounted."""

MOUNTS = Path("/proc/self/mountinfo")


def require_local(path: Path) -> None:
    """Refuse to write a catalogue in `path`, which may not exist yet, when other hosts may see it.

    Raises:
        CatalogueError: it lies on a network file system.
    """
    kind = file_system_type(os.fsencode(os.path.realpath(path)), MOUNTS.read_bytes())
    if kind in NETWORK_TYPES:
        raise CatalogueError(
            f"{os.fspath(path)!r} lies on a network file system ({kind}), where the memory map and the locks "
            "of a catalogue do not hold between hosts, and it may be damaged; put it on a local disk, or, if "
            "no other host ever opens it, allow it with --allow-network (allow_network=True)"
        )


def file_system_type(path: bytes, mounts: bytes) -> str:
    """Type of the file system that holds `path`, an absolute path without links.

    Args:
        path: need not exist.
        mounts: content of ``/proc/self/mountinfo``, see proc_pid_mountinfo(5).
    """
    longest, found = -1, ""
    for line in mounts.removesuffix(b"\n").split(b"\n"):  # a name may hold a carriage return
        fields, _, rest = line.partition(b" - ")
        point = _unescape(fields.split(b" ")[4])
        inside = path == point or path.startswith(point.rstrip(b"/") + b"/")
        if inside and len(point) >= longest:  # of two on one point, the later one is on top
            longest, found = len(point), os.fsdecode(rest.split(b" ")[0])
    return found


def _unescape(name: bytes) -> bytes:
    """A name as it is: the kernel writes space, tab, newline and backslash as three octal digits."""
    return re.sub(rb"\\([0-7]{3})", lambda digits: bytes([int(digits[1], 8)]), name)
