"""Samples on their way to shards: none is lost, none arrives twice, and not too many are under way."""

import threading
from concurrent.futures import Future

import pytest

from ding.utils.data.samples import Samples, Table
from ding.worker.collector.comm import collector_session as collector_session
from ding.worker.collector.comm.collector_session import CollectorQueue, ShardSession
from ding.worker.collector.task_collector import SampleSender
from ding.worker.transport.chunk import decode_chunk
from ding.worker.transport.ray.shard import ShardClosed, ShardLost
from ding.worker.transport.stores import MemoryPolicyStore, forget_memory_stores

DONE = {"collector_done": True, "cur_episode": 1, "cur_sample": 2, "cur_step": 2}
DEADLINE_S = 60


class ScriptedShard:
    """Keeps the pushed samples; acknowledges them at once if it is prompt.

    Attributes:
        calls: of each call the size of its parts.
        futures: of each call.
        failures: the errors that the next calls end in.
    """

    def __init__(self, is_prompt: bool = True) -> None:
        self.is_prompt = is_prompt
        self.calls, self.futures, self.failures = [], [], []
        self.samples, self.rows = [], []
        self.arrived = threading.Semaphore(0)

    def call(self, method, parts):
        assert method == "push"
        future = Future()
        if self.failures:
            future.set_exception(self.failures.pop(0))
            return future
        decoded = [decode_chunk(*part) for part in parts]
        self.calls.append([len(samples) for samples in decoded])
        for item in (item for samples in decoded for item in samples):
            self.samples.append({key: item.pop(key) for key in ("value", "more") if key in item})
            self.rows.append(item)
        self.futures.append(future)
        if self.is_prompt:
            future.set_result(sum(self.calls[-1]))
        self.arrived.release()
        return future

    def values(self):
        return [sample["value"] for sample in self.samples]


@pytest.fixture
def open_session():
    made = []

    def open_session(*shards, limit_bytes=2**20, timeout_s=DEADLINE_S):
        queue = CollectorQueue(64)
        made.append(ShardSession(shards, MemoryPolicyStore("push_policy"), queue, limit_bytes, timeout_s))
        return made[-1]

    yield open_session
    for session in made:
        session.close()
    forget_memory_stores("push_policy")


def send(session, values, sender=None):
    sender = sender or SampleSender("env_a", session.send_stepdata, session.send_metadata, "lz4", 1, 0.0)
    sender.add(Samples(Table.of([{"value": value} for value in values])), env_id=3, collect_iter=7)
    sender.send({"cur_step": 5})
    return sender


def finish(session):
    """Wait until all samples are acknowledged; returns what is reported of them."""
    session.send_metadata(DONE)
    (report,), _ = session.queue.take(1)
    return report


def test_samples_go_to_the_shards_in_turn_with_their_metadata(open_session):
    shards = ScriptedShard(), ScriptedShard()
    session = open_session(*shards)
    sender = send(session, [0, 1])
    send(session, [2], sender)
    send(session, [3], sender)
    report = finish(session)
    assert [shard.values() for shard in shards] == [[0, 1, 3], [2]]
    common = {"env_id": 3, "collect_iter": 7, "policy_iter": 7, "priority": 1.0, "unroll_len": 1, "cur_step": 5}
    assert shards[1].rows == [{**common, "cur_sample": 3}]
    assert [row["cur_sample"] for row in shards[0].rows] == [1, 2, 4]
    assert [report[key] for key in ("pushed", "dropped", "cur_step", "policy_iter")] == [4, 0, 5, 7]


