"""The naive buffer: what it holds, what it hands out, in which order."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from easydict import EasyDict
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.data.buffer import DequeBuffer
from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.data.buffer_interface import IBuffer as DataIBuffer
from ding.utils.config_helper import ConfigError
from ding.utils.data.samples import Samples, Table
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.worker.replay_buffer import (
    AdvancedReplayBuffer,
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    IBuffer,
    NaiveReplayBuffer,
    SequenceReplayBuffer,
    create_buffer,
    get_buffer_cls,
)
from tests.fakes import FakeWriter


def items(start: int, stop: int) -> list[dict]:
    return [{"n": i} for i in range(start, stop)]


def test_items_may_be_of_any_type_and_a_tuple_is_one_item(make_naive):
    buffer = make_naive(4)
    buffer.push((1, 2), 0)
    buffer.push([torch.zeros(2), np.zeros(2), "text"], 0)
    buffer.push([np.ones(2)], 0)
    assert buffer.count() == 4 and buffer.push_count == 5


def test_none_is_refused(make_naive):
    with pytest.raises(ValueError, match="an item is None"):
        make_naive(4).push([{"n": 0}, None], 0)


@pytest.mark.differs("prints from buffers, commanders and leagues", "logs")
def test_too_few_items_give_none_and_a_log_line(make_naive):
    buffer = make_naive(8, name="short")
    assert buffer.sample(1, 0) is None and buffer.sample(1, 0, replace=True) is None
    buffer.push(items(0, 2), 0)
    assert buffer.sample(3, 0) is None
    assert len(buffer.sample(3, 0, replace=True)) == 3
    assert "too few" in Path("exp/log/short/short_logger.txt").read_text()


@settings(max_examples=80)
@given(
    st.integers(0, 20), st.builds(slice, *[st.one_of(st.none(), st.integers(-12, 12))] * 2, st.sampled_from([1, 2, -1]))
)
def test_a_sample_range_selects_what_slicing_the_items_from_the_oldest_selects(pushed, sample_range):
    with NaiveReplayBuffer({"replay_buffer_size": 8}, FakeWriter(), "exp") as buffer:
        buffer.push(items(0, pushed), 0)
        selected = [item["n"] for item in items(max(0, pushed - 8), pushed)[sample_range]]
        if selected:
            assert sorted(i["n"] for i in buffer.sample(len(selected), 0, sample_range)) == sorted(selected)
        elif pushed:
            with pytest.raises(ValueError, match="selects 0 items"):
                buffer.sample(1, 0, sample_range)


def test_a_sample_range_with_too_few_items_is_an_error(make_naive):
    buffer = make_naive(8)
    buffer.push(items(0, 8), 0)
    with pytest.raises(ValueError, match="selects 2 items"):
        buffer.sample(3, 0, sample_range=slice(0, 2))
    with pytest.raises(ValueError):
        buffer.sample(3, 0, sample_range=slice(8, None), replace=True)
    with pytest.raises(TypeError):
        buffer.sample(1, 0, sample_range=3)


def test_update_changes_nothing_and_says_so(make_naive):
    buffer = make_naive(4, name="quiet")
    buffer.update({"priority": [1.0]})
    assert "nothing to update" in Path("exp/log/quiet/quiet_logger.txt").read_text()


@pytest.mark.differs("loads None items from a saved naive buffer that was not full", "saves and loads only its items")
def test_a_buffer_that_is_not_full_saves_and_loads_only_its_items(make_naive):
    buffer, other = make_naive(8), make_naive(8, name="other")
    buffer.push([{"obs": torch.arange(3.0) + i, "n": i} for i in range(5)], 0)
    buffer.save_data("deep/folder/data.msgpack")
    other.load_data("deep/folder/data.msgpack")
    assert (other.count(), other.push_count) == (5, 5)
    assert [item["n"] for item in other._data[:5]] == list(range(5))
    assert torch.equal(other._data[4]["obs"], torch.arange(3.0) + 4)
    assert len(other.sample(5, 0)) == 5


def test_a_file_of_another_kind_is_refused(make_naive):
    Path("text").write_text("hello")
    with pytest.raises(ValueError, match="is not a buffer data file"):
        make_naive(4).load_data("text")
    Path("other").write_bytes(pack({"some": "thing"}))
    with pytest.raises(ValueError):
        make_naive(4).load_data("other")
    DequeBuffer(2).save_data("records")
    with pytest.raises(ValueError):
        make_naive(4).load_data("records")


def data_files(start: int, stop: int) -> list[dict]:
    for i in range(start, stop):
        Path(f"data_{i}").write_text("x")
    return [{"data_id": f"data_{i}"} for i in range(start, stop)]


def test_files_of_overwritten_and_cleared_items_are_removed(make_naive):
    buffer = make_naive(4, enable_track_used_data=True)
    buffer.start()
    buffer.push(data_files(0, 6), 0)
    buffer._used_data_remover.close()
    assert sorted(p.name for p in Path().glob("data_*")) == ["data_2", "data_3", "data_4", "data_5"]
    buffer.start()
    buffer.clear()
    buffer.close()
    assert list(Path().glob("data_*")) == []


@pytest.mark.differs("leaves the threads of a closed buffer running", "ends them in `close`")
def test_close_may_be_repeated_leaves_no_thread_and_a_shared_tb_logger_open(make_naive, tb):
    threads = threading.active_count()
    buffer = make_naive(4, tb_logger=tb, enable_track_used_data=True)
    buffer.start()
    buffer.start()
    buffer.close()
    buffer.close()
    assert (tb.flushed, tb.closed) == (1, 0) and threading.active_count() <= threads
    buffer.push({"n": 0}, 0)
    assert buffer.count() == 1


# The elastic buffer: draws from as many of the newest items as it is told.


def drawn(buffer: ElasticReplayBuffer, size: int, rounds: int = 60) -> set[int]:
    return {item["n"] for _ in range(rounds) for item in buffer.sample(size, 0)}


def test_only_the_newest_items_are_drawn_as_many_as_update_says(make_elastic):
    asked = []

    def set_buffer_size(envstep):
        asked.append(envstep)
        return 3 if envstep < 100 else 5

    buffer = make_elastic(8, set_buffer_size=set_buffer_size)
    buffer.push(items(0, 6), 6)
    assert drawn(buffer, 2) == {3, 4, 5}
    buffer.update(100)
    assert drawn(buffer, 2) == {1, 2, 3, 4, 5}
    buffer.push(items(6, 11), 200)
    assert drawn(buffer, 5) == {6, 7, 8, 9, 10}
    buffer.update(50)
    assert drawn(buffer, 3, rounds=1) == {8, 9, 10}
    assert asked == [0, 100, 50]
    assert (buffer.count(), buffer.push_count, buffer.replay_buffer_size) == (8, 11, 8)


def test_a_size_above_the_items_there_draws_from_all(make_elastic):
    buffer = make_elastic(4, set_buffer_size=lambda envstep: float("inf"))
    buffer.push(items(0, 6), 0)
    assert drawn(buffer, 4, rounds=1) == {2, 3, 4, 5}


def test_too_few_among_the_newest_give_none(make_elastic):
    buffer = make_elastic(8, set_buffer_size=lambda envstep: 2)
    buffer.push(items(0, 8), 0)
    assert buffer.sample(3, 0) is None
    assert {item["n"] for item in buffer.sample(50, 0, replace=True)} == {6, 7}
    none = make_elastic(8, name="none", set_buffer_size=lambda envstep: 0)
    none.push(items(0, 8), 0)
    assert none.sample(1, 0, replace=True) is None


def test_a_sample_range_is_refused(make_elastic):
    buffer = make_elastic(8, set_buffer_size=lambda envstep: 2)
    buffer.push(items(0, 8), 0)
    with pytest.raises(AssertionError):
        buffer.sample(1, 0, sample_range=slice(-1, None))


def test_the_function_is_required_and_must_be_one():
    with pytest.raises(AttributeError):
        ElasticReplayBuffer(ElasticReplayBuffer.default_config(), exp_name="exp")
    assert not Path("exp").exists()
    with pytest.raises(ConfigError):
        ElasticReplayBuffer({"set_buffer_size": 5}, exp_name="exp")


def test_update_takes_env_steps_and_nothing_else(make_elastic):
    buffer = make_elastic(8, set_buffer_size=lambda envstep: 2)
    with pytest.raises(TypeError):
        buffer.update({"priority": [1.0]})


def test_a_state_keeps_the_current_size(make_elastic):
    sizes = lambda envstep: 2 if envstep == 0 else 4  # noqa: E731
    buffer, other = (make_elastic(8, name=name, set_buffer_size=sizes) for name in ("one", "other"))
    buffer.push(items(0, 8), 0)
    buffer.update(1)
    other.load_state_dict(buffer.state_dict())
    assert drawn(other, 4, rounds=1) == {4, 5, 6, 7}


# The episode buffer: whole episodes in, whole episodes out.


def episode(number: int, length: int) -> list[dict]:
    return [{"obs": torch.tensor([float(number), float(i)]), "n": number} for i in range(length)]


def episodes(*lengths: int, first: int = 0) -> list[list[dict]]:
    return [episode(first + i, length) for i, length in enumerate(lengths)]


@pytest.mark.differs("fails in `episode_len` of an episode buffer that is not full", "leaves out empty slots")
def test_lengths_are_those_of_the_stored_episodes_by_slot(make_episode):
    buffer = make_episode(3)
    assert buffer.episode_len == []
    buffer.push(episodes(4, 2), 6)
    assert buffer.episode_len == [4, 2]
    buffer.push(episodes(7, 5, first=2), 18)
    assert buffer.episode_len == [5, 2, 7]
    buffer._data[1] = None
    buffer._valid_count -= 1
    assert buffer.episode_len == [5, 7]


def test_sampling_gives_whole_episodes(make_episode):
    buffer = make_episode(4)
    buffer.push(episodes(4, 2, 3), 9)
    batch = buffer.sample(3, 0)
    assert sorted((each[0]["n"], len(each)) for each in batch) == [(0, 4), (1, 2), (2, 3)]
    assert buffer.sample(4, 0) is None
    assert len(buffer.sample(4, 0, replace=True)) == 4


def test_an_episode_of_chosen_transitions_keeps_what_is_no_number(make_episode):
    buffer = make_episode(1)
    transitions = Table.of([{"name": f"step {i}", "n": i} for i in range(4)])
    buffer.push([Samples(transitions.take(np.array([3, 1])))], 2)
    assert buffer.sample(1, 0) == [[{"name": "step 3", "n": 3}, {"name": "step 1", "n": 1}]]


def test_what_is_handed_out_is_the_callers(make_episode):
    buffer = make_episode(2)
    buffer.push(episodes(2), 2)
    first, second = buffer.sample(2, 0, replace=True)
    first[0]["adv"] = 1.0
    first.pop()
    assert len(second) == 2 and "adv" not in second[0]
    assert buffer.episode_len == [2] and "adv" not in buffer._data[0][0]
    second[1]["obs"] += 5
    assert buffer._data[0][1]["obs"].tolist() == [0, 1]


# Buffers by configuration.


CLASSES = {
    "naive": NaiveReplayBuffer,
    "advanced": AdvancedReplayBuffer,
    "deque": DequeBufferWrapper,
    "sequence": SequenceReplayBuffer,
    "episode": EpisodeReplayBuffer,
    "elastic": ElasticReplayBuffer,
}
OWN_KEYS = {"elastic": {"set_buffer_size": lambda envstep: 16}}


# What each type stores, how it is sampled, and what its `update` takes.
VARIANTS = {
    "sequence": ([{"n": i, "done": False} for i in range(20)], (2, 4, 1), {"priority": [1.0]}),
    "episode": ([[{"n": i}] for i in range(20)], (2, 1), {"priority": [1.0]}),
    "elastic": ([{"n": i} for i in range(20)], (2, 1), 20),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_of_the_naive_buffer_share_the_tb_logger_and_do_what_it_does(name, tb):
    data, sample_args, info = VARIANTS[name]
    cfg = EasyDict(type=name, replay_buffer_size=16, **OWN_KEYS.get(name, {}))
    assert get_buffer_cls(cfg) is CLASSES[name] is BUFFER_REGISTRY[name]
    buffer = create_buffer(cfg, tb_logger=tb, exp_name="exp", instance_name="made")
    assert isinstance(buffer, NaiveReplayBuffer) and buffer._tb_logger is tb
    buffer.start()
    buffer.push(data, cur_collector_envstep=20)
    assert len(buffer.sample(*sample_args)) == 2 and buffer.count() == 16
    monitor = buffer._periodic_thruput_monitor
    counts = monitor.push_data_count, monitor.sample_data_count, monitor.remove_data_count, monitor.valid_count
    assert counts == (20, 2, 4, 16)
    buffer.update(info)
    state = buffer.state_dict()
    buffer.save_data("data")
    buffer.clear()
    assert (buffer.count(), buffer.push_count) == (0, 0)
    buffer.load_state_dict(state)
    assert (buffer.count(), buffer.push_count, buffer.replay_buffer_size) == (16, 20, 16)
    drawn = buffer.sample(*sample_args)
    buffer.load_state_dict(unpack(pack(state)))
    assert buffer.sample(*sample_args) == drawn
    buffer.clear()
    buffer.load_data("data")
    assert buffer._data == data[-16:]
    buffer.close()
    buffer.close()
    assert (buffer.count(), tb.flushed, tb.closed) == (0, 1, 0)


def test_the_default_configuration_of_each_type_creates_it():
    for name, cls in CLASSES.items():
        cfg = cls.default_config()
        assert cfg.cfg_type == f"{cls.__name__}Dict"
        cfg.type = name
        cfg.update(OWN_KEYS.get(name, {}))
        create_buffer(cfg, exp_name="exp").close()


@pytest.mark.parametrize(
    ("name", "cfg"),
    [
        ("naive", {"replay_buffer_size": 0}),
        ("sequence", {"episode_length": 0}),
        ("deque", {"max_use": 0.5}),
        ("deque", {"priority_IS_weight": True}),
        ("advanced", {"alpha": float("nan")}),
        ("advanced", {"thruput_controller": {"push_sample_rate_limit": {"min": -1}}}),
    ],
)
def test_a_wrong_config_is_refused(name, cfg):
    with pytest.raises(ConfigError):
        create_buffer({"type": name, **cfg}, exp_name="exp")


def test_an_unknown_type_is_named():
    with pytest.raises(KeyError):
        create_buffer(EasyDict(type="other"))


def test_the_interface_lives_in_the_data_layer_and_is_abstract():
    assert IBuffer is DataIBuffer
    with pytest.raises(TypeError):
        IBuffer()
