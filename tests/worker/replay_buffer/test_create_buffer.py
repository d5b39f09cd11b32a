"""Buffers by configuration."""

from __future__ import annotations

import pytest
from easydict import EasyDict

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.data.buffer_interface import IBuffer as DataIBuffer
from ding.utils.config_helper import ConfigError
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