def test_what_gathers_during_a_call_goes_in_the_next_one_as_one_chunk(open_session):
    shard = ScriptedShard(is_prompt=False)
    session = open_session(shard)
    sender = send(session, [0])
    assert shard.arrived.acquire(timeout=DEADLINE_S)
    for values in ([1, 2], [3], [4, 5, 6]):
        send(session, values, sender)
    assert not shard.arrived.acquire(timeout=0.05)
    shard.is_prompt = True
    shard.futures[0].set_result(1)
    assert finish(session)["pushed"] == 7
    assert shard.calls == [[1], [6]]
    assert shard.values() == [0, 1, 2, 3, 4, 5, 6]
    assert [row["cur_sample"] for row in shard.rows] == [1, 2, 3, 4, 5, 6, 7]


def test_a_call_is_not_larger_than_its_limit(open_session, monkeypatch):
    monkeypatch.setattr(collector_session, "_CALL_BYTES", 16)  # of two integers
    shard = ScriptedShard(is_prompt=False)
    session = open_session(shard)
    sender = send(session, [0])
    assert shard.arrived.acquire(timeout=DEADLINE_S)
    for values in ([1], [2], [3], [4, 5, 6], [7]):
        send(session, values, sender)
    shard.is_prompt = True
    shard.futures[0].set_result(1)
    finish(session)
    assert shard.calls == [[1], [2], [1], [3], [1]]


def test_chunks_that_are_not_alike_go_in_one_call_as_they_are(open_session):
    shard = ScriptedShard(is_prompt=False)
    session = open_session(shard)
    sender = send(session, [0])
    assert shard.arrived.acquire(timeout=DEADLINE_S)
    send(session, [1], sender)
    send(session, ["two"], sender)  # an object: encoded when it is sent
    for samples in ([{"value": 3, "more": 1}], [{"value": 4}]):
        sender.add(Samples(Table.of(samples)), env_id=3, collect_iter=7)
        sender.send({"cur_step": 5})
    session.send_stepdata("five", {"value": 5})
    session.send_metadata({"data_id": "five", "policy_iter": 4})
    shard.is_prompt = True
    shard.futures[0].set_result(1)
    assert finish(session)["pushed"] == 6
    assert shard.calls == [[1], [1, 1, 1, 1, 1]]
    assert shard.samples[1:] == [{"value": 1}, {"value": "two"}, {"value": 3, "more": 1}, {"value": 4}, {"value": 5}]
    assert [row.get("cur_sample") for row in shard.rows] == [1, 2, 3, 4, 5, None]


def test_objects_are_sent_as_they_were_when_they_were_given(open_session):
    shard = ScriptedShard(is_prompt=False)
    session = open_session(shard)
    sender = send(session, [0])
    assert shard.arrived.acquire(timeout=DEADLINE_S)
    info = {"told": [1], "other": "text"}
    send(session, [info, None], sender)
    info["told"].append(2)
    shard.is_prompt = True
    shard.futures[0].set_result(1)
    finish(session)
    assert shard.values() == [0, {"told": [1], "other": "text"}, None]


def test_samples_that_cannot_be_encoded_are_an_error(open_session):
    session = open_session(ScriptedShard())
    with pytest.raises(TypeError, match="cannot be packed"):
        send(session, [object()])


def test_an_unknown_compressor_is_an_error(open_session):
    session = open_session(ScriptedShard())
    sender = SampleSender("env_a", session.send_stepdata, session.send_metadata, "lzip", 1, 0.0)
    send(session, [1], sender)
    with pytest.raises(KeyError, match="lzip"):
        session.send_metadata(DONE)


def test_metadata_of_other_collectors_may_lack_most_keys(open_session):
    shard = ScriptedShard()
    session = open_session(shard)
    session.send_stepdata("folder/one", {"value": 1})
    session.send_metadata({"data_id": "folder/one", "policy_iter": 4})
    finish(session)
    assert (shard.values(), shard.rows) == ([1], [{"policy_iter": 4, "collect_iter": 4}])


def test_metadata_without_samples_are_refused(open_session):
    with pytest.raises(AssertionError, match="'env_b_0', which was not sent before"):
        open_session(ScriptedShard()).send_metadata([{"data_id": "env_b_0", "policy_iter": 0}])


