"""Registered classes with small default configs, for compiling configs without real workers."""

import copy

from easydict import EasyDict

from ding.utils.registry_factory import (
    BUFFER_REGISTRY,
    ENV_MANAGER_REGISTRY,
    ENV_REGISTRY,
    POLICY_REGISTRY,
    REWARD_MODEL_REGISTRY,
    SERIAL_COLLECTOR_REGISTRY,
    SERIAL_EVALUATOR_REGISTRY,
    WORLD_MODEL_REGISTRY,
)
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator


class Configured:
    config = {}

    @classmethod
    def default_config(cls):
        cfg = EasyDict(copy.deepcopy(cls.config))
        cfg.cfg_type = f"{cls.__name__}Dict"
        return cfg


@ENV_REGISTRY.register("config_fake_env")
class FakeEnv(Configured):
    config = {"length": 7, "manager": {"episode_num": 3}}


@ENV_MANAGER_REGISTRY.register("config_fake_manager")
class FakeManager(Configured):
    config = {"episode_num": float("inf"), "max_retry": 1, "type": "config_fake_manager"}


@POLICY_REGISTRY.register("config_fake")
class FakePolicy(Configured):
    config = {
        "type": "config_fake",
        "cuda": False,
        "learn": {"batch_size": 32, "resume_training": False},
        "collect": {"n_sample": 8},
        "other": {"eps": {"start": 0.95, "decay": 10000}, "replay_buffer": {"replay_buffer_size": 500}},
    }


@POLICY_REGISTRY.register("config_fake_command")
class FakeCommandPolicy(FakePolicy):
    pass


@POLICY_REGISTRY.register("config_fake_multi")
class FakeMultiBufferPolicy(FakePolicy):
    config = {
        "type": "config_fake_multi",
        "other": {
            "replay_buffer": {
                "multi_buffer": True,
                "policy": {"replay_buffer_size": 100},
                "value": {"replay_buffer_size": 200},
            }
        },
    }


@SERIAL_COLLECTOR_REGISTRY.register("config_fake_collector")
class FakeCollector(Configured):
    config = {"print_freq": 10, "depth": 1}


@BUFFER_REGISTRY.register("config_fake_buffer")
class FakeBuffer(Configured):
    config = {"replay_buffer_size": 10000, "alpha": 0.6, "max_use": float("inf")}


@BUFFER_REGISTRY.register("config_fake_small_buffer")
class FakeSmallBuffer(Configured):
    config = {"replay_buffer_size": 10}


@SERIAL_EVALUATOR_REGISTRY.register("config_fake_trading")
class FakeTradingEvaluator(InteractionSerialEvaluator):
    config = {"eval_freq": 77, "fee": 0.1}


@SERIAL_EVALUATOR_REGISTRY.register("config_fake_metric")
class FakeMetricEvaluator(Configured):
    config = {"eval_freq": 5, "stop_value": 3}


@REWARD_MODEL_REGISTRY.register("config_fake_reward")
class FakeRewardModel(Configured):
    config = {"type": "config_fake_reward", "hidden": 64}


@WORLD_MODEL_REGISTRY.register("config_fake_world")
class FakeWorldModel(Configured):
    config = {"type": "config_fake_world", "horizon": 5}
