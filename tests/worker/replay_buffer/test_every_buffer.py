"""What holds for every buffer of single items: any series of calls, against a plain list."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ding.utils.msgpack_helper import pack, unpack
from ding.worker.replay_buffer import (
    AdvancedReplayBuffer,
    DequeBufferWrapper,
    ElasticReplayBuffer,
    NaiveReplayBuffer,
)
from tests.fakes import FakeWriter

SIZE = 5
CLASSES = {
    "naive": NaiveReplayBuffer,
    "advanced": AdvancedReplayBuffer,
    "elastic": ElasticReplayBuffer,
    "deque": DequeBufferWrapper,
}


def made(name, **cfg):
    own = {"set_buffer_size": lambda envstep: SIZE} if name == "elastic" else {}
    return CLASSES[name]({"replay_buffer_size": SIZE, **own, **cfg}, FakeWriter(), "exp", "twin")


class Series(RuleBasedStateMachine):
    """Calls of a buffer, and the numbers of its items in the order of their arrival."""

    name: str
    keeps_gaps = False  # whether a discarded item keeps its place until it would have been overwritten
    clear_starts_anew = True  # whether `clear` sets the count of pushes back

    def __init__(self):
        super().__init__()
        self.places, self.gone, self.told, self.number, self.pushed = [], [], [], 0, 0
        self.buffer = self.listened(made(self.name))

    def listened(self, buffer):
        buffer.on_dropped = lambda items: self.told.extend(item["n"] for item in items)
        return buffer

    @property
    def held(self):
        return [n for n in self.places if n is not None]

    def leave(self, numbers):
        self.gone += numbers
        self.places = [None if n in numbers else n for n in self.places]
        if not self.keeps_gaps or not self.held:
            self.places = self.held

    def arrive(self, numbers):
        self.pushed += len(numbers)
        for n in numbers:
            self.places.append(n)
            if len(self.places) > SIZE:
                first = self.places.pop(0)
                self.gone += [] if first is None else [first]

    @rule(count=st.integers(0, 2 * SIZE + 1))
    def push_a_list(self, count):
        numbers = list(range(self.number, self.number + count))
        self.number += count
        assert self.buffer.push([{"n": n} for n in numbers], 0) == count
        self.arrive(numbers)

    @rule()
    def push_one(self):
        assert self.buffer.push({"n": self.number}, 0) == 1
        self.arrive([self.number])
        self.number += 1

    @rule(size=st.integers(1, SIZE))
    def sample(self, size):
        batch = self.buffer.sample(size, 0)
        if len(self.held) < size:
            assert batch is None
            return
        drawn = [item["n"] for item in batch]
        assert len(drawn) == size and set(drawn) <= set(self.held)
        assert self.name == "advanced" or len(set(drawn)) == size

    @rule(odd=st.integers(0, 1))
    def discard(self, odd):
        unwanted = [n for n in self.held if n % 2 == odd]
        assert self.buffer.discard(lambda item: item["n"] % 2 == odd) == len(unwanted)
        self.leave(unwanted)

    @rule()
    def clear(self):
        self.buffer.clear()
        self.leave(self.held)
        self.pushed = 0 if self.clear_starts_anew else self.pushed

    @rule()
    def go_on_from_a_state(self):
        other = made(self.name)
        other.load_state_dict(unpack(pack(self.buffer.state_dict())))
        self.buffer.on_dropped = None
        self.buffer.close()
        self.buffer = self.listened(other)

    @precondition(lambda self: self.name != "deque")  # whose files bring their capacity with them
    @rule()
    def go_on_from_a_file(self):
        self.buffer.save_data("folder/data")
        kept = self.held
        self.clear()
        self.buffer.load_data("folder/data")
        self.arrive(kept)

    @invariant()
    def all_is_as_the_list_says(self):
        seen = []
        assert self.buffer.discard(lambda item: seen.append(item["n"])) == 0
        assert seen == self.held and self.buffer.count() == len(seen)
        assert (self.buffer.push_count, self.buffer.replay_buffer_size) == (self.pushed, SIZE)
        assert sorted(self.told) == sorted(self.gone)

    def teardown(self):
        self.buffer.close()
        self.leave(self.held)
        assert sorted(self.told) == sorted(self.gone) and self.buffer.count() == 0


@pytest.mark.guarantees("data")
@pytest.mark.parametrize("name", CLASSES)
def test_any_series_of_calls_leaves_what_a_list_would(name):
    own = {"name": name, "keeps_gaps": name == "advanced", "clear_starts_anew": name in ("naive", "elastic")}
    run_state_machine_as_test(type("Own", (Series,), own), settings=settings(max_examples=30, stateful_step_count=20))


@pytest.mark.parametrize("name", CLASSES)
def test_pushes_and_samples_from_many_threads_lose_nothing(name):
    def work(seed):
        for n in range(100):
            buffer.push({"n": n}, 0)
            batch = buffer.sample(2, 0)
            assert batch is None or len(batch) == 2

    buffer = made(name)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert (buffer.push_count, buffer.count()) == (400, SIZE)
    buffer.close()


@pytest.mark.parametrize("name", ["naive", "advanced", "elastic"])
@pytest.mark.parametrize("size", [-1, SIZE + 1])
def test_an_impossible_batch_size_is_refused(name, size):
    with made(name) as buffer, pytest.raises(ValueError, match=rf"must be in \[0, {SIZE}\]"):
        buffer.sample(size, 0)


@pytest.mark.parametrize("name", ["naive", "advanced", "elastic"])
def test_deepcopy_separates_pushed_stored_and_sampled(name):
    with made(name, deepcopy=True) as buffer:
        item = {"obs": torch.zeros(1)}
        buffer.push(item, 0)
        item["obs"] += 1
        buffer.sample(1, 0)[0]["obs"] += 1
        assert buffer._data[0]["obs"].item() == 0


@pytest.mark.parametrize("name", CLASSES)
def test_a_state_of_another_version_is_refused_and_changes_nothing(name):
    buffer = made(name)
    buffer.push([{"n": 7}], 0)
    with pytest.raises(ValueError, match="is of another version"):
        buffer.load_state_dict({**buffer.state_dict(), "version": 1})
    assert (buffer.count(), buffer.push_count, buffer.discard(lambda item: item["n"] == 7)) == (1, 1, 1)
    buffer.close()


@pytest.mark.parametrize("name", CLASSES)
def test_a_state_with_data_alone_is_pushed_and_one_without_is_refused(name):
    buffer = made(name)
    buffer.load_state_dict({"data": [{"n": 0}, None, {"n": 1}]})
    assert (buffer.count(), buffer.push_count) == (2, 2)
    with pytest.raises(AssertionError):
        buffer.load_state_dict({"tail": 0})
    buffer.close()


# What a buffer tells of the items that leave it: each of them once, and no other.


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
