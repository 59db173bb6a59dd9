from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .conftest import INTERESTS, Texcat


def test_stats(texcat: Texcat, indexed: Path) -> None:
    told = texcat("stats", "-c", indexed, "--json").json
    assert set(told) == {
        "catalogue", "encoder", "fingerprint", "groups", "images", "codes", "files", "failed", "missing",
        "questions", "bytes", "readers", "interests",
    }  # fmt: skip
    assert (told["images"], told["files"], told["failed"], told["missing"], told["questions"]) == (
        3,
        4,
        1,
        0,
        1,
    )
    sizes = told["bytes"]
    assert set(sizes) == {
        "base", "maps", "codes", "shards", "free", "registry", "codebook", "total", "per_image",
    }  # fmt: skip
    assert sizes["maps"] == sum(interest["bytes"] for interest in told["interests"])
    assert told["codes"] == 3
    assert 0 < sizes["codes"] <= 3 * 12_224
    assert 0 < sizes["base"] + sizes["maps"] + sizes["codes"] < sizes["shards"]
    assert sizes["codebook"] == (indexed / "codebook").stat().st_size
    assert sizes["total"] == sizes["shards"] + sizes["registry"] + sizes["codebook"]
    assert sizes["per_image"] == sizes["total"] / 3
    assert [(interest["phrase"], interest["maps"]) for interest in told["interests"]] == [
        (i, 3) for i in INTERESTS
    ]
    shown = texcat("stats", "-c", indexed).out
    assert "4 (1 failed, 0 missing)" in shown
    assert "of 3 images" in shown
    assert told["fingerprint"] in shown


def test_stats_of_an_empty_catalogue(texcat: Texcat, empty: Path) -> None:
    told = texcat("stats", "-c", empty, "--json").json
    assert (told["images"], told["interests"], told["bytes"]["per_image"]) == (0, [], None)
    assert "none until the first image is indexed" in texcat("stats", "-c", empty).out


def test_stats_names_who_reads(texcat: Texcat, indexed: Path) -> None:
    assert texcat("stats", "-c", indexed, "--json").json["readers"] == []
    program = (
        "import sys\nfrom texcat.catalogue import Catalogue\n"
        "with Catalogue.open(sys.argv[1]) as c, c.store._files[0].view(): print(flush=True); input()"
    )
    command = [sys.executable, "-c", program, indexed]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "\n"
        told = texcat("stats", "-c", indexed, "--json").json["readers"]
        shown = texcat("stats", "-c", indexed).out
        reader.communicate("\n")
    assert (told[0]["pid"], told[0]["pinned"]) == (reader.pid, 1)
    assert f"process {reader.pid} (keeps freed pages of 1 shard from being used again)" in shown
