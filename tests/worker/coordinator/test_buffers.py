"""Buffers and the chunks behind them: a chunk goes when nobody needs it, never before, and none stays."""

import os
import threading

import pytest
from easydict import EasyDict
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.config_helper import ConfigError
from ding.utils.data.plain_columns import from_plain
from ding.utils.msgpack_helper import pack, unpack
from ding.worker.coordinator.buffer_set import BufferFill, BufferSet
from ding.worker.coordinator.limiter import SampleLimiter
from ding.worker.transport.chunk import to_content
from ding.worker.transport.stores import FolderSampleStore
from tests.worker.collector.parallel_fakes import UNTIL_NOTIFIED_S, in_thread
from tests.worker.coordinator.fakes import LOGGER


class Store:
    """Remembers which chunks are there."""

    def __init__(self):
        self.names = set()
        self.lock = threading.Lock()

    def write(self, name):
        with self.lock:
            self.names.add(name)

    def delete(self, *names):
        with self.lock:
            for name in names:
                assert name in self.names, f"{name} is deleted twice"
                self.names.remove(name)


class RecordingBuffers(BufferSet):
    def __init__(self, **cfg):
        self.store = Store()
        super().__init__("exp", self.store, LOGGER)
        self.cfg = {"type": "advanced", "replay_buffer_size": 8, **cfg}

    def fill(self, name, count=2, buffer_id="b", **more):
        """Write a chunk and push its samples."""
        self.store.write(name)
        return self.push(buffer_id, [{"data_id": name, "data_index": i, **more} for i in range(count)])


@pytest.fixture
def make_buffers():
    made = []

    def make(**cfg):
        made.append(RecordingBuffers(**cfg))
        made[-1].open("b", made[-1].cfg)
        return made[-1]

    yield make
    for buffer_set in made:
        buffer_set.close()


every_type = pytest.mark.parametrize("kind", ["naive", "advanced", "deque"])


@every_type
def test_a_chunk_stays_while_a_batch_is_on_its_way(make_buffers, kind):
    buffer_set = make_buffers(type=kind, replay_buffer_size=2)
    buffer_set.fill("a")
    batch = buffer_set.sample("t", "b", 2, 0)
    assert {row["data_id"] for row in batch} == {"a"}
    buffer_set.fill("b")
    assert buffer_set.store.names == {"a", "b"}
    buffer_set.trained("t", 1)
    assert buffer_set.store.names == {"b"}
    buffer_set.trained("t", 1)  # there is none
    buffer_set.trained("unknown", 1)
    assert buffer_set.store.names == {"b"}


@pytest.mark.parametrize("kind", ["naive", "advanced"])
def test_metadata_in_columns_are_stored_sampled_and_counted_without_being_looked_at(make_buffers, kind):
    buffer_set = make_buffers(type=kind, replay_buffer_size=4)
    for name in "abc":
        buffer_set.store.write(name)
        iters = {"policy_iter": 9, "collect_iter": 3} if name == "c" else {"policy_iter": 3}
        rows = from_plain(to_content([{"data_id": name, "data_index": i, **iters} for i in range(2)]))  # a message
        assert buffer_set.push("b", rows) == 2 and rows.table is not None
    assert buffer_set.store.names == {"b", "c"}
    batch = buffer_set.sample("t", "b", 3, 5)
    to_content(batch)
    assert batch.table is not None
    assert all(row["collect_iter"] == 3 and row["data_id"] in "bc" for row in batch)
    assert kind == "naive" or {row["staleness"] for row in batch} == {2}


def test_rows_of_which_some_tell_no_iteration_have_an_age_each_of_its_own(make_buffers):
    buffer_set = make_buffers()
    buffer_set.store.write("a")
    buffer_set.push("b", from_plain(to_content([{"data_id": "a", "policy_iter": 2 if i else None} for i in range(2)])))
    ages = {row["policy_iter"]: row["staleness"] for _ in range(20) for row in buffer_set.sample("t", "b", 2, 6)}
    assert ages == {2: 4, None: -1}


