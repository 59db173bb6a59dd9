"""Pipelines of threads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from threading import Barrier, Event, Lock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texcat.indexer.threads import Stages

LATE = 20.0
"""Seconds after which what is waited for does not come."""


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 40), st.integers(0, 1 << 30))
def test_items_stay_in_order_and_few_are_under_way(workers: list[int], count: int, seed: int) -> None:
    lock, random = Lock(), Random(seed)
    working, most = [0] * len(workers), [0] * len(workers)
    taken: list[int] = []

    def items() -> Iterator[tuple[int, ...]]:
        for item in range(count):
            taken.append(item)
            yield (item,)

    def work(stage: int, item: tuple[int, ...]) -> tuple[int, ...]:
        with lock:
            working[stage] += 1
            most[stage] = max(most[stage], working[stage])
            seconds = random.choice([0, 0, 0.001])
        time.sleep(seconds)
        with lock:
            working[stage] -= 1
        return (*item, stage)

    made = []
    with Stages() as stages:
        for stage, many in enumerate(workers):
            stages.add(str(stage), many, lambda item, stage=stage: work(stage, item))
        for result in stages.run(items()):
            made.append(result)
            assert len(taken) - len(made) < sum(workers) + len(workers)
        times = stages.times()
    assert made == [(item, *range(len(workers))) for item in range(count)]
    assert all(seen <= many for seen, many in zip(most, workers, strict=True))
    assert [(each.name, each.workers) for each in times] == [(str(n), many) for n, many in enumerate(workers)]


@pytest.mark.parametrize("waiting", [1, 3])
def test_a_late_stage_that_is_slow_keeps_none_before_it_waiting(waiting: int) -> None:
    room = 2 + 1 + waiting  # of the first stage, and of this one, which works on one
    encoded = [Event() for _ in range(room + 2)]

    def encode(item: int) -> int:
        encoded[item].set()
        return item

    def write(item: int) -> int:
        if item == 0:
            assert encoded[room - 1].wait(LATE)
            assert not encoded[room].is_set()
        return item

    with Stages() as stages:
        stages.add("encode", 1, encode)
        stages.add("write", 1, write, waiting=waiting)
        assert list(stages.run(range(room + 2))) == list(range(room + 2))


def test_stages_work_at_the_same_time() -> None:
    both = Barrier(2)

    def meet(item: int) -> int:
        both.wait(LATE)
        return item

    with Stages() as stages:
        stages.add("one", 1, lambda item: item if item == 0 else meet(item))
        stages.add("two", 1, lambda item: item if item == 1 else meet(item))
        assert list(stages.run([0, 1])) == [0, 1]


@pytest.mark.parametrize("fails", ["one", "two", "items"])
def test_an_error_ends_it(fails: str) -> None:
    begun: list[int] = []

    def work(name: str, item: int) -> int:
        if name == fails and item == 3:
            raise ValueError(name)
        return item

    def items() -> Iterator[int]:
        for item in range(100):
            begun.append(item)
            if fails == "items" and item == 3:
                raise ValueError("items")
            yield item

    with Stages() as stages:
        stages.add("one", 1, lambda item: work("one", item))
        stages.add("two", 2, lambda item: work("two", item))
        with pytest.raises(ValueError, match=fails):
            list(stages.run(items()))
    assert len(begun) < 20
