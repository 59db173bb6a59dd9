"""Sizes that are foretold by kernels for GPUs, run by Triton's interpreter, are those of processors.

`test_kernels` runs this file in a process of its own: the interpreter is chosen before Triton is imported.
"""

from __future__ import annotations

import pytest
import torch
from texcat.indexer.codes import BUDGET, _Fitter, _orders, _step
from texcat.indexer.foretelling import code_bytes
from texcat.indexer.matrices import on_device


def matrices(side: int, width: int) -> torch.Tensor:
    """Of images: much like photos, noise, one with nothing but a mean, zeros."""
    seeded = torch.Generator().manual_seed(0)
    area = side**2
    falling = torch.randn(area, 40, generator=seeded) * torch.logspace(0, -1.5, 40)
    photo = falling @ torch.randn(40, width, generator=seeded)
    noise = torch.randn(area, width, generator=seeded)
    flat = torch.zeros(area, width)
    flat[0] = torch.randn(width, generator=seeded)
    return torch.stack((photo + 0.02 * noise, noise, flat, torch.zeros(area, width)))


@pytest.mark.parametrize(("side", "width"), [(12, 96), (4, 70)])
def test_sizes(side: int, width: int) -> None:
    fitter = _Fitter(matrices(side, width), side)
    sizes = []
    for exponents in ([40, 60, 80, 20], [120, 100, 255, 0], [0, 255, 7, 255]):
        exponent = torch.tensor(exponents)
        chosen = torch.tensor([2, 0, 1, 3])
        expected = fitter._foretold(chosen, exponent)
        made = code_bytes(
            fitter._left,
            fitter._right,
            fitter._mean,
            fitter._singular,
            chosen,
            _step(exponent, fitter._size[chosen]),
            on_device(_orders, torch.device("cpu"), side**2, width),
        )
        torch.testing.assert_close(made, expected.float(), rtol=1e-4, atol=0.01)
        sizes += made.tolist()
    assert min(sizes) < 100
    assert side == 4 or max(sizes) > BUDGET / 2, "or nothing had more than a few numbers"
