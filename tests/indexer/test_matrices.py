"""Products with small matrices, and the largest of numbers."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from texcat.indexer.matrices import largest


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_largest_of_numbers_in_any_order_of_memory(order: tuple[int, int, int]) -> None:
    numbers = torch.arange(-24.0, 0).reshape(2, 3, 4)
    assert largest(numbers.permute(order)) == 24
    numbers[1, 2, 3] = 25
    assert largest(numbers.permute(order)) == 25
    numbers[0, 1, 2] = torch.nan
    assert largest(numbers.permute(order)).isnan()


def test_the_largest_of_numbers_that_are_not_all_there() -> None:
    numbers = torch.arange(-24.0, 0).reshape(2, 3, 4)
    assert largest(numbers[:, 1:, ::2]) == 20
    assert largest(numbers[:1, :1].expand(5, 3, 4)) == 24
