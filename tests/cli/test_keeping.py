from __future__ import annotations

from pathlib import Path

import pytest
from texcat.catalogue import Catalogue, ImageKey
from texcat.indexer import index_corpus
from texcat.indexer.encoders import DenseEncoder

from .conftest import Texcat, held_open


def test_verify_a_sound_catalogue(texcat: Texcat, indexed: Path) -> None:
    result = texcat("verify", "-c", indexed, "--json")
    assert result.code == 0
    assert result.json == {"images": 3, "problems": []}
    assert "3 images: every record is sound" in texcat("verify", "-c", indexed).out


def lose_a_record(indexed: Path) -> ImageKey:
    with Catalogue.open(indexed, "w") as catalogue:
        key = next(iter(catalogue.store.keys()))
        catalogue.store.delete([key])
    return key


def test_verify_lists_each_problem_and_fails(texcat: Texcat, indexed: Path) -> None:
    key = lose_a_record(indexed)
    result = texcat("verify", "-c", indexed, "--json")
    assert result.code == 1
    assert [problem["key"] for problem in result.json["problems"]] == [str(key)]
    assert set(result.json["problems"][0]) == {"where", "reason", "key"}
    shown = texcat("verify", "-c", indexed)
    assert shown.code == 1
    assert "1 problem found" in shown.out
    assert str(key) in shown.out.replace("\n", "")


def test_verify_repairs_and_the_next_pass_makes_the_rest(
    texcat: Texcat, indexed: Path, photos: Path, encoder: DenseEncoder
) -> None:
    lose_a_record(indexed)
    result = texcat("verify", "--repair", "-c", indexed)
    assert result.code == 0
    assert "files that no longer count as indexed" in result.out
    assert "Next: texcat index FOLDER" in result.out
    assert "Every record is sound now" in result.out
    assert texcat("verify", "-c", indexed).code == 0
    with Catalogue.open(indexed, "w") as catalogue:
        assert index_corpus(catalogue, [photos], encoder=encoder).indexed == 1
    assert texcat("verify", "-c", indexed, "--json").json == {"images": 3, "problems": []}


def test_verify_repair_as_json(texcat: Texcat, indexed: Path) -> None:
    clean = texcat("verify", "--repair", "-c", indexed, "--json")
    assert (clean.code, clean.json) == (0, {"images": 3, "problems": [], "repairs": None, "left": []})
    key = lose_a_record(indexed)
    told = texcat("verify", "--repair", "-c", indexed, "--json")
    assert told.code == 0
    assert [problem["key"] for problem in told.json["problems"]] == [str(key)]
    assert told.json["left"] == []
    repairs = told.json["repairs"]
    assert (repairs["files"], repairs["images"], repairs["entries"], repairs["shards"]) == (1, 1, 0, 0)
    assert told.json["images"] == 2


def test_a_repair_waits_for_no_writer(texcat: Texcat, indexed: Path) -> None:
    with held_open(indexed):
        result = texcat("verify", "--repair", "-c", indexed)
        assert texcat("verify", "-c", indexed).code == 0
    assert result.code == 1
    assert "is being written by process" in result.err


def test_compact(texcat: Texcat, indexed: Path) -> None:
    assert texcat("interest", "remove", "cat", "-c", indexed).code == 0
    told = texcat("compact", "-c", indexed, "--json")
    assert told.code == 0
    assert set(told.json) == {"returned_bytes"}
    assert texcat("stats", "-c", indexed, "--json").json["bytes"]["free"] < 32 * 4096
    assert "returned to the disk" in texcat("compact", "-c", indexed).out
    assert texcat("verify", "-c", indexed).code == 0


def test_backup(texcat: Texcat, indexed: Path, tmp_path: Path) -> None:
    with held_open(indexed):
        told = texcat("backup", tmp_path / "copy", "-c", indexed, "--json")
    assert told.code == 0
    assert (told.json["backup"], told.json["images"]) == (str(tmp_path / "copy"), 3)
    assert not any(told.json["left_out"].values())
    assert texcat("verify", "-c", tmp_path / "copy").code == 0
    again = texcat("backup", tmp_path / "copy", "-c", indexed)
    assert again.code == 1
    assert "already holds other files" in again.err
    shown = texcat("backup", tmp_path / "second", "-c", indexed).out
    assert "3 images copied to" in shown
    assert f"texcat stats -c {tmp_path / 'second'}" in shown


def test_a_backup_of_a_damaged_catalogue_says_so(texcat: Texcat, indexed: Path, tmp_path: Path) -> None:
    with Catalogue.open(indexed, "w") as catalogue:
        key = next(iter(catalogue.store.keys()))
        catalogue.store._file(key).change(lambda transaction: transaction.put(key + bytes(4), b"damaged"))
    shown = texcat("backup", tmp_path / "copy", "-c", indexed)
    assert shown.code == 0
    assert "2 images copied" in shown.out
    assert "1 damaged part left out: run texcat verify on the catalogue" in shown.out


@pytest.mark.parametrize(
    "command",
    [
        ["interest", "add", "dog"],
        ["interest", "remove", "cat"],
        ["compact"],
        ["verify", "--repair"],
        ["index", "photos"],
    ],
)
def test_writing_on_a_network_file_system_is_refused(
    texcat: Texcat, indexed: Path, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_bytes(b"1 0 0:1 / / rw - nfs4 server:/ rw\n")
    monkeypatch.setattr("texcat.catalogue.filesystem.MOUNTS", mounts)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    refused = texcat(*command, "-c", indexed)
    assert refused.code == 1
    assert "network file system (nfs4)" in refused.err
    assert texcat(*command, "-c", indexed, "--allow-network").code == 0
    assert texcat("stats", "-c", indexed).code == 0, "reading is allowed"


def test_a_look_up_on_a_network_file_system_reads(
    texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_bytes(b"1 0 0:1 / / rw - nfs4 server:/ rw\n")
    monkeypatch.setattr("texcat.catalogue.filesystem.MOUNTS", mounts)
    told = texcat("lookup", photos / "chelsea.jpg", "--interest", "cat", "-c", indexed, "--json")
    assert told.code == 0
    assert "network file system" in told.json["not_saved"]
