"""Blocks are kept while a pass runs, and given back then."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource
from pathlib import Path

import numpy as np
from texcat.indexer.memory import kept_blocks

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20

def use():
    last = np.ones(1)
    blocks = [np.ones(1 << 20) for _ in range(40)]
    between = np.ones(1)  # above what is dropped, which glibc could give back by itself otherwise
    del blocks
    return last, between

before = megabytes()
with kept_blocks():
    held = use()
    kept = megabytes()
print(before, kept, megabytes())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems are left as they are")
def test_blocks_are_kept_until_the_end() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    before, kept, after = map(int, told.split())
    assert kept - before >= 300  # of 320 MB, which are dropped
    assert after - before < 100
