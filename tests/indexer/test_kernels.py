from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

INTERPRETED = Path(__file__).with_name("interpreted_kernels.py")


def test_kernels_for_gpus_give_what_torch_gives() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", INTERPRETED]
    ended = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout
