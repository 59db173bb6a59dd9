"""What a computation on a device asks its host: whether it is done, how large something is, and to do
what a device is bad at. All else is a sequence of kernels that can be recorded (`indexer/graphs.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from ..matrices import fetch

Step = Callable[[Tensor], tuple[Tensor, Tensor]]


class Control:
    """Does at once what is asked."""

    def repeat(self, step: Step, state: Tensor, usual: int) -> Tensor:
        """The state after the last round that changed something.

        Args:
            step: from a state to the next, and whether that is another, bool []. A round after one that
                changed nothing changes nothing.
            state: to start with.
            usual: as many rounds may as well be done before it is looked.
        """
        changed = True
        while changed:
            state, told = step(state)
            changed = bool(told)
        return state

    def below(self, labels: Tensor, usual: int) -> int:
        """A number that all `labels`, whole numbers from 0 on, are below; `usual` is one for most images."""
        return int(labels.max()) + 1

    def on_host(self, function: Callable[..., NDArray[Any]], out: Tensor, *inputs: Tensor) -> Tensor:
        """`out`, filled with what `function` makes of arrays with the values of `inputs`."""
        return out.copy_(torch.from_numpy(function(*fetch(*inputs))))
