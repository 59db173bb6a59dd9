from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image
from texcat.catalogue import Catalogue

from .conftest import Texcat

_PROGRAM = (  # the signal may be inherited as ignored
    "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from texcat.cli.main import main\nmain()"
)


def test_an_interrupted_pass_goes_on_where_it_stopped(
    texcat: Texcat, indexed: Path, photos: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    # Committed are 64 files, or those of some seconds. 56 are copies of a known photo; the others it encodes.
    for number in range(56):
        shutil.copy(photos / "chelsea.jpg", folder / f"0-{number:02}.jpg")
    noise = np.random.default_rng(0).integers(0, 256, (44, 8, 8, 3), np.uint8)
    for number, pixels in enumerate(noise):
        Image.fromarray(pixels).save(folder / f"1-{number:02}.png")
    command = [sys.executable, "-c", _PROGRAM, "index", folder, "-c", indexed]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        with Catalogue.open(indexed) as catalogue:
            known = catalogue.registry.counts().files
            while catalogue.registry.counts().files <= known + 56:  # nothing that it encoded is committed yet
                assert running.poll() is None
                time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate()
    assert running.returncode == 130
    assert (out, err) == ("", "texcat: interrupted; run the command again to go on\n")

    with Catalogue.open(indexed) as catalogue:
        files = catalogue.registry.files([os.fsencode(folder)])
        assert catalogue.store.stats().images == 3 + len(files) - 56
    assert 56 < len(files) < 100
    done = sorted(files)[-2:]
    rest = sorted(set(map(os.fsencode, folder.iterdir())) - set(files))[:2]
    resumed = texcat("index", *map(os.fsdecode, done + rest), "-c", indexed, "--json").json
    assert (resumed["unchanged"], resumed["indexed"], resumed["skipped"]) == (len(done), 2, [])


def test_processes_of_several_devices_say_nothing_when_all_are_interrupted(
    photos: Path, tmp_path: Path, texcat: Texcat
) -> None:
    texcat("init", "-c", tmp_path / "cat")
    command = [sys.executable, "-c", _PROGRAM, "index", photos, "-c", tmp_path / "cat"]
    with subprocess.Popen(
        [*command, "--device", "cpu,cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        while len(_spawned(running.pid)) < 2:
            assert running.poll() is None
            time.sleep(0.02)
        time.sleep(1)  # they load libraries now, which takes longer
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate()
    assert running.returncode == 130
    assert (out, err) == ("", "texcat: interrupted; run the command again to go on\n")


def _spawned(parent: int) -> list[Path]:
    """Processes that a process has started to work for it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            status, command = (process / "status").read_text(), (process / "cmdline").read_text()
            if f"PPid:\t{parent}\n" in status and "spawn_main" in command:
                found.append(process)
    return found
