"""The stress scripts, small: `python -m tests.stress` runs them at full size."""

from __future__ import annotations

from pathlib import Path

from . import bit_flips, full_disk, kills, soak


def test_killed_commands_leave_a_sound_catalogue(tmp_path: Path) -> None:
    counts = kills.run(tmp_path, kills=2 * len(kills.SCENARIOS), photos=12, seed=1)
    assert counts.keys() == kills.SCENARIOS.keys()


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    counts = full_disk.run(tmp_path, moments=3, photos=8, seed=1)
    for command in full_disk.COMMANDS:
        found = counts[command]
        assert isinstance(found, dict)
        assert found["resumed and equal"] == 3
        assert found["told that the disk is full"] == 3


def test_flipped_bits_are_never_served(tmp_path: Path) -> None:
    counts = bit_flips.run(tmp_path, flips=40, headers=40, images=20, seed=1)
    for kind in ("anywhere", "headers"):
        found = counts[kind]
        assert isinstance(found, dict)
        assert sum(found["reader"].values()) == 40
        assert found["reader"]["told"] > 0


def test_files_do_not_grow(tmp_path: Path) -> None:
    counts = soak.run(tmp_path, writes=20_000, images=50, seed=1)
    assert counts["writes"] == 20_000
