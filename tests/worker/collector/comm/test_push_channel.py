"""Samples on their way to shards: none is lost, none comes twice, and not too many are under way."""

import threading
from concurrent.futures import Future

import pytest

from ding.worker.collector.comm.exchange import CollectorExchange
from ding.worker.collector.comm.push_channel import PushChannel
from ding.worker.collector.sample_sender import SampleSender
from ding.worker.transport.chunk import decode_chunk
from ding.worker.transport.ray.shard import ShardClosed, ShardLost
from ding.worker.transport.stores import MemoryPolicyStore, forget_memory_stores

DONE = {"collector_done": True, "cur_episode": 1, "cur_sample": 2, "cur_step": 2}
DEADLINE_S = 20


class ScriptedShard:
    """Keeps what is pushed; acknowledges it when it is told to, or at once."""

    def __init__(self, is_prompt: bool = True) -> None:
        self.is_prompt = is_prompt
        self.pushes, self.futures = [], []
        self.arrived = threading.Semaphore(0)
        self.failures = []  # what the next pushes end in

    def call(self, method, data, rows, compressor):
        assert method == "push"
        future = Future()
        values = [sample["value"] for sample in decode_chunk(data, compressor)]
        if self.failures:
            future.set_exception(self.failures.pop(0))
            return future
        self.pushes.append((values, list(decode_chunk(rows, "none"))))
        self.futures.append(future)
        if self.is_prompt:
            future.set_result(len(values))
        self.arrived.release()
        return future

    def values(self):
        return [value for values, _ in self.pushes for value in values]


@pytest.fixture
def open_channel():
    made = []

    def open_channel(*shards, limit_bytes=2**20, timeout_s=DEADLINE_S):
        exchange = CollectorExchange(64)
        made.append(PushChannel(shards, MemoryPolicyStore("push_policy"), exchange, limit_bytes, timeout_s))
        return made[-1]

    yield open_channel
    for channel in made:
        channel.close()
    forget_memory_stores("push_policy")


def send(channel, values, sender=None):
    sender = sender or SampleSender("env_a", channel.send_stepdata, channel.send_metadata, "lz4", 1, 0.0)
    sender.add([{"value": value} for value in values], env_id=3, collect_iter=7)
    sender.send({"cur_step": 5})
    return sender


def test_samples_go_to_the_shards_in_turn_with_their_metadata(open_channel):
    shards = ScriptedShard(), ScriptedShard()
    channel = open_channel(*shards)
    sender = send(channel, [0, 1])
    send(channel, [2], sender)
    send(channel, [3], sender)
    assert sorted([shards[0].values(), shards[1].values()]) == [[0, 1, 3], [2]]
    (_, rows), *_ = next(shard for shard in shards if len(shard.pushes) == 2).pushes
    assert [(row["data_index"], row["env_id"], row["collect_iter"], row["priority"]) for row in rows] == [
        (0, 3, 7, 1.0),
        (1, 3, 7, 1.0),
    ]
    assert not {"data_id", "compressor"} & rows[0].keys()
    (told,), infos = channel.exchange.take(1)
    assert (told["pushed"], told["dropped"], told["cur_step"], told["policy_iter"], infos) == (4, 0, 5, 7, [])


def test_metadata_of_other_makes_may_lack_most_keys(open_channel):
    shard = ScriptedShard()
    channel = open_channel(shard)
    channel.send_stepdata("folder/one", {"value": 1})
    channel.send_metadata({"data_id": "folder/one", "policy_iter": 4})
    assert shard.pushes == [([1], [{"policy_iter": 4, "collect_iter": 4}])]


def test_metadata_without_samples_are_refused(open_channel):
    with pytest.raises(AssertionError, match="'env_b_0', which was not sent before"):
        open_channel(ScriptedShard()).send_metadata([{"data_id": "env_b_0", "policy_iter": 0}])


def test_the_last_info_waits_until_all_samples_are_acknowledged(open_channel):
    shard = ScriptedShard(is_prompt=False)
    channel = open_channel(shard)
    send(channel, [0])
    telling = threading.Thread(target=channel.send_metadata, args=(DONE,))
    telling.start()
    assert channel.exchange.take(0.05) == ([], [])
    shard.futures[0].set_result(1)
    (told,), (info,) = channel.exchange.take(DEADLINE_S) if not telling.join(DEADLINE_S) else ((), ())
    assert told["pushed"] == 1 and info["collector_done"]


def test_not_too_many_bytes_are_under_way(open_channel):
    shard = ScriptedShard(is_prompt=False)
    channel = open_channel(shard, limit_bytes=1)

    def send_all():
        sender = send(channel, [0])
        for value in (1, 2):
            send(channel, [value], sender)

    sending = threading.Thread(target=send_all)
    sending.start()
    for number in range(3):
        assert shard.arrived.acquire(timeout=DEADLINE_S)
        assert not shard.arrived.acquire(timeout=0.05)
        assert shard.values() == list(range(number + 1))
        shard.futures[number].set_result(1)
    sending.join(DEADLINE_S)
    assert not sending.is_alive()


def test_shards_that_take_nothing_are_an_error(open_channel):
    channel = open_channel(ScriptedShard(is_prompt=False), limit_bytes=1, timeout_s=0.1)
    sender = send(channel, [0])
    with pytest.raises(TimeoutError, match="have taken nothing for 0.1 s"):
        send(channel, [1], sender)


def test_what_a_lost_shard_has_not_taken_goes_to_another_once(open_channel):
    shards = ScriptedShard(is_prompt=False), ScriptedShard()
    channel = open_channel(*shards)
    sender = send(channel, [0])
    send(channel, [1], sender)
    for future in shards[0].futures:
        future.set_exception(ShardLost("it has gone"))
    shards[0].pushes.clear()
    channel.send_metadata(DONE)
    assert sorted(shards[1].values()) == [0, 1]
    assert shards[0].values() == []
    (told,), _ = channel.exchange.take(1)
    assert told["pushed"] == 2


def test_a_shard_that_comes_back_after_some_time_gets_the_samples(open_channel):
    shard = ScriptedShard()
    shard.failures = [ShardLost("not there yet")] * 3
    channel = open_channel(shard)
    send(channel, [5])
    channel.send_metadata(DONE)
    assert shard.values() == [5]


def test_samples_for_a_closed_buffer_are_dropped_and_told_of(open_channel):
    shard = ScriptedShard()
    shard.failures = [ShardClosed("closed")]
    channel = open_channel(shard)
    sender = send(channel, [1, 2])
    send(channel, [3], sender)
    channel.send_metadata(DONE)
    (told,), _ = channel.exchange.take(1)
    assert (told["pushed"], told["dropped"]) == (1, 2)


def test_an_error_of_a_shard_comes_to_the_collector(open_channel):
    shard = ScriptedShard()
    shard.failures = [ValueError("another shape than before")]
    channel = open_channel(shard)
    sender = send(channel, [1])
    with pytest.raises(ValueError, match="another shape"):
        send(channel, [2], sender)


def test_close_ends_the_waits_and_nothing_is_sent_after_it(open_channel):
    shard = ScriptedShard(is_prompt=False)
    channel = open_channel(shard, limit_bytes=1)
    sender = send(channel, [0])
    waiting = threading.Thread(target=send, args=(channel, [1], sender))
    waiting.start()
    channel.close()
    waiting.join(DEADLINE_S)
    assert not waiting.is_alive()
    send(channel, [2], sender)
    assert shard.values() == [0]
    assert channel.get_policy_update_info("any") is None
