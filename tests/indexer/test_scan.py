from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from texcat.catalogue.registry import KnownFile
from texcat.catalogue.types import ImageKey, Skipped
from texcat.indexer.images import load_image
from texcat.indexer.scan import FoundFile, ScanPlan, plan_scan, walk

from ..unprivileged import as_nobody
from .hostile import make_hostile

KEY = ImageKey(bytes(16))
PARTS = ("new", "unchanged", "failed", "missing", "unavailable")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    for name in ("a.jpg", "b.PNG", "holiday/c.webp", "holiday/deep/d.tif", "z.gif", "zoo/e.jp2"):
        put(folder / name)
    return folder


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    rmtree(folder)


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system other than that of `tmp_path`: Linux keeps /dev/shm in memory."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    assert folder.stat().st_dev != tmp_path.stat().st_dev
    yield folder
    rmtree(folder)


def put(path: Path, content: bytes = b"content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def names(folder: Path, *paths: Path) -> list[str]:
    """What `walk` finds, as paths below `folder`; nothing may be skipped."""
    found = list(walk(paths or [folder]))
    assert all(isinstance(item, FoundFile) for item in found), found
    return [os.path.relpath(os.fsdecode(item.path), folder) for item in found]


def skipped(*paths: Path | bytes) -> dict[str, str]:
    return {item.path: item.reason for item in walk(paths) if isinstance(item, Skipped)}


def known_from(*folders: Path) -> dict[bytes, KnownFile]:
    """What the registry holds after all files in `folders` were indexed."""
    return {
        item.path: KnownFile(item.path, item.size, item.mtime_ns, item.device, key=KEY)
        for item in walk(folders)
        if isinstance(item, FoundFile)
    }


def summary(plan: ScanPlan, folder: Path) -> dict[str, list[str]]:
    """Paths below `folder` of each part that is not empty, sorted."""
    parts = {
        part: sorted(os.path.relpath(os.fsdecode(file.path), folder) for file in getattr(plan, part))
        for part in (*PARTS, "renewed")
    }
    return {part: paths for part, paths in parts.items() if paths}


# --- walk ---------------------------------------------------------------------------------------------------


def test_files_come_before_folders_each_by_name(corpus: Path) -> None:
    files = ["a.jpg", "b.PNG", "z.gif"]
    assert names(corpus) == [*files, "holiday/c.webp", "holiday/deep/d.tif", "zoo/e.jp2"]


def test_a_found_file_is_described_as_the_file_system_does(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(corpus.parent)
    status = (corpus / "a.jpg").stat()
    first = next(walk(["corpus/../corpus"]))
    assert first == FoundFile(
        os.fsencode(corpus / "a.jpg"), status.st_size, status.st_mtime_ns, status.st_dev
    )


def test_other_suffixes_hidden_files_and_catalogues_are_left_out(corpus: Path) -> None:
    before = names(corpus)
    put(corpus / "notes.txt")
    put(corpus / "jpg")
    put(corpus / ".hidden.jpg")
    put(corpus / ".thumbnails" / "t.jpg")
    put(corpus / "catalogue" / "catalogue.toml")
    put(corpus / "catalogue" / "picture.jpg")
    assert names(corpus) == before
    assert names(corpus, corpus / ".thumbnails") == [".thumbnails/t.jpg"]
    assert "is a catalogue" in skipped(corpus / "catalogue")[str(corpus / "catalogue")]


def test_a_file_given_by_its_path_is_taken_whatever_its_suffix_and_once(corpus: Path) -> None:
    put(corpus / "scan.dat")
    assert names(corpus, corpus / "scan.dat", corpus / "scan.dat") == ["scan.dat"]
    with_folder = names(corpus, corpus / "z.gif", corpus, corpus / "holiday", corpus)
    assert sorted(with_folder) == sorted(names(corpus))


def test_names_of_any_bytes(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    spelt = [b"a b.jpg", b"line\nfeed.jpg", "\N{BICYCLE}.jpg".encode(), b"latin-\xe9.jpg", b"tab\t'\".jpg"]
    for name in spelt:
        with open(os.path.join(folder, name), "wb"):
            pass
    assert [item.path for item in walk([tmp_path])] == sorted(os.path.join(folder, name) for name in spelt)


def test_each_folder_is_visited_once_by_its_real_path(corpus: Path) -> None:
    before = names(corpus)
    (corpus / "a-link").symlink_to("holiday")
    (corpus / "holiday" / "up").symlink_to("..")
    (corpus / "holiday" / "self").symlink_to(".")
    assert names(corpus) == before
    behind_up = [f"a-link/up/{name}" for name in ("a.jpg", "b.PNG", "z.gif", "zoo/e.jp2")]
    assert names(corpus, corpus / "a-link") == ["a-link/c.webp", "a-link/deep/d.tif", *behind_up]


def test_links_to_folders_and_files_elsewhere_are_followed(corpus: Path, tmp_path: Path) -> None:
    before = names(corpus)
    put(tmp_path / "elsewhere" / "far.jpg")
    (tmp_path / "elsewhere" / "back").symlink_to(corpus)
    (corpus / "album").symlink_to(tmp_path / "elsewhere")
    (corpus / "m.jpg").symlink_to("a.jpg")
    assert names(corpus) == [*before[:2], "m.jpg", *before[2:], "album/far.jpg"]


def test_links_to_nothing_and_what_is_no_file_are_skipped(corpus: Path) -> None:
    (corpus / "broken.jpg").symlink_to("nowhere")
    (corpus / "itself.png").symlink_to("itself.png")
    (corpus / "gone-folder").symlink_to("nowhere")
    os.mkfifo(corpus / "pipe.jpg")
    assert skipped(corpus) == {
        str(corpus / "broken.jpg"): "is a link to nothing",
        str(corpus / "itself.png"): "is a link to nothing",
        str(corpus / "pipe.jpg"): "is a named pipe, not a regular file",
    }


def test_a_path_that_does_not_exist_is_skipped(tmp_path: Path) -> None:
    assert skipped(tmp_path / "absent") == {
        str(tmp_path / "absent"): "does not exist: is its disk not mounted?"
    }


def test_a_skipped_path_keeps_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"\xff.jpg")
    os.symlink(b"nowhere", path)
    (only,) = skipped(tmp_path)
    assert os.fsencode(only) == path


def test_a_folder_that_cannot_be_read_is_skipped_and_the_walk_goes_on(open_folder: Path) -> None:
    put(open_folder / "a" / "locked" / "in.jpg")
    put(open_folder / "b.jpg")
    (open_folder / "a" / "locked").chmod(0)

    def look() -> str:
        found = [item for item in walk([open_folder]) if isinstance(item, FoundFile)]
        return repr(([item.path for item in found], skipped(open_folder)))

    answer = as_nobody(look)
    (open_folder / "a" / "locked").chmod(0o755)
    reason = "folder cannot be read: Permission denied"
    assert answer == repr(([os.fsencode(open_folder / "b.jpg")], {str(open_folder / "a" / "locked"): reason}))


@pytest.fixture
def deep_tree() -> Iterator[Path]:
    """A file below 1,200 folders, more than Python's calls may nest; one letter each keeps the path short."""
    folder = Path(tempfile.mkdtemp())
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("deep.jpg", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)  # shutil.rmtree calls itself for each level


def test_a_tree_deeper_than_calls_may_nest(deep_tree: Path) -> None:
    (found,) = walk([deep_tree])
    assert isinstance(found, FoundFile)
    assert found.path.endswith(b"/d/d/deep.jpg")


def test_every_hostile_file_is_found_or_skipped(tmp_path: Path) -> None:
    expected = make_hostile(tmp_path)
    seen = list(walk([tmp_path]))
    assert sorted(os.fsdecode(item.path) for item in seen) == sorted(
        str(tmp_path / name) for name in expected
    )
    for item in seen:
        refused = expected[os.path.relpath(os.fsdecode(item.path), tmp_path)].refused
        if isinstance(item, Skipped):
            assert refused is not None
            assert refused in item.reason
        elif refused is None:
            assert load_image(item.path).key == ImageKey.of(Path(os.fsdecode(item.path)).read_bytes())


# --- plan_scan: what must be opened -------------------------------------------------------------------------


def test_a_first_scan_finds_everything_new_and_a_second_nothing(corpus: Path) -> None:
    assert summary(plan_scan([corpus], {}), corpus) == {"new": sorted(names(corpus))}
    assert summary(plan_scan([corpus], known_from(corpus)), corpus) == {"unchanged": sorted(names(corpus))}


def test_another_size_or_time_makes_a_file_new(corpus: Path) -> None:
    known = known_from(corpus)
    status = (corpus / "a.jpg").stat()
    put(corpus / "a.jpg", b"longer content")
    os.utime(corpus / "a.jpg", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.utime(corpus / "z.gif", ns=(0, (corpus / "z.gif").stat().st_mtime_ns - 1))
    put(corpus / "fresh.jpg")
    plan = plan_scan([corpus], known)
    assert summary(plan, corpus)["new"] == ["a.jpg", "fresh.jpg", "z.gif"]
    assert [item.size for item in plan.new] == [14, 7, 7]


def test_failed_files_are_kept_apart_until_they_change(corpus: Path) -> None:
    known = known_from(corpus)
    path = os.fsencode(corpus / "a.jpg")
    known[path] = replace(known[path], key=None, reason="is empty (0 bytes)")
    assert summary(plan_scan([corpus], known), corpus)["failed"] == ["a.jpg"]
    put(corpus / "a.jpg", b"mended content")
    assert summary(plan_scan([corpus], known), corpus)["new"] == ["a.jpg"]


def test_files_that_had_been_missing_return(corpus: Path) -> None:
    known = known_from(corpus)
    read, failed = os.fsencode(corpus / "a.jpg"), os.fsencode(corpus / "b.PNG")
    known[read] = replace(known[read], missing_since=1.0)
    known[failed] = replace(known[failed], key=None, reason="is empty (0 bytes)", missing_since=1.0)
    plan = summary(plan_scan([corpus], known), corpus)
    assert plan["renewed"] == ["a.jpg", "b.PNG"]
    assert "a.jpg" in plan["unchanged"]
    assert plan["failed"] == ["b.PNG"]


def test_a_rescan_opens_no_file(open_folder: Path) -> None:
    for name in ("a.jpg", "b/c.jpg"):
        put(open_folder / name).chmod(0)
    known = known_from(open_folder)

    def rescan() -> str:
        path = open_folder / "a.jpg"
        try:
            path.read_bytes()
        except PermissionError:
            return repr(summary(plan_scan([open_folder], known), open_folder))
        return "the file could be opened"

    assert as_nobody(rescan) == repr({"unchanged": ["a.jpg", "b/c.jpg"]})


def test_known_files_elsewhere_are_in_no_part(corpus: Path, tmp_path: Path) -> None:
    put(tmp_path / "corpus2" / "x.jpg")  # shares the first letters of the folder's name
    known = known_from(corpus, tmp_path / "corpus2")
    (tmp_path / "corpus2" / "x.jpg").unlink()
    assert summary(plan_scan([corpus], known), corpus) == {"unchanged": sorted(names(corpus))}
    assert summary(plan_scan([corpus / "a.jpg"], known), corpus) == {"unchanged": ["a.jpg"]}


def test_a_known_file_that_the_walk_passes_over_is_not_missing(corpus: Path) -> None:
    put(corpus / "scan.dat")
    (corpus / "link").symlink_to("holiday")
    known = known_from(corpus, corpus / "scan.dat") | known_from(corpus / "link")
    plan = summary(plan_scan([corpus], known), corpus)
    assert set(plan) == {"unchanged"}
    assert {"scan.dat", "link/c.webp"} <= set(plan["unchanged"])


@given(
    files=st.dictionaries(
        st.sampled_from([f"{folder}{name}.jpg" for folder in ("", "x/", "x/y/") for name in "abc"]),
        st.tuples(*[st.sampled_from(["absent", "same", "changed", "failed"])] * 2),
    )
)
def test_every_file_is_in_exactly_one_part(files: dict[str, tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, (before, _) in files.items():
            if before != "absent":
                put(folder / file)
        known = known_from(folder)
        for file, (before, after) in files.items():
            path = os.fsencode(folder / file)
            if before == "failed":
                known[path] = replace(known[path], key=None, reason="is empty (0 bytes)")
            if after == "absent":
                (folder / file).unlink(missing_ok=True)
            elif after == "changed" or before == "absent":
                put(folder / file, b"other content")
        plan = plan_scan([folder], known)
        placed = [file.path for part in PARTS for file in getattr(plan, part)]
        assert len(placed) == len(set(placed))
        now = {item.path for item in walk([folder])}
        assert set(placed) == now | set(known)
        assert {file.path for file in plan.missing} == set(known) - now
        assert not plan.unavailable
        assert not plan.skipped


# --- plan_scan: missing or unavailable ----------------------------------------------------------------------


def test_deleted_files_and_folders_are_missing(corpus: Path) -> None:
    known = known_from(corpus)
    (corpus / "a.jpg").unlink()
    rmtree(corpus / "holiday")
    plan = summary(plan_scan([corpus], known), corpus)
    assert plan["missing"] == ["a.jpg", "holiday/c.webp", "holiday/deep/d.tif"]
    assert "unavailable" not in plan


def test_a_folder_that_became_a_file_makes_its_files_missing(corpus: Path) -> None:
    known = known_from(corpus)
    rmtree(corpus / "holiday")
    put(corpus / "holiday")
    assert summary(plan_scan([corpus], known), corpus)["missing"] == ["holiday/c.webp", "holiday/deep/d.tif"]


def test_files_of_a_root_that_does_not_exist_are_unavailable(corpus: Path) -> None:
    known = known_from(corpus)
    rmtree(corpus)
    plan = plan_scan([corpus], known)
    assert len(plan.unavailable) == len(known)
    assert plan.skipped == (Skipped(str(corpus), "does not exist: is its disk not mounted?"),)


@pytest.mark.parametrize("root", ["mnt", "mnt/disk"])
def test_an_emptied_mount_point_keeps_its_files(root: str, tmp_path: Path, other_disk: Path) -> None:
    put(other_disk / "a.jpg")
    put(other_disk / "sub" / "b.jpg")
    put(tmp_path / "mnt" / "local.jpg")
    (tmp_path / "mnt" / "disk").symlink_to(other_disk)  # as a mounted disk: a path on another device
    known = known_from(tmp_path / "mnt")
    assert len(known) == 3
    (tmp_path / "mnt" / "disk").unlink()
    (tmp_path / "mnt" / "disk").mkdir()
    plan = summary(plan_scan([tmp_path / root], known), tmp_path)
    assert plan["unavailable"] == ["mnt/disk/a.jpg", "mnt/disk/sub/b.jpg"]
    assert "missing" not in plan


def test_a_link_whose_disk_is_gone_keeps_its_files(corpus: Path, other_disk: Path) -> None:
    put(other_disk / "album" / "a.jpg")
    put(other_disk / "b.jpg")
    (corpus / "album").symlink_to(other_disk / "album")
    (corpus / "b.jpg").symlink_to(other_disk / "b.jpg")
    known = known_from(corpus)
    rmtree(other_disk / "album")
    (other_disk / "b.jpg").unlink()
    plan = summary(plan_scan([corpus], known), corpus)
    assert plan["unavailable"] == ["album/a.jpg", "b.jpg"]
    assert "missing" not in plan


def test_a_folder_that_another_disk_now_covers_keeps_its_files(corpus: Path, other_disk: Path) -> None:
    known = known_from(corpus)
    rmtree(corpus / "holiday")
    (corpus / "holiday").symlink_to(other_disk)
    plan = summary(plan_scan([corpus], known), corpus)
    assert plan["unavailable"] == ["holiday/c.webp", "holiday/deep/d.tif"]
    assert "missing" not in plan


def test_a_file_deleted_from_a_mounted_disk_is_missing(corpus: Path, other_disk: Path) -> None:
    put(other_disk / "a.jpg")
    (corpus / "disk").symlink_to(other_disk)
    known = known_from(corpus)
    (other_disk / "a.jpg").unlink()
    assert summary(plan_scan([corpus], known), corpus)["missing"] == ["disk/a.jpg"]


def test_files_in_folders_that_cannot_be_read_are_unavailable(open_folder: Path) -> None:
    for name in ("closed/a.jpg", "closed/sub/b.jpg", "unlisted/c.jpg", "open/d.jpg"):
        put(open_folder / name)
    known = known_from(open_folder)
    (open_folder / "open" / "d.jpg").unlink()
    (open_folder / "link").symlink_to("closed")
    (path,) = (path for path in known if path.endswith(b"closed/a.jpg"))
    by_link = path.replace(b"closed", b"link")
    known[by_link] = replace(known[path], path=by_link)
    (open_folder / "closed").chmod(0)
    (open_folder / "unlisted").chmod(0o311)  # may be entered, not listed
    answer = as_nobody(lambda: repr(summary(plan_scan([open_folder], known), open_folder)))
    (open_folder / "closed").chmod(0o755)
    (open_folder / "unlisted").chmod(0o755)
    assert answer == repr(
        {
            "missing": ["open/d.jpg"],
            "unavailable": ["closed/a.jpg", "closed/sub/b.jpg", "link/a.jpg", "unlisted/c.jpg"],
        }
    )


def renumbered(known: dict[bytes, KnownFile], device: int) -> dict[bytes, KnownFile]:
    """The same records, made when the machine had given `device` to their disk."""
    return {path: replace(file, device=device) for path, file in known.items()}


def test_a_disk_whose_number_has_changed_is_known_by_the_files_still_on_it(corpus: Path) -> None:
    known = renumbered(known_from(corpus), 987_654)
    (corpus / "a.jpg").unlink()
    assert summary(plan_scan([corpus], known), corpus)["missing"] == ["a.jpg"]


def test_without_such_files_another_number_proves_nothing(corpus: Path) -> None:
    known = renumbered(known_from(corpus), 987_654)
    for path in known:
        os.unlink(path)
    assert len(plan_scan([corpus], known).unavailable) == len(known)


def test_a_number_that_has_passed_to_another_disk_proves_nothing(tmp_path: Path) -> None:
    # The disk at mnt/disk had the number that the local disk has now; the local disk had another.
    put(tmp_path / "mnt" / "local.jpg")
    local = known_from(tmp_path / "mnt")
    device = next(iter(local.values())).device
    (tmp_path / "mnt" / "disk").mkdir()
    away = os.fsencode(tmp_path / "mnt" / "disk" / "a.jpg")
    known = renumbered(local, 987_654) | {away: KnownFile(away, 7, 7, device, key=KEY)}
    plan = plan_scan([tmp_path / "mnt"], known)
    assert summary(plan, tmp_path) == {
        "unchanged": ["mnt/local.jpg"],
        "renewed": ["mnt/local.jpg"],
        "unavailable": ["mnt/disk/a.jpg"],
    }
    assert plan.renewed == tuple(local.values())
