"""What a buffer tells of the items that leave it: each of them once, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ding.worker.replay_buffer import DequeBufferWrapper


class Dropped(list[int]):
    """The numbers of the items that were told to have left."""

    def __call__(self, items: list[dict[str, Any]]) -> None:
        assert items, "told of nothing"
        self.extend(item["n"] for item in items)


def items(start: int, stop: int, **more: Any) -> list[dict[str, Any]]:
    return [{"n": n, **more} for n in range(start, stop)]


@pytest.fixture
def make(request, make_naive, make_advanced) -> Iterator[Callable[..., tuple[Any, Dropped]]]:
    def make_deque(size: int = 64, **cfg: Any) -> DequeBufferWrapper:
        return DequeBufferWrapper({"replay_buffer_size": size, **cfg})

    makers = {"naive": make_naive, "advanced": make_advanced, "deque": make_deque}

    def make(size: int, kind: str = request.param, **cfg: Any) -> tuple[Any, Dropped]:
        buffer, dropped = makers[kind](size, **cfg), Dropped()
        buffer.on_dropped = dropped
        return buffer, dropped

    yield make


@pytest.mark.parametrize("make", ["advanced", "deque"], indirect=True)
def test_items_that_are_used_up_are_told(make):
    buffer, dropped = make(4, max_use=2)
    buffer.push(items(0, 4), 0)
    uses = dict.fromkeys(range(4), 0)
    for _ in range(8):
        if buffer.count() < 2:
            break
        for item in buffer.sample(2, 0):
            uses[item["n"]] += 1
        assert sorted(dropped) == [n for n, count in uses.items() if count >= 2]
    assert len(dropped) >= 3


@pytest.mark.parametrize("make", ["advanced"], indirect=True)
def test_stale_items_are_told(make):
    buffer, dropped = make(8, max_staleness=3)
    buffer.push(items(0, 2, collect_iter=0), 0)
    buffer.push(items(2, 4, collect_iter=1), 0)
    buffer.push(items(4, 6, collect_iter=4), 0)
    assert buffer.sample(1, 2) is not None and dropped == []
    assert buffer.sample(1, 3) is not None and dropped == [0, 1]
    assert buffer.sample(4, 5) is None and dropped == [0, 1, 2, 3]
