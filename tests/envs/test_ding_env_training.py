"""DingEnvWrapper under env managers, in other processes, and in training."""

from __future__ import annotations

import contextlib
import copy

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict

from ding.entry.serial_entry import run_serial
from ding.envs import BaseEnvManager, DingEnvWrapper
from ding.example.cartpole_dqn import create_config, main_config
from ding.policy.policy_factory import PolicyFactory
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.envs.toys import Toy
from tests.fakes import FakeWriter, ScriptedPolicy
from tests.own_folder import own_folder as own_folder


def short_configs(**env):
    """The example's pair of configs for a few iterations, without an env type."""
    main, create = copy.deepcopy(main_config), copy.deepcopy(create_config)
    main.exp_name = "exp"
    main.env.update(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, **env)
    main.env.pop("type")
    main.policy.learn.update(update_per_collect=2, batch_size=16)
    main.policy.collect.n_sample = 16
    main.policy.random_collect_size = 32
    create.pop("env")
    return main, create


def make_env(cfg):
    return DingEnvWrapper(gymnasium.make("CartPole-v1"), cfg)


def make_env_by_id(cfg):
    return DingEnvWrapper(cfg=cfg)


@pytest.mark.parametrize("env_fn", [make_env, make_env_by_id])
def test_an_env_given_by_hand_trains_through_the_serial_pipeline(env_fn):
    main, create = short_configs()
    cfg = EasyDict(copy.deepcopy(main.env))
    setting = [env_fn, DingEnvWrapper.create_collector_env_cfg(cfg), DingEnvWrapper.create_evaluator_env_cfg(cfg)]
    run = run_serial((main, create), seed=0, env_setting=setting, max_train_iter=6)
    assert run.learner.train_iter == 6
    assert run.collector.envstep > 48
    assert len(run.eval_info["eval_episode_return"]) == 2
    assert all(np.ravel(value) > 5 for value in run.eval_info["eval_episode_return"])


@pytest.mark.parametrize("truncates", [False, True])
def test_samples_tell_a_time_limit_from_an_end(truncates):
    manager = BaseEnvManager([lambda: DingEnvWrapper(Toy(length=3, truncates=truncates))], {})
    policy = PolicyFactory.get_random_policy(ScriptedPolicy(n_sample=6), action_space=manager.action_space)
    config = SampleSerialCollector.default_config()
    with contextlib.closing(SampleSerialCollector(config, manager, policy, FakeWriter(), "exp")) as collector:
        rows = collector.collect(6)
    assert [row["done"] for row in rows] == [False, False, True] * 2
    assert [row["terminated"] for row in rows] == [False, False, not truncates] * 2
    assert [row["truncated"] for row in rows] == [False, False, truncates] * 2


def test_the_documented_way_to_make_a_manager_works():
    n = 3
    manager = BaseEnvManager(
        env_fn=[lambda: DingEnvWrapper(gymnasium.make("CartPole-v1")) for _ in range(n)],
        cfg=BaseEnvManager.default_config(),
    )
    manager.seed(0)
    manager.launch()
    assert {env_id: obs.shape for env_id, obs in manager.ready_obs.items()} == dict.fromkeys(range(n), (4,))
    for _ in range(30):
        timesteps = manager.step({env_id: np.array([1]) for env_id in manager.ready_obs})
    assert set(timesteps) == {0, 1, 2}
    assert manager.random_action().keys() == {0, 1, 2}
    manager.close()
    manager.launch()
    assert len(manager.ready_obs) == n
    manager.close()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("act_scale", [False, True])
def test_the_random_policy_acts_in_the_space_that_step_takes(env_id, act_scale):
    env = DingEnvWrapper(cfg={"env_id": env_id, "act_scale": act_scale})
    env.reset()
    policy = PolicyFactory.get_random_policy(ScriptedPolicy(), action_space=env.action_space)
    for _ in range(5):
        action = policy.forward({0: None})[0]["action"].numpy()
        assert env.action_space.contains(action if action.dtype.kind == "f" else action.item())
        env.step(action)
