"""Buffers and the chunks behind them: a chunk goes when nobody needs it, never before, and none stays."""

import logging
import threading

import pytest
from easydict import EasyDict
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.config_helper import ConfigError
from ding.worker.coordinator.buffers import BufferSet
from ding.worker.transport.chunk import from_text, to_text
from ding.worker.transport.stores import FolderSampleStore

LOGGER = logging.getLogger("test_buffer_room")


class Store:
    """Remembers which chunks are there."""

    def __init__(self):
        self.names = set()
        self.sweeps = 0
        self.lock = threading.Lock()

    def write(self, name):
        with self.lock:
            self.names.add(name)

    def delete(self, name):
        with self.lock:
            assert name in self.names, f"{name} is deleted twice"
            self.names.remove(name)

    def sweep(self):
        self.sweeps += 1


class Room(BufferSet):
    def __init__(self, **cfg):
        self.store = Store()
        super().__init__("exp", self.store, LOGGER)
        self.cfg = {"type": "advanced", "replay_buffer_size": 8, **cfg}

    def fill(self, name, count=2, buffer_id="b", **more):
        """Write a chunk and push its samples."""
        self.store.write(name)
        return self.push(buffer_id, [{"data_id": name, "data_index": i, **more} for i in range(count)])


@pytest.fixture
def make_room():
    made = []

    def make(**cfg):
        made.append(Room(**cfg))
        made[-1].open("b", made[-1].cfg)
        return made[-1]

    yield make
    for room in made:
        room.close()


every_type = pytest.mark.parametrize("kind", ["naive", "advanced", "deque"])


@every_type
def test_a_chunk_goes_with_its_last_sample(make_room, kind):
    room = make_room(type=kind)
    for name in "abcd":
        assert room.fill(name) == 2
    assert room.store.names == set("abcd")
    room.fill("e", 1)
    assert room.store.names == set("abcde")  # one sample of a is left
    room.fill("f", 1)
    assert room.store.names == set("bcdef")


@every_type
def test_a_chunk_stays_while_a_batch_is_on_its_way(make_room, kind):
    room = make_room(type=kind, replay_buffer_size=2)
    room.fill("a")
    batch = room.sample("t", "b", 2, 0)
    assert {row["data_id"] for row in batch} == {"a"}
    room.fill("b")
    assert room.store.names == {"a", "b"}
    room.trained("t", 1)
    assert room.store.names == {"b"}
    room.trained("t", 1)  # there is none
    room.trained("unknown", 1)
    assert room.store.names == {"b"}


def in_columns(rows):
    """Rows as they come out of a message."""
    return from_text(to_text(rows))


@pytest.mark.parametrize("kind", ["naive", "advanced"])
def test_metadata_in_columns_are_stored_sampled_and_counted_without_being_looked_at(make_room, kind):
    room = make_room(type=kind, replay_buffer_size=4)
    for name in "abc":
        room.store.write(name)
        rows = in_columns([{"data_id": name, "data_index": i, "policy_iter": 3} for i in range(2)])
        assert room.push("b", rows) == 2 and rows.has_columns
    assert room.store.names == {"b", "c"}
    batch = room.sample("t", "b", 3, 5)
    to_text(batch)
    assert batch.has_columns
    assert all(row["collect_iter"] == 3 and row["data_id"] in "bc" for row in batch)
    assert kind == "naive" or {row["staleness"] for row in batch} == {2}


def test_rows_of_which_some_tell_no_iteration_have_an_age_each_of_its_own(make_room):
    room = make_room()
    room.store.write("a")
    room.push("b", in_columns([{"data_id": "a", "policy_iter": 2 if i else None} for i in range(2)]))
    ages = {row["policy_iter"]: row["staleness"] for _ in range(20) for row in room.sample("t", "b", 2, 6)}
    assert ages == {2: 4, None: -1}


