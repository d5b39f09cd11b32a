"""Buffer sets that are restored from another one: with all samples whose chunks exist, and no unneeded chunk."""

import logging
import os

import pytest
from easydict import EasyDict
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.msgpack_helper import pack, unpack
from ding.worker.coordinator.buffer_set import BufferFill, BufferSet
from ding.worker.coordinator.limiter import SampleLimiter
from ding.worker.transport.stores import FolderSampleStore

LOGGER = logging.getLogger("test_kept_buffers")
KINDS = {
    "naive": {"type": "naive"},
    "advanced": {"type": "advanced"},
    "advanced, used once": {"type": "advanced", "max_use": 1},
    "deque": {"type": "deque"},
    "deque, used twice": {"type": "deque", "max_use": 2},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


class BufferSets:
    """Buffer sets that share a store of chunks in memory."""

    def __init__(self):
        self.store = FolderSampleStore(os.path.join("exp", "data"))
        self.made = []

    def make(self):
        self.made.append(BufferSet("exp", self.store, LOGGER))
        return self.made[-1]

    def fill(self, buffer_set, chunk, count=2, **more):
        name = f"env_c_{chunk}"
        self.store.write(name, b"")
        return buffer_set.push("b", [{"data_id": name, "data_index": i, "priority": 1.0, **more} for i in range(count)])

    def succeed(self, buffer_set):
        """Another buffer set after this one, which stays as a killed process leaves it."""
        kept = unpack(pack(buffer_set.freeze("b", {})))
        buffer_set.is_deleting = False
        buffer_set.close()
        successor = self.make()
        return successor, kept

    def close(self):
        for buffer_set in self.made:
            buffer_set.close()


@pytest.fixture
def made():
    made = BufferSets()
    yield made
    made.close()


def content(buffer_set, buffer_id="b"):
    seen = []
    buffer_set.buffers[buffer_id].discard(lambda row: seen.append((row["data_id"], row["data_index"])) or False)
    return seen


@every_kind
@settings(max_examples=25)
@given(steps=st.lists(st.tuples(st.sampled_from(["fill", "sample", "trained"]), st.integers(1, 3)), max_size=20))
def test_of_all_chunks_those_stay_that_are_needed(kind, steps):
    made = BufferSets()
    try:
        buffer_set = made.make()
        buffer_set.open("b", {**KINDS[kind], "replay_buffer_size": 6})
        for chunk, (step, count) in enumerate(steps):
            if step == "fill":
                made.fill(buffer_set, chunk, count)
            elif step == "sample":
                buffer_set.sample("t", "b", count, 0)
            else:
                buffer_set.trained("t", count)
        held = content(buffer_set)
        second, kept = made.succeed(buffer_set)
        assert second.restore("b", **kept) == (len(held), 0)
        second.delete_unneeded()
        assert content(second) == held
        assert made.store.names() == {name for name, _ in held}
    finally:
        made.close()


def test_a_buffer_that_is_not_open_yet_is_opened_empty(made):
    first = made.make()
    kept = first.freeze("b", EasyDict(type="naive", replay_buffer_size=5, deepcopy=False))
    assert kept == {
        "cfg": {"type": "naive", "replay_buffer_size": 5, "deepcopy": False},
        "content": None,
        "counts": None,
    }
    second = made.make()
    assert second.restore("b", **kept) == (0, 0) and second.levels() == [BufferFill("b", 0, 5, 0.0, None, 0.0)]


def test_functions_of_a_config_are_left_out(made):
    buffer_set = made.make()
    cfg = {"type": "elastic", "set_buffer_size": len, "replay_buffer_size": 5, "more": {"f": len, "x": 1}}
    assert buffer_set.freeze("b", cfg)["cfg"] == {"type": "elastic", "replay_buffer_size": 5, "more": {"x": 1}}


@pytest.mark.parametrize(
    ("folder", "left"),
    [(os.path.join("exp", "data"), set()), (os.path.join("exp_2", "data"), {"env_c_1", "env_d_0"})],
)
def test_where_other_runs_may_have_chunks_none_is_deleted(folder, left):
    store = FolderSampleStore(folder)
    first = BufferSet("exp", store, LOGGER)
    first.open("b", {"type": "naive", "replay_buffer_size": 5})
    store.write("env_c_0", b"")
    first.push("b", [{"data_id": "env_c_0", "data_index": 0}])
    kept = first.freeze("b", {})
    for name in ("env_c_1", "env_d_0"):
        store.write(name, b"")
    second = BufferSet("exp", store, LOGGER)
    second.restore("b", **kept)
    assert second.delete_unneeded() == 2 - len(left)
    assert store.names() == {"env_c_0", *left}
    second.close()
    first.close()


def test_the_counts_of_the_limiter_are_kept(made):
    first, second = made.make(), made.make()
    for buffers in (first, second):
        buffers.create_limiter = lambda: SampleLimiter(1.0, 4)
    first.open("b", {"type": "naive", "replay_buffer_size": 50})
    first.push("b", [{"n": i} for i in range(8)])
    assert len(first.sample("t", "b", 4, 0)) == 4
    second.restore("b", **unpack(pack(first.freeze("b", {}))))
    assert second.sample("t", "b", 4, 0) is None
    second.push("b", [{"n": i} for i in range(4)])
    assert len(second.sample("t", "b", 4, 0)) == 4
