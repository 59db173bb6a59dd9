from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton
from texcat.indexer import foretelling, resampling
from texcat.indexer.channels import kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@pytest.mark.parametrize(
    "name", ["interpreted_foretelling.py", "interpreted_kernels.py", "interpreted_resampling.py"]
)
def test_kernels_for_gpus_give_what_processors_give(name: str) -> None:
    interpreted = Path(__file__).with_name(name)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", interpreted]
    ended = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout


PIXELS = {"SIDE": 512, "CELL": 16, "WIDTH": 64}
SQUARES = {"SIDE": 512, "WIDTH": 512, "ROWS": resampling._ROWS, "FIELDS": resampling._FIELDS}
TABLE = {"RANKS": 112, "HELD": 128}
HALVES = {"LEFT": 8, "RIGHT": 16, "LEFT_HELD": 8, "RIGHT_HELD": 16}
GRID = {"SIDE": 128, "CENTRES": 10, "STEP": 13, "AREA": 256}


@pytest.mark.parametrize(
    ("kernel", "constants", "warps"),
    [
        (kernels._mean_kernel, {**PIXELS, "BLOCK": 4}, 1),
        (kernels._edge_kernel, PIXELS, 1),
        (kernels._assign_kernel, {**GRID, "LAST": False}, 1),
        (kernels._assign_kernel, {**GRID, "LAST": True}, 1),
        (kernels._move_kernel, {"CENTRES": 10, "KINDS": 128}, 4),
        (resampling._squash_kernel, SQUARES, resampling._WARPS),
        (resampling._squash_kernel, {**SQUARES, "SIDE": 378}, resampling._WARPS),
        (foretelling._round_kernel, {**TABLE, "AREA": 256, "WIDTH": 512, **HALVES}, 2),
        (foretelling._size_kernel, {**TABLE, "LENGTH": 6168, "BLOCKS": 24, "PLACES": 4096, "AT_ONCE": 64}, 4),
    ],
)
def test_kernels_compile_for_a_gpu(
    kernel: triton.JITFunction,
    constants: dict[str, int],
    warps: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    whole = {"images": "*u8", "labels": "*i64", "made": "*u8", "chosen": "*i64", "orders": "*i64"}
    bytes_ = dict.fromkeys(("table", "tables", "peaks"), "*i8")
    types = whole | (bytes_ if kernel.__module__ == foretelling.__name__ else {"tables": "*i32"})
    signature = {
        name: "constexpr" if name in constants else types.get(name, "*fp32") for name in kernel.arg_names
    }
    target = GPUTarget("cuda", 90, 32)
    made = triton.compile(
        ASTSource(kernel, signature, constants), target=target, options={"num_warps": warps}
    )
    assert made.asm["cubin"]