@every_type
def test_who_changes_a_batch_does_not_change_which_chunks_are_needed(make_room, kind):
    room = make_room(type=kind, replay_buffer_size=2)
    room.store.write("a")
    room.push("b", in_columns([{"data_id": "a", "data_index": i} for i in range(2)]))
    batch = room.sample("t", "b", 2, 0)
    batch.clear()
    room.fill("b")
    assert room.store.names == {"a", "b"}
    room.trained("t", 1)
    assert room.store.names == {"b"}


def test_batches_are_let_go_in_the_order_they_were_given(make_room):
    room = make_room(type="naive", replay_buffer_size=1)
    for name in "abc":
        room.fill(name, 1)
        room.sample("t", "b", 1, 0)
    room.fill("d", 1)
    room.trained("t", 2)
    assert room.store.names == set("cd")
    room.forget_task("t")
    assert room.store.names == {"d"}
    room.forget_task("t")


def test_samples_that_are_used_up_by_a_batch_stay_until_it_is_trained(make_room):
    room = make_room(max_use=1)
    room.fill("a", 1)
    room.sample("t", "b", 1, 0)
    assert room.buffers["b"].count() == 0 and room.store.names == {"a"}
    room.trained("t", 1)
    assert room.store.names == set()


def test_stale_samples_go_with_their_chunks(make_room):
    room = make_room(max_staleness=3)
    room.fill("a", policy_iter=0)
    room.fill("b", policy_iter=2, collect_iter=2)
    batch = room.sample("t", "b", 2, 4)
    assert {row["data_id"] for row in batch} == {"b"}
    assert {row["staleness"] for row in batch} == {2}
    assert room.store.names == {"b"}
    assert room.sample("t", "b", 2, 5) is None
    room.forget_task("t")
    assert room.store.names == set()


def test_the_age_of_samples_of_players_is_that_of_the_oldest_policy(make_room):
    room = make_room()
    room.fill("a", policy_iter=[3, 1])
    assert {row["staleness"] for row in room.sample("t", "b", 2, 4)} == {3}


def test_samples_without_an_iteration_have_no_age(make_room):
    room = make_room(max_staleness=1)
    room.fill("a")
    assert {row["staleness"] for row in room.sample("t", "b", 2, 400)} == {-1}


def test_samples_for_an_unknown_buffer_leave_nothing(make_room):
    room = make_room()
    assert room.fill("a", buffer_id="unknown") is None
    assert room.store.names == set()


def test_a_refused_push_leaves_nothing(make_room):
    room = make_room(thruput_controller={"push_sample_rate_limit": {"max": 1}})
    room.fill("a")
    room.sample("t", "b", 1, 0)
    assert room.fill("b") == 0
    assert room.buffers["b"].push_count == 2 and room.store.names == {"a"}


def test_a_push_that_fails_leaves_nothing(make_room):
    room = make_room()
    room.fill("a")
    with pytest.raises(ValueError, match="priority"):
        room.fill("b", priority=-1.0)
    assert room.store.names == {"a"}


def test_a_push_of_more_than_the_buffer_holds_keeps_the_newest(make_room):
    room = make_room(type="naive", replay_buffer_size=3)
    room.store.write("a")
    room.store.write("b")
    room.push("b", [{"data_id": "a"}] * 3 + [{"data_id": "b"}] * 3)
    assert room.store.names == {"b"}


def test_a_buffer_that_is_closed_takes_its_chunks_with_it_but_not_those_of_batches(make_room):
    room = make_room(type="naive")
    room.fill("a", 1)
    room.sample("t", "b", 1, 0)
    room.fill("b", 1)
    room.close_buffer("b")
    room.close_buffer("b")
    assert room.buffers == {} and room.store.names == {"a"}
    assert room.sample("t", "b", 1, 0) is None


def test_closing_deletes_everything_and_later_samples_too(make_room):
    room = make_room()
    room.open("c", room.cfg)
    room.fill("a")
    room.fill("b", buffer_id="c")
    room.sample("t", "b", 2, 0)
    room.close()
    assert len(room.buffers) == 0 and room.store.names == set() and room.store.sweeps == 1
    room.fill("late")
    room.close()
    assert room.store.names == set()


