"""The deque buffer behind the interface of the worker layer."""

import pytest
import torch
from easydict import EasyDict

from ding.data.buffer import DequeBufferWrapper
from tests.fakes import FakeWriter


def make(tb=None, **cfg) -> DequeBufferWrapper:
    return DequeBufferWrapper(EasyDict({"replay_buffer_size": 8, **cfg}), tb, "exp", "demo")


def items(count: int, **more) -> list[dict]:
    return [{"n": i, **more} for i in range(count)]


@pytest.mark.differs("crashes in the deque buffer without a TensorBoard writer", "works without")
def test_sampling_hands_out_stored_dicts_without_a_tb_logger():
    buffer = make()
    pushed = items(10)
    buffer.push(pushed, cur_collector_envstep=10)
    assert (buffer.count(), buffer.push_count, buffer.replay_buffer_size) == (8, 10, 8)
    batch = buffer.sample(8, 0)
    assert sorted(item["n"] for item in batch) == list(range(2, 10))
    assert all(item is pushed[item["n"]] for item in batch)
    buffer.push({"n": 99})
    assert buffer.push_count == 11


def test_too_few_items_give_none_and_a_line_in_the_log_but_no_warning(caplog):
    caplog.set_level("INFO", "ding")
    buffer = make()
    buffer.push(items(2))
    assert buffer.sample(3, 0) is None
    assert [record.levelname for record in caplog.records] == ["INFO"]


@pytest.mark.differs(
    "refreshes priorities of the deque buffer only on calls that log, one in 100",
    "refreshes them after every sample",
)
def test_priorities_are_refreshed_after_every_sample():
    buffer = make(priority=True, train_iter_per_log=100)
    buffer.push(items(4))
    for train_iter in range(3):
        batch = buffer.sample(4, train_iter)
        buffer.update({"priority": [train_iter * 10.0 + item["n"] for item in batch]})
        by_number = {record.data["n"]: record.meta["priority"] for record in buffer.buffer}
        assert all(by_number[item["n"]] == train_iter * 10.0 + item["n"] for item in batch)


def test_updates_are_cut_off_and_used_once():
    buffer = make(priority=True, priority_max_limit=5)
    buffer.push(items(1))
    buffer.update({"priority": [3.0]})
    assert buffer.buffer[0].meta["priority"] == 1.0
    buffer.sample(1)
    with pytest.raises(KeyError):
        buffer.update({})
    with pytest.raises(ValueError, match="give one for each of the 1 items"):
        buffer.update({"priority": [1.0, 2.0]})
    buffer.update({"priority": torch.tensor([9.0])})
    assert buffer.buffer[0].meta["priority"] == 5.0
    buffer.update({"priority": [2.0]})
    assert buffer.buffer[0].meta["priority"] == 5.0


def test_importance_weights_go_into_copies():
    buffer = make(priority=True, priority_IS_weight=True)
    pushed = [{"n": 0, "priority": 1.0}, {"n": 1, "priority": 4.0}]
    buffer.push(pushed)
    for item in buffer.sample(2):
        assert type(item["IS"]) is float and item["priority_IS"].shape == (1,)
        assert item["IS"] == item["priority_IS"].item()
    assert all(set(record.data) == {"n"} for record in buffer.buffer)
    assert pushed == [{"n": 0, "priority": 1.0}, {"n": 1, "priority": 4.0}]


def test_a_prioritized_batch_may_exceed_the_count_but_needs_an_item():
    buffer = make(priority=True)
    with pytest.raises(AssertionError):
        buffer.sample(1)
    buffer.push(items(2))
    assert len(buffer.sample(5)) == 5


@pytest.mark.differs("crashes in the deque buffer with `priority` and `max_use`", "works with both")
def test_priority_and_max_use_work_together():
    buffer = make(priority=True, priority_IS_weight=True, max_use=2, replay_buffer_size=200)
    uses: dict[int, int] = {}
    for i in range(50):
        buffer.push([{"n": 2 * i}, {"n": 2 * i + 1}])
        batch = buffer.sample(2, i)
        for item in batch:
            uses[item["n"]] = uses.get(item["n"], 0) + 1
        buffer.update({"priority": [1.0, 2.0]})
    assert max(uses.values()) <= 3  # an item may come up twice in the sample that uses it up
    assert 0 < buffer.count() < 100


def test_logs_are_written_at_the_first_sample_and_then_at_a_distance():
    tb = FakeWriter()
    buffer = make(tb, priority=True, max_use=100, train_iter_per_log=10)
    buffer.push(items(4))
    for train_iter in (3, 4, 12, 13, 14, 23):
        buffer.sample(2, train_iter)
    assert {step for _, _, step in tb.scalars} == {3, 13, 23}
    assert {tag: value for tag, value, step in tb.scalars if step == 3} == {
        "demo_iter/use_count_avg": 1.0,
        "demo_iter/priority_avg": 1.0,
        "demo_iter/priority_max": 1.0,
        "demo_iter/buffer_data_count": 4,
    }
    plain = FakeWriter()
    buffer = make(plain)
    buffer.push(items(4))
    buffer.sample(2, 0)
    assert plain.scalars == [("demo_iter/buffer_data_count", 4, 0)]


@pytest.mark.differs(
    "lacks `clear`, `close`, `start` and states in the deque buffer",
    "has the whole interface of a buffer",
)
def test_the_whole_buffer_interface_is_there():
    tb = FakeWriter()
    buffer = make(tb, priority=True)
    buffer.start()
    buffer.push(items(4))
    buffer.clear()
    assert buffer.count() == 0
    buffer.close()
    buffer.close()
    assert tb.closed == 0 and tb.flushed == 2


@pytest.mark.parametrize("priority", [False, True])
def test_files_and_states_keep_items_priorities_and_draws(tmp_path, priority):
    buffer = make(priority=priority)
    buffer.push([{"n": i, "obs": torch.ones(1) * i} for i in range(6)])
    buffer.sample(2)
    buffer.update({"priority": [7.0, 8.0]})
    buffer.save_data(str(tmp_path / "a" / "data"))
    loaded, restored = make(priority=priority), make(priority=priority)
    loaded.load_data(str(tmp_path / "a" / "data"))
    restored.load_state_dict(buffer.state_dict())
    for other in (loaded, restored):
        assert [r.data["n"] for r in other.buffer] == list(range(6))
        if priority:
            expected = [r.meta["priority"] for r in buffer.buffer]
            assert [r.meta["priority"] for r in other.buffer] == expected
    assert [i["n"] for i in restored.sample(4)] == [i["n"] for i in buffer.sample(4)]
    if priority:
        restored.update({"priority": [50.0] * 4})
        assert max(r.meta["priority"] for r in buffer.buffer) == 8.0
    assert restored.push_count == 6
    assert len(loaded.sample(4)) == 4


@pytest.mark.differs(
    "restarts the counts of uses when a buffer is loaded, and loses the priorities of the deque buffer",
    "saves and loads both",
)
@pytest.mark.parametrize("priority", [False, True])
def test_use_counts_go_on_after_save_and_load(tmp_path, priority):
    cfg = {"max_use": 3, "priority": priority, "priority_IS_weight": priority, "replay_buffer_size": 1}
    buffer = make(**cfg)
    buffer.push(items(1))
    assert len(buffer.sample(1)) == len(buffer.sample(1)) == 1
    buffer.save_data(str(tmp_path / "data"))
    other = make(**cfg)
    other.load_data(str(tmp_path / "data"))
    assert other.count() == 1
    other.sample(1)  # the third use
    assert other.count() == 0
