"""What a buffer tells of the items that leave it: each of them once, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ding.utils.data.samples import Table
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


every_buffer = pytest.mark.parametrize("make", ["naive", "advanced", "deque"], indirect=True)


@every_buffer
def test_items_that_are_overwritten_are_told_oldest_first(make):
    buffer, dropped = make(4)
    buffer.push(items(0, 3), 0)
    assert dropped == []
    buffer.push(items(3, 6), 0)
    assert dropped == [0, 1]
    for item in items(6, 9):
        buffer.push(item, 0)
    assert dropped == [0, 1, 2, 3, 4]
    buffer.save_data("data")
    buffer.load_data("data")
    assert dropped == list(range(9))


@pytest.mark.differs(
    "nothing is notified of the items that leave a buffer",
    "`on_dropped` is: overwritten, used up, stale and cleared ones, each once",
)
@every_buffer
@pytest.mark.parametrize("count", [4, 5, 8, 11])
def test_of_a_push_beyond_the_capacity_all_but_the_newest_are_told(make, count):
    buffer, dropped = make(4)
    buffer.push(items(0, 2), 0)
    buffer.push(items(2, 2 + count), 0)
    assert dropped == list(range(count - 2))
    assert buffer.count() == 4


@every_buffer
def test_nobody_has_to_listen(make):
    buffer, dropped = make(4)
    assert buffer.on_dropped is dropped
    buffer.on_dropped = None
    buffer.push(items(0, 6), 0)
    buffer.clear()
    assert dropped == []


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


@pytest.mark.parametrize("make", ["advanced"], indirect=True)
def test_used_up_items_whose_files_are_tracked_are_told_when_they_are_overwritten(make):
    buffer, dropped = make(4, max_use=1, enable_track_used_data=True)
    buffer.push([{"n": n, "data_id": f"no_such_file_{n}"} for n in range(4)], 0)
    buffer.sample(1, 0)
    assert dropped == []
    buffer._used_data_remover.add_used_data = lambda item: None
    buffer.push({"n": 4, "data_id": "x"}, 0)
    assert dropped == [0]


@pytest.mark.parametrize("make", ["deque"], indirect=True)
def test_many_items_of_a_deque_that_are_used_up_at_once_are_told(make):
    buffer, dropped = make(32, max_use=1)
    buffer.push(items(0, 32), 0)
    used = sorted(item["n"] for item in buffer.sample(20))
    assert sorted(dropped) == used and buffer.count() == 12


@pytest.mark.parametrize("make", ["deque"], indirect=True)
def test_a_state_that_is_loaded_into_a_deque_replaces_its_items(make):
    buffer, dropped = make(4)
    buffer.push(items(0, 2), 0)
    state = buffer.state_dict()
    buffer.push(items(2, 4), 0)
    buffer.load_state_dict(state)
    assert dropped == [0, 1, 2, 3] and buffer.count() == 2


def told_to_fail(items: list[dict[str, Any]]) -> None:
    raise RuntimeError("on_dropped failed")


def assert_counts_what_it_holds(buffer: Any, numbers: set[int]) -> None:
    kept: list[int] = []
    buffer.discard(lambda item: kept.append(item["n"]) or False)
    assert set(kept) == numbers and buffer.count() == len(kept) == len(numbers)
    monitor = getattr(buffer, "_periodic_thruput_monitor", None)
    if monitor is not None:
        assert monitor.push_data_count - monitor.remove_data_count == monitor.valid_count == len(kept)


@every_buffer
def test_a_callback_that_raises_leaves_the_counts_of_a_push_right(make):
    buffer, _ = make(4)
    buffer.push(items(0, 3), 0)
    buffer.on_dropped = told_to_fail
    with pytest.raises(RuntimeError, match="on_dropped failed"):
        buffer.push([{"n": 3}, {"n": 4}], 0)
    assert_counts_what_it_holds(buffer, {1, 2, 3, 4})
    assert buffer.push_count == 5
    for n in range(5, 8):
        with pytest.raises(RuntimeError):
            buffer.push({"n": n}, 0)
    assert_counts_what_it_holds(buffer, {4, 5, 6, 7})
    assert buffer.push_count == 8
    buffer.on_dropped = None
    assert {item["n"] for _ in range(30) for item in buffer.sample(2, 0)} == {4, 5, 6, 7}


@every_buffer
def test_a_callback_that_raises_leaves_the_counts_of_a_removal_right(make):
    buffer, dropped = make(6)
    buffer.push(items(0, 9), 0)
    buffer.on_dropped = told_to_fail
    with pytest.raises(RuntimeError):
        buffer.discard(lambda item: item["n"] % 2)
    assert_counts_what_it_holds(buffer, {4, 6, 8})
    with pytest.raises(RuntimeError):
        buffer.clear()
    assert_counts_what_it_holds(buffer, set())
    buffer.on_dropped = dropped
    buffer.push(items(20, 24), 0)
    assert_counts_what_it_holds(buffer, {20, 21, 22, 23})
    buffer.clear()
    assert sorted(dropped) == [0, 1, 2, 20, 21, 22, 23]


@pytest.mark.parametrize("make", ["advanced", "deque"], indirect=True)
def test_a_callback_that_raises_leaves_the_counts_of_used_up_items_right(make):
    buffer, _ = make(4, max_use=1)
    buffer.push(items(0, 4), 0)
    buffer.on_dropped = told_to_fail
    with pytest.raises(RuntimeError):
        buffer.sample(1, 0)
    assert buffer.count() == 3
    buffer.on_dropped = None
    assert len({item["n"] for item in buffer.sample(1, 0)}) == 1 and buffer.count() == 2


@pytest.mark.parametrize("make", ["deque"], indirect=True)
@pytest.mark.parametrize("is_block", [False, True])
def test_a_callback_that_raises_leaves_a_deque_of_another_capacity_whole(make, is_block):
    buffer, _ = make(6)
    pushed = items(0, 6)
    buffer.push(Table.of(pushed) if is_block else pushed, 0)
    buffer.on_dropped = told_to_fail
    with pytest.raises(RuntimeError):
        buffer.buffer.size = 4
    assert_counts_what_it_holds(buffer, {2, 3, 4, 5})
    assert (buffer.replay_buffer_size, buffer.push_count) == (4, 6)


@pytest.mark.parametrize("make", ["naive", "advanced"], indirect=True)
def test_a_callback_may_use_the_buffer(make):
    (buffer, _), told = make(4), []

    def push_again(gone: list[dict[str, Any]]) -> None:
        told.extend(item["n"] for item in gone)
        if len(told) < 6:
            buffer.push([{"n": 100 + item["n"]} for item in gone], 0)

    buffer.push(items(0, 4), 0)
    buffer.on_dropped = push_again
    buffer.push(items(4, 6), 0)
    assert told == [0, 1, 2, 3, 4, 5]
    buffer.on_dropped = None
    assert_counts_what_it_holds(buffer, {100, 101, 102, 103})


@pytest.mark.parametrize("make", ["naive", "advanced"], indirect=True)
def test_a_buffer_whose_callback_raises_closes_all_the_same(make):
    buffer, _ = make(4, enable_track_used_data=True)
    buffer.start()
    buffer.push({"n": 0, "data_id": "no_such_file"}, 0)
    buffer.on_dropped = told_to_fail
    with pytest.raises(RuntimeError):
        buffer.close()
    assert buffer.count() == 0 and buffer._used_data_remover._thread is None