def test_a_buffer_of_another_make_keeps_its_chunks_until_the_end(make_room, monkeypatch):
    class Foreign:
        def __init__(self):
            self.items = []

        def start(self):
            pass

        def push(self, rows, envstep):
            assert envstep == -1
            self.items += rows

        def sample(self, size, cur_learner_iter):
            return self.items[:size] if len(self.items) >= size else None

        def close(self):
            self.items.clear()

    monkeypatch.setattr("ding.worker.coordinator.buffers.create_buffer", lambda cfg, exp_name: Foreign())
    room = make_room()
    room.open("c", {})
    assert room.fill("a", buffer_id="c") == 2
    assert room.sample("t", "c", 3, 0) is None
    assert len(room.sample("t", "c", 2, 0)) == 2
    room.forget_task("t")
    room.close_buffer("c")
    assert room.store.names == {"a"}
    room.close()
    assert room.store.names == set()


def test_a_buffer_is_opened_once(make_room):
    room = make_room()
    buffer = room.buffers["b"]
    room.open("b", {"type": "naive"})
    assert room.buffers["b"] is buffer


def test_a_deque_with_priorities_is_refused(make_room):
    room = make_room()
    with pytest.raises(ConfigError, match="use type = 'advanced'"):
        room.open("c", {"type": "deque", "priority": True})


def test_an_empty_deque_gives_no_batch_and_no_warning(make_room, caplog):
    room = make_room(type="deque")
    room.fill("a")
    assert room.sample("t", "b", 3, 0) is None
    assert "too few items" not in caplog.text
    assert len(room.sample("t", "b", 2, 0)) == 2


def test_used_data_are_tracked_by_chunks_alone(make_room):
    cfg = EasyDict(type="advanced", replay_buffer_size=2, enable_track_used_data=True)
    room = make_room()
    room.open("c", cfg)
    room.fill("a", buffer_id="c")
    assert room.buffers["c"]._used_data_remover._thread is None
    assert cfg.enable_track_used_data is True  # the caller's config is left alone


def test_priorities_reach_the_buffer(make_room):
    room = make_room()
    room.fill("a", 2)
    batch = room.sample("t", "b", 2, 0)
    info = {key: [row[key] for row in batch] for key in ("replay_unique_id", "replay_buffer_idx")}
    assert room.update("b", {**info, "priority": [5.0] * len(batch)}) is True
    again = room.sample("t", "b", 2, 0)
    updated = {row["replay_buffer_idx"] for row in batch}
    assert all(row["priority"] == pytest.approx(5.0, abs=1e-4) for row in again if row["replay_buffer_idx"] in updated)
    assert {"IS", "use", "staleness"} <= again[0].keys()


def test_no_priorities_are_no_news_and_an_unknown_buffer_is_told(make_room):
    room = make_room(type="naive")
    room.buffers["b"].update = None  # not called
    assert room.update("b", {}) is True
    assert room.update("unknown", {}) is False


def test_a_wait_for_samples_ends_with_the_next_push(make_room):
    room = make_room()
    assert room.sample("t", "b", 1, 0) is None
    waiter = threading.Thread(target=room.wait_for_push, args=("t", 30))
    waiter.start()
    room.fill("a")
    waiter.join(10)
    assert not waiter.is_alive()


def test_a_push_between_the_sample_and_the_wait_is_not_missed(make_room):
    room = make_room()
    assert room.sample("t", "b", 1, 0) is None
    room.fill("a")
    room.wait_for_push("t", float("inf"))


def test_closing_ends_a_wait_for_samples(make_room):
    room = make_room()
    assert room.sample("t", "b", 1, 0) is None
    waiter = threading.Thread(target=room.wait_for_push, args=("t", 30))
    waiter.start()
    room.close()
    waiter.join(10)
    assert not waiter.is_alive()


