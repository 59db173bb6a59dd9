from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton
from texcat.indexer.channels import kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

INTERPRETED = Path(__file__).with_name("interpreted_kernels.py")


def test_kernels_for_gpus_give_what_torch_gives() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", INTERPRETED]
    ended = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout


PIXELS = {"SIDE": 512, "CELL": 16, "WIDTH": 64}
GRID = {"SIDE": 128, "CENTRES": 10, "STEP": 13, "AREA": 256}


@pytest.mark.parametrize(
    ("kernel", "constants"),
    [
        (kernels._mean_kernel, {**PIXELS, "BLOCK": 4}),
        (kernels._edge_kernel, PIXELS),
        (kernels._assign_kernel, {**GRID, "LAST": False}),
        (kernels._assign_kernel, {**GRID, "LAST": True}),
        (kernels._move_kernel, {"CENTRES": 10, "KINDS": 128}),
    ],
)
def test_kernels_compile_for_a_gpu(
    kernel: triton.JITFunction,
    constants: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    types = {"images": "*u8", "labels": "*i64"}
    signature = {
        name: "constexpr" if name in constants else types.get(name, "*fp32") for name in kernel.arg_names
    }
    target = GPUTarget("cuda", 90, 32)
    made = triton.compile(ASTSource(kernel, signature, constants), target=target, options={"num_warps": 1})
    assert made.asm["cubin"]
