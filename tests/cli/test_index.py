from __future__ import annotations

import os
import shutil
import tarfile
import time
from pathlib import Path

import numpy as np
from texcat.catalogue import Catalogue, ImageKey

from .conftest import INTERESTS, Texcat, held_open

KEYS = {
    *("indexed", "unchanged", "removed", "unavailable", "skipped", "seconds", "interests"),
    *("stages", "on_cpu"),
}


def test_skipped_files_are_listed_and_are_no_failure(
    texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path
) -> None:
    again = texcat("index", photos, "-c", indexed, "--json")
    assert again.code == 0
    assert set(again.json) == KEYS
    assert (again.json["indexed"], again.json["unchanged"]) == (0, 3)
    assert again.json["skipped"] == [
        {"path": str(photos / "broken.jpg"), "reason": "is not an image: it looks like an HTML page"}
    ]
    for_people = texcat("index", photos, "-c", indexed)
    assert for_people.code == 0
    assert "0 indexed, 3 unchanged, 0 removed, 1 skipped" in for_people.out
    assert "broken.jpg" in for_people.out
    assert "texcat query" in for_people.out


def test_a_profile_names_the_stage_that_sets_the_pace(
    texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path
) -> None:
    grown = tmp_path / "grown.jpg"
    grown.write_bytes((photos / "chelsea.jpg").read_bytes() + b"0")  # behind the image: another key
    shown = texcat("index", grown, "-c", indexed, "--profile").out
    assert "sets the pace" in shown
    assert all(stage in shown for stage in ("read", "decode", "encode", "draft", "code", "write"))
    assert "no stage ran" in texcat("index", grown, "-c", indexed, "--profile").out


def test_names_of_any_bytes_are_printed_safely_and_whole(
    texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    names = [
        b"caf\xe9.jpg",
        b"two\nlines.jpg",
        b"\x1b[31mred.jpg",
        b"[bold]:smile:.jpg",
        b" \xf0\x9f\x90\x88.jpg",
    ]
    for name in names:
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(b"")
    result = texcat("index", folder, "-c", indexed, "--json")
    assert result.code == 0
    assert result.out.isascii()
    listed = {os.path.basename(os.fsencode(skipped["path"])) for skipped in result.json["skipped"]}
    assert listed == set(names)
    shown = texcat("index", folder, "-c", indexed).out
    assert all(
        part in shown
        for part in (r"caf\udce9.jpg", r"two\nlines.jpg", r"\x1b[31mred.jpg", "[bold]:smile:.jpg", "🐈.jpg")
    )
    assert "\x1b" not in shown


def test_only_the_first_skipped_files_are_shown(texcat: Texcat, indexed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bad"
    folder.mkdir()
    for number in range(25):
        (folder / f"{number:02}.png").write_bytes(b"")
    shown = texcat("index", folder, "-c", indexed).out
    assert "19.png" in shown
    assert "20.png" not in shown
    assert "and 5 more; --json lists all" in shown


def test_a_folder_that_is_not_there_is_told(texcat: Texcat, indexed: Path, tmp_path: Path) -> None:
    result = texcat("index", tmp_path / "unplugged", "-c", indexed)
    assert result.code == 0
    assert "is its disk not mounted?" in result.out


def test_a_new_catalogue_from_init_to_a_stored_answer(texcat: Texcat, photos: Path, tmp_path: Path) -> None:
    path = tmp_path / "new"
    texcat("init", "-c", path)
    first = texcat("index", photos / "rocket.jpg", "-c", path)
    assert first.code == 0
    assert first.err == ""
    assert "1 indexed" in first.out
    assert "No interests yet" in first.out


def test_a_pass_needs_the_catalogue_for_itself(texcat: Texcat, indexed: Path, photos: Path) -> None:
    with held_open(indexed):
        result = texcat("index", photos, "-c", indexed)
    assert result.code == 1
    assert "is being written by" in result.err


def test_files_that_are_gone_are_kept_for_a_while(
    texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(photos, tmp_path / "copy"))
    assert texcat("index", copy, "-c", indexed, "--json").json["indexed"] == 3
    (copy / "rocket.jpg").unlink()
    assert texcat("index", copy, "-c", indexed, "--json").json["removed"] == 1
    assert texcat("stats", "-c", indexed, "--json").json["missing"] == 1
    time.sleep(0.01)
    assert texcat("index", copy, "--grace-days", "0", "-c", indexed).code == 0
    assert texcat("stats", "-c", indexed, "--json").json["missing"] == 0


def test_archives_lists_and_their_column(texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path) -> None:
    archive = tmp_path / "0000.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(photos / "rocket.jpg", "a/rocket.jpg")
    listing = tmp_path / "list.jsonl"
    listing.write_text(f'{{"file": "{photos}/coffee.jpg"}}\n')
    assert texcat("index", archive, listing, "-c", indexed).code == 2
    result = texcat("index", archive, listing, "--column", "file", "-c", indexed, "--json")
    assert (result.json["indexed"], result.json["unchanged"]) == (1, 1)
    asked = texcat("query", f"{archive}::a/rocket.jpg", "Where is the rocket?", "-c", indexed, "--json")
    assert (asked.code, asked.json["key"]) == (0, str(ImageKey.of((photos / "rocket.jpg").read_bytes())))
    refused = texcat("index", "s3://bucket/", "-c", indexed)
    assert (refused.code, "s3fs" in refused.err) == (2, True)


def test_a_cluster_makes_what_this_process_makes(
    texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path
) -> None:
    path = tmp_path / "new"
    texcat("init", "-c", path)
    texcat("interest", "add", *INTERESTS, "-c", path)
    result = texcat(
        "index", photos, "-c", path, "--engine", "ray", "--workers", 1, "--device", "cpu", "--json"
    )
    assert (result.code, result.json["indexed"], len(result.json["skipped"])) == (0, 3, 1)
    with Catalogue.open(path) as spread, Catalogue.open(indexed) as local:
        assert set(spread.store.keys()) == set(local.store.keys())
        for key in spread.store.keys():
            made, expected = spread.store.read(key), local.store.read(key)
            assert made.base is not None
            assert expected.base is not None
            assert np.array_equal(made.base.values, expected.base.values)
            assert made.maps.keys() == expected.maps.keys()
            assert all(np.array_equal(made.maps[i].values, expected.maps[i].values) for i in made.maps)
            assert spread.store.code(key) == local.store.code(key)
    refused = texcat("index", photos, "-c", path, "--workers", 1)
    assert (refused.code, "for engine 'ray'" in refused.err) == (2, True)