def test_stale_samples_go_with_their_chunks(make_buffers):
    buffer_set = make_buffers(max_staleness=3)
    buffer_set.fill("a", policy_iter=0)
    buffer_set.fill("b", policy_iter=0, collect_iter=2)
    batch = buffer_set.sample("t", "b", 2, 4)
    assert {row["data_id"] for row in batch} == {"b"}
    assert {row["staleness"] for row in batch} == {2}
    assert buffer_set.store.names == {"b"}
    assert buffer_set.sample("t", "b", 2, 5) is None
    buffer_set.forget_task("t")
    assert buffer_set.store.names == set()


def test_the_age_of_samples_of_players_is_that_of_the_oldest_policy(make_buffers):
    buffer_set = make_buffers()
    buffer_set.fill("a", policy_iter=[3, 1])
    assert {row["staleness"] for row in buffer_set.sample("t", "b", 2, 4)} == {3}


def test_a_refused_push_leaves_nothing(make_buffers):
    buffer_set = make_buffers(thruput_controller={"push_sample_rate_limit": {"max": 1}})
    buffer_set.fill("a")
    buffer_set.sample("t", "b", 1, 0)
    assert buffer_set.fill("b") == 0
    assert buffer_set.buffers["b"].push_count == 2 and buffer_set.store.names == {"a"}


def test_a_buffer_that_is_closed_takes_its_chunks_with_it_but_not_those_of_batches(make_buffers):
    buffer_set = make_buffers(type="naive")
    buffer_set.fill("a", 1)
    buffer_set.sample("t", "b", 1, 0)
    buffer_set.fill("b", 1)
    buffer_set.close_buffer("b")
    buffer_set.close_buffer("b")
    assert buffer_set.buffers == {} and buffer_set.store.names == {"a"}
    assert buffer_set.sample("t", "b", 1, 0) is None


def test_closing_deletes_everything_and_later_samples_too(make_buffers):
    buffer_set = make_buffers()
    buffer_set.open("c", buffer_set.cfg)
    buffer_set.fill("a")
    buffer_set.fill("b", buffer_id="c")
    buffer_set.sample("t", "b", 2, 0)
    buffer_set.close()
    assert len(buffer_set.buffers) == 0 and buffer_set.store.names == set()
    buffer_set.fill("late")
    buffer_set.close()
    assert buffer_set.store.names == set()


def test_a_deque_with_priorities_is_refused(make_buffers):
    buffer_set = make_buffers()
    with pytest.raises(ConfigError):
        buffer_set.open("c", {"type": "deque", "priority": True})


def test_priorities_reach_the_buffer(make_buffers):
    buffer_set = make_buffers()
    buffer_set.fill("a", 2)
    batch = buffer_set.sample("t", "b", 2, 0)
    info = {key: [row[key] for row in batch] for key in ("replay_unique_id", "replay_buffer_idx")}
    assert buffer_set.update("b", {**info, "priority": [5.0] * len(batch)}) is True
    again = buffer_set.sample("t", "b", 2, 0)
    updated = {row["replay_buffer_idx"] for row in batch}
    assert all(row["priority"] == pytest.approx(5.0, abs=1e-4) for row in again if row["replay_buffer_idx"] in updated)
    assert {"IS", "use", "staleness"} <= again[0].keys()


@pytest.mark.parametrize("end", [lambda buffer_set: buffer_set.fill("a"), BufferSet.close])
@pytest.mark.parametrize("is_before", [False, True])
def test_a_wait_for_samples_ends_with_the_next_push_or_the_close_also_if_it_comes_just_before(
    make_buffers, end, is_before
):
    buffer_set = make_buffers()
    assert buffer_set.sample("t", "b", 1, 0) is None
    if is_before:
        end(buffer_set)
    waiting = in_thread(buffer_set.wait_for_push, "t", UNTIL_NOTIFIED_S)
    if not is_before:
        end(buffer_set)
    assert waiting() is None


actions = st.one_of(
    st.tuples(st.just("push"), st.integers(1, 5)),
    st.tuples(st.just("sample"), st.integers(1, 4)),
    st.tuples(st.just("trained"), st.integers(1, 3)),
    st.tuples(st.just("learn"), st.integers(1, 2)),
    st.tuples(st.just("reopen"), st.just(0)),
)


