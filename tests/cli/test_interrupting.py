from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image
from texcat.catalogue import Catalogue

from .conftest import Texcat


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
    program = (  # the signal may be inherited as ignored
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from texcat.cli.main import main\nmain()"
    )
    command = [sys.executable, "-c", program, "index", folder, "-c", indexed]
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