def test_the_last_info_waits_until_all_samples_are_acknowledged(open_session):
    shard = ScriptedShard(is_prompt=False)
    session = open_session(shard)
    send(session, [0])
    telling = threading.Thread(target=session.send_metadata, args=(DONE,))
    telling.start()
    assert session.queue.take(0.05) == ([], [])
    assert shard.arrived.acquire(timeout=DEADLINE_S)
    shard.futures[0].set_result(1)
    telling.join(DEADLINE_S)
    (report,), (info,) = session.queue.take(DEADLINE_S)
    assert report["pushed"] == 1 and info["collector_done"]


def test_not_too_many_bytes_are_under_way(open_session):
    shard = ScriptedShard(is_prompt=False)
    session = open_session(shard, limit_bytes=1)

    def send_all():
        sender = send(session, [0])
        for value in (1, 2):
            send(session, [value], sender)

    sending = threading.Thread(target=send_all)
    sending.start()
    for number in range(3):
        assert shard.arrived.acquire(timeout=DEADLINE_S)
        assert not shard.arrived.acquire(timeout=0.05)
        assert shard.values() == list(range(number + 1))
        shard.futures[number].set_result(1)
    sending.join(DEADLINE_S)
    assert not sending.is_alive()


def test_shards_that_take_nothing_are_an_error(open_session):
    session = open_session(ScriptedShard(is_prompt=False), limit_bytes=1, timeout_s=0.1)
    sender = send(session, [0])
    with pytest.raises(TimeoutError, match="have taken nothing for 0.1 s"):
        send(session, [1], sender)


def test_what_a_lost_shard_has_not_taken_goes_to_another_once(open_session):
    shards = ScriptedShard(is_prompt=False), ScriptedShard()
    session = open_session(*shards)
    sender = send(session, [0])
    send(session, [1], sender)
    assert shards[0].arrived.acquire(timeout=DEADLINE_S)
    shards[0].futures[0].set_exception(ShardLost("it has gone"))
    assert finish(session)["pushed"] == 2
    assert sorted(shards[1].values()) == [0, 1]


def test_a_shard_that_comes_back_after_some_time_gets_the_samples_in_order(open_session):
    shard = ScriptedShard()
    shard.failures = [ShardLost("not there yet")] * 3
    session = open_session(shard)
    sender = send(session, [5])
    send(session, [6], sender)
    assert finish(session)["pushed"] == 2
    assert shard.values() == [5, 6]


def test_samples_for_a_closed_buffer_are_dropped_and_reported(open_session):
    shard = ScriptedShard(is_prompt=False)
    session = open_session(shard)
    sender = send(session, [1, 2])
    assert shard.arrived.acquire(timeout=DEADLINE_S)
    send(session, [3], sender)
    shard.is_prompt = True
    shard.futures[0].set_exception(ShardClosed("closed"))
    report = finish(session)
    assert (report["pushed"], report["dropped"]) == (1, 2)


def test_an_error_of_a_shard_is_raised_in_the_collector(open_session):
    shard = ScriptedShard()
    shard.failures = [ValueError("another shape than before")]
    session = open_session(shard)
    send(session, [1])
    with pytest.raises(ValueError, match="another shape"):
        session.send_metadata(DONE)


def test_close_ends_the_waits_and_the_thread_and_nothing_is_sent_after_it(open_session):
    shard = ScriptedShard(is_prompt=False)
    before = set(threading.enumerate())
    session = open_session(shard, limit_bytes=1)
    sender = send(session, [0])
    assert shard.arrived.acquire(timeout=DEADLINE_S)
    waiting = threading.Thread(target=send, args=(session, [1], sender))
    waiting.start()
    session.close()
    waiting.join(DEADLINE_S)
    assert set(threading.enumerate()) <= before
    send(session, [2], sender)
    assert shard.values() == [0]
    assert session.get_policy_update_info("any") is None