def test_a_wait_for_samples_has_an_end(make_room):
    room = make_room()
    room.sample("t", "b", 1, 0)
    room.wait_for_push("t", 0.001)
    room.wake()
    room.wait_for_push("t", float("inf"))


def test_chunks_outside_the_folder_are_left_alone(tmp_path, caplog):
    outside = tmp_path / "sample"
    outside.write_bytes(b"x")
    room = BufferSet("exp", FolderSampleStore("data"), LOGGER)
    room.open("b", {"type": "naive", "replay_buffer_size": 1})
    room.push("b", [{"data_id": "../sample"}, {"data_id": "../other"}])
    room.close()
    assert outside.exists() and caplog.text.count("left where they are") == 1


def test_without_a_store_nothing_is_deleted():
    room = BufferSet("exp", None, LOGGER)
    room.open("b", {"type": "naive", "replay_buffer_size": 1})
    room.push("b", [{"data_id": "a"}, {"data_id": "b"}])
    room.close()


actions = st.one_of(
    st.tuples(st.just("push"), st.integers(1, 5)),
    st.tuples(st.just("sample"), st.integers(1, 4)),
    st.tuples(st.just("trained"), st.integers(1, 3)),
    st.tuples(st.just("learn"), st.integers(1, 2)),
    st.tuples(st.just("reopen"), st.just(0)),
)


@settings(max_examples=60)
@given(st.sampled_from(["naive", "advanced"]), st.sampled_from([1, 2, float("inf")]), st.lists(actions, max_size=30))
def test_the_chunks_that_are_there_are_those_that_are_needed(kind, max_use, steps):
    limits = {"max_use": max_use, "max_staleness": 3} if kind == "advanced" else {}
    room = Room(type=kind, replay_buffer_size=6, **limits)
    room.open("b", room.cfg)
    iteration, under_way = 0, []
    try:
        for number, (action, count) in enumerate(steps):
            if action == "push":
                room.fill(f"chunk{number}", count, policy_iter=iteration)
            elif action == "sample":
                batch = room.sample("t", "b", count, iteration)
                under_way += [] if batch is None else [batch]
            elif action == "trained":
                room.trained("t", count)
                del under_way[:count]
            elif action == "learn":
                iteration += count
            else:
                room.close_buffer("b")
                room.open("b", room.cfg)
            stored = [item for item in room.buffers["b"]._data if item is not None]
            needed = {row["data_id"] for rows in [stored, *under_way] for row in rows}
            assert room.store.names == needed
    finally:
        room.close()
    assert room.store.names == set()


def test_nobody_can_push_a_batch_out_before_it_is_noted(make_room):
    room = make_room(type="naive", replay_buffer_size=2)
    room.fill("a")
    add, was_locked = room._ledger.add, []
    room._ledger.add = lambda rows: (was_locked.append(room._lock.locked()), add(rows))
    room.sample("t", "b", 2, 0)
    assert was_locked == [True]


@pytest.mark.parametrize("kind", ["naive", "advanced"])
def test_collectors_and_learners_at_work_never_lose_a_chunk_they_need(make_room, kind):
    room = make_room(type=kind, replay_buffer_size=40)
    errors = []
    done = threading.Event()

    def collect(worker):
        for number in range(150):
            room.fill(f"env_{worker}_{number}", 4)

    def learn(task):
        while not done.is_set():
            batch = room.sample(task, "b", 8, 0)
            if batch is None:
                room.wait_for_push(task, 0.05)
                continue
            errors.extend(row["data_id"] for row in batch if row["data_id"] not in room.store.names)
            room.trained(task, 1)

    learners = [threading.Thread(target=learn, args=(f"t{i}",)) for i in range(2)]
    collectors = [threading.Thread(target=collect, args=(i,)) for i in range(2)]
    for thread in learners + collectors:
        thread.start()
    for thread in collectors:
        thread.join(60)
    done.set()
    for thread in learners:
        thread.join(60)
    assert errors == []
    assert len(room.store.names) == len({item["data_id"] for item in room.buffers["b"]._data})
