"""The advanced buffer against a dict of slots, under random calls."""

import contextlib
import logging
import os
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.worker.replay_buffer import AdvancedReplayBuffer

SIZE = 7
priorities = st.floats(0, 10).map(lambda p: round(p, 2))
calls = st.one_of(
    st.tuples(st.just("push"), st.lists(st.one_of(st.none(), priorities), max_size=2 * SIZE + 1)),
    st.tuples(st.just("update"), st.lists(st.tuples(st.integers(0, SIZE - 1), st.booleans(), priorities), max_size=9)),
    st.tuples(st.just("sample"), st.integers(1, SIZE)),
    st.tuples(st.just("clear"), st.none()),
)


class Twin:
    """Slots as dicts, everything one item at a time."""

    def __init__(self, max_use: int) -> None:
        self.slots: list[dict | None] = [None] * SIZE
        self.max_use, self.tail, self.next_id, self.max_priority = max_use, 0, 0, 1.0

    def push(self, given: list[float | None]) -> None:
        for priority in given:
            p = self.max_priority if priority is None else priority
            self.slots[self.tail] = {"id": f"twin_{self.next_id}", "priority": p if p else 1e-5, "use": 0}
            self.tail, self.next_id = (self.tail + 1) % SIZE, self.next_id + 1

    def update(self, changes: list[tuple[int, str, float]]) -> None:
        for slot, unique_id, priority in changes:
            item = self.slots[slot]
            if item is not None and item["id"] == unique_id:
                item["priority"] = priority + 1e-5
                self.max_priority = max(self.max_priority, priority)

    def use(self, slots: list[int]) -> None:
        for slot in slots:
            self.slots[slot]["use"] += 1
        for slot in set(slots):
            if self.slots[slot]["use"] >= self.max_use:
                self.slots[slot] = None

    def clear(self) -> None:
        self.slots, self.tail, self.max_priority = [None] * SIZE, 0, 1.0


@pytest.fixture(scope="module", autouse=True)
def quiet() -> None:
    logging.getLogger("twin_logger").disabled = True
    yield
    logging.getLogger("twin_logger").disabled = False


@settings(max_examples=50)
@given(st.lists(calls, max_size=12), st.integers(1, 4))
def test_any_series_of_calls_leaves_the_books_of_the_twin(series, max_use):
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        cfg = {"replay_buffer_size": SIZE, "max_use": max_use}
        exp_name = os.path.relpath(folder)
        buffer = stack.enter_context(AdvancedReplayBuffer(cfg, exp_name=exp_name, instance_name="twin"))
        buffer._log.tb = None
        twin = Twin(max_use)
        for name, argument in series:
            _call(buffer, twin, name, argument)
            _compare(buffer, twin)


def _call(buffer: AdvancedReplayBuffer, twin: Twin, name: str, argument) -> None:
    if name == "push":
        buffer.push([{} if p is None else {"priority": p} for p in argument], 0)
        twin.push(argument)
    elif name == "update":
        ids = [item["id"] if item else "gone" for item in twin.slots]
        changes = [(slot, ids[slot] if known else "twin_9999", p) for slot, known, p in argument]
        slots, unique_ids, given = (list(column) for column in zip(*changes, strict=True)) if changes else ([], [], [])
        buffer.update({"replay_unique_id": unique_ids, "replay_buffer_idx": slots, "priority": given})
        twin.update(changes)
    elif name == "sample":
        batch = buffer.sample(argument, 0)
        assert (batch is None) == (sum(item is not None for item in twin.slots) < argument)
        if batch is not None:
            weights = {slot: item["priority"] ** 0.6 for slot, item in enumerate(twin.slots) if item}
            for item in batch:
                slot = item["replay_buffer_idx"]
                assert item["replay_unique_id"] == twin.slots[slot]["id"]
                assert item["priority"] == twin.slots[slot]["priority"]
                assert 0 < item["IS"] <= 1
                beta = np.log(item["IS"]) / np.log(min(weights.values()) / weights[slot]) if item["IS"] < 1 else 0.4
                assert 0.39 < beta <= 0.5
            twin.use([item["replay_buffer_idx"] for item in batch])
    else:
        buffer.clear()
        twin.clear()


def _compare(buffer: AdvancedReplayBuffer, twin: Twin) -> None:
    assert buffer._tail == twin.tail and buffer._next_unique_id == twin.next_id
    assert buffer._max_priority == twin.max_priority
    assert buffer.count() == sum(item is not None for item in twin.slots)
    for held, item in zip(buffer._data, twin.slots, strict=True):
        assert (held is None) == (item is None)
        if item is not None:
            assert (held["replay_unique_id"], held["priority"], held["use"]) == (
                item["id"],
                item["priority"],
                item["use"],
            )
    weights = [item["priority"] ** 0.6 if item else 0.0 for item in twin.slots]
    assert buffer._sum_tree.reduce() == pytest.approx(sum(weights), abs=1e-9)
    assert buffer._index.least_weight == pytest.approx(min((w for w in weights if w), default=np.inf), abs=1e-12)
