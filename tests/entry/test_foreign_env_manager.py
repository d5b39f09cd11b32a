"""Env managers of other packages, which have the documented members alone."""

import pytest
from easydict import EasyDict

from ding.entry import serial_pipeline
from ding.utils import ENV_MANAGER_REGISTRY
from tests.fakes import FakeManager


@ENV_MANAGER_REGISTRY.register("entry_foreign")
class ForeignManager(FakeManager):
    @classmethod
    def default_config(cls):
        return EasyDict(type="entry_foreign")

    def __init__(self, env_fn, cfg):
        super().__init__([5] * len(env_fn))
        self.seeds = []

    def seed(self, seed, dynamic_seed=None):
        self.seeds.append(seed)


@pytest.mark.guarantees("interfaces")
def test_a_run_needs_the_documented_members_of_an_env_manager_alone(tmp_path):
    main = EasyDict(
        exp_name="foreign",
        env={"collector_env_num": 2, "evaluator_env_num": 1, "n_evaluator_episode": 1, "stop_value": 1e9},
        policy={
            "model": {"obs_shape": 3, "action_shape": 2, "encoder_hidden_size_list": [8, 8]},
            "learn": {"update_per_collect": 1, "batch_size": 4},
            "collect": {"n_sample": 8},
            "other": {"replay_buffer": {"replay_buffer_size": 100}},
        },
    )
    create = EasyDict(env={"type": "gymnasium"}, env_manager={"type": "entry_foreign"}, policy={"type": "dqn"})
    serial_pipeline((main, create), seed=0, max_env_step=24)
    assert (tmp_path / "foreign" / "ckpt").is_dir()