@pytest.mark.differs(
    "never deletes files of samples, or deletes files with the same names in the working directory",
    "deletes each file when nothing needs it any more",
)
@settings(max_examples=60)
@given(st.sampled_from(["naive", "advanced"]), st.sampled_from([1, 2, float("inf")]), st.lists(actions, max_size=30))
def test_the_chunks_that_are_there_are_those_that_are_needed(kind, max_use, steps):
    limits = {"max_use": max_use, "max_staleness": 3} if kind == "advanced" else {}
    buffer_set = RecordingBuffers(type=kind, replay_buffer_size=6, **limits)
    buffer_set.open("b", buffer_set.cfg)
    iteration, under_way = 0, []
    try:
        for number, (action, count) in enumerate(steps):
            if action == "push":
                buffer_set.fill(f"chunk{number}", count, policy_iter=iteration)
            elif action == "sample":
                batch = buffer_set.sample("t", "b", count, iteration)
                under_way += [] if batch is None else [batch]
            elif action == "trained":
                buffer_set.trained("t", count)
                del under_way[:count]
            elif action == "learn":
                iteration += count
            else:
                buffer_set.close_buffer("b")
                buffer_set.open("b", buffer_set.cfg)
            stored = [item for item in buffer_set.buffers["b"]._data if item is not None]
            needed = {row["data_id"] for rows in [stored, *under_way] for row in rows}
            assert buffer_set.store.names == needed
    finally:
        buffer_set.close()
    assert buffer_set.store.names == set()


# The limiter.


def limited(tolerance=4):
    buffer_set = RecordingBuffers(replay_buffer_size=100)
    buffer_set.create_limiter = lambda: SampleLimiter(1.0, tolerance)
    buffer_set.open("b", buffer_set.cfg)
    return buffer_set


def test_a_learner_that_is_ahead_gets_no_batch_until_more_samples_come():
    buffer_set = limited()
    buffer_set.fill("a", 4)
    assert len(buffer_set.sample("t", "b", 4, 0)) == 4
    assert buffer_set.sample("t", "b", 4, 0) is None
    waiting = in_thread(buffer_set.wait_for_push, "t", UNTIL_NOTIFIED_S)
    buffer_set.fill("b", 4)
    waiting()
    assert len(buffer_set.sample("t", "b", 4, 0)) == 4
    buffer_set.close()


@pytest.mark.parametrize("event", ["drawn", "closed", "ended"])
def test_collectors_that_are_ahead_wait_for_the_learner(event):
    buffer_set = limited()
    buffer_set.fill("a", 4)
    buffer_set.sample("t", "b", 4, 0)
    buffer_set.fill("b", 9)
    assert not buffer_set.ask("b", "c", 0)
    waiting = in_thread(buffer_set.ask, "b", "c", UNTIL_NOTIFIED_S)
    if event == "drawn":
        assert len(buffer_set.sample("t", "b", 4, 0)) == 4
        assert len(buffer_set.sample("t", "b", 4, 0)) == 4
    elif event == "closed":
        buffer_set.close_buffer("b")
    else:
        buffer_set.wake()
    waiting()
    buffer_set.close()


def test_a_collector_waits_for_the_answer_of_another_that_may_use_up_the_tolerance():
    buffer_set = limited(tolerance=4)
    buffer_set.fill("a", 4)
    buffer_set.sample("t", "b", 4, 0)
    assert buffer_set.ask("b", "c", 0) and buffer_set.ask("b", "d", 0) and buffer_set.ask("b", "e", 0)
    assert not buffer_set.ask("b", "f", 0)
    waiting = in_thread(buffer_set.ask, "b", "f", UNTIL_NOTIFIED_S)
    buffer_set.answered("b", "c")
    waiting()
    buffer_set.close()


def test_collectors_do_not_wait_for_a_learner_for_which_the_buffer_has_no_batch():
    buffer_set = limited()
    buffer_set.fill("a", 4)
    buffer_set.sample("t", "b", 4, 0)
    buffer_set.fill("b", 9)
    waiting = in_thread(buffer_set.ask, "b", "c", UNTIL_NOTIFIED_S)
    assert buffer_set.sample("t", "b", 99, 0) is None
    waiting()
    buffer_set.close()


# Buffer sets that are restored from another one: with all samples whose chunks exist, and no unneeded chunk.


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
