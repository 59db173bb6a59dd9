from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from texcat.catalogue import Catalogue, CatalogueError
from texcat.catalogue.filesystem import MOUNTS, NETWORK_TYPES, file_system_type, require_local

SAMPLE = rb"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:21 / /proc rw - proc proc rw
41 22 0:40 / /home rw,relatime - nfs4 server:/home rw,vers=4.2
42 41 0:41 /sub /home/ann/my\040photos rw master:2 propagate_from:1 - xfs /dev/sdb rw
43 22 0:42 / /mnt rw - ext4 /dev/sdc rw
44 43 0:43 / /mnt rw - cifs //nas/share rw
45 22 0:44 / /srv/a\134b rw - fuse.sshfs ann@host:/ rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (b"/", "ext4"),
        (b"/home", "nfs4"),
        (b"/home/ann/cat", "nfs4"),
        (b"/homes/ann", "ext4"),
        (b"/home/ann/my photos/cat", "xfs"),
        (b"/home/ann/my photos 2", "nfs4"),
        (b"/mnt/cat", "cifs"),
        (b"/srv/a\\b/cat", "fuse.sshfs"),
    ],
)
def test_the_longest_mount_point_counts_and_of_two_the_later(path: bytes, kind: str) -> None:
    assert file_system_type(path, SAMPLE) == kind


@given(st.binary(min_size=1, max_size=8).filter(lambda name: not {0, ord("/")} & set(name)))
def test_any_name_of_a_mount_point(name: bytes) -> None:
    escaped = b"".join(b"\\%03o" % byte if byte in b" \t\n\\" else bytes([byte]) for byte in name)
    mounts = b"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / /" + escaped + b" rw - nfs host:/ rw\n"
    assert file_system_type(b"/" + name + b"/x", mounts) == "nfs"
    assert file_system_type(b"/" + name + b"x", mounts) == "ext4"


def test_agrees_with_findmnt_on_this_machine(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/proc/self"), Path("/dev"), Path("/dev/shm"), Path("/")):
        command = ["findmnt", "--noheadings", "--output", "FSTYPE", "--target", path.resolve()]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert file_system_type(os.fsencode(path.resolve()), MOUNTS.read_bytes()) == told[-1]


def test_a_local_folder_is_let_pass(tmp_path: Path) -> None:
    require_local(tmp_path / "not" / "there" / "yet")


@pytest.mark.parametrize("kind", sorted(NETWORK_TYPES))
def test_types_are_those_of_the_kernel(kind: str) -> None:
    line = b"1 0 0:1 / / rw - " + kind.encode() + b" host:/ rw\n"
    assert file_system_type(b"/cat", line) == kind


def test_a_network_file_system_is_refused_unless_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cat"
    Catalogue.create(path).close()
    mounts = tmp_path / "mountinfo"
    mounts.write_bytes(b"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / %s rw - nfs4 h:/ rw\n" % bytes(tmp_path))
    monkeypatch.setattr("texcat.catalogue.filesystem.MOUNTS", mounts)
    with pytest.raises(CatalogueError, match=r"network file system \(nfs4\).*--allow-network"):
        Catalogue.open(path, "w")
    with pytest.raises(CatalogueError, match="nfs4"):
        Catalogue.create(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    Catalogue.open(path).close()
    Catalogue.open(path, "w", allow_network=True).close()
    Catalogue.create(tmp_path / "other", allow_network=True).close()
