"""DingEnvWrapper under env managers, in other processes, and in training."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
from functools import partial

import cloudpickle
import gymnasium
import numpy as np
import pytest
from easydict import EasyDict

from ding.entry.serial_entry import run_serial
from ding.envs import AllinObsWrapper, BaseEnvManager, DingEnvWrapper, GymnasiumEnv, get_vec_env_setting
from ding.example.cartpole_dqn import create_config, main_config
from ding.policy.policy_factory import PolicyFactory
from ding.utils.registry_factory import ENV_REGISTRY
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.envs.toys import Toy
from tests.fakes import FakeWriter, ScriptedPolicy


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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


def test_a_class_made_of_it_trains_as_a_registered_env_type():
    class CartPole(DingEnvWrapper):
        def __init__(self, cfg):
            super().__init__(cfg=cfg)

    ENV_REGISTRY.register("ding_cartpole", CartPole)
    try:
        main, create = short_configs()
        create.env = EasyDict(type="ding_cartpole")
        run = run_serial((main, create), seed=0, max_train_iter=4)
        assert run.learner.train_iter == 4
        cls, collector_cfgs, _ = get_vec_env_setting(EasyDict(type="ding_cartpole", collector_env_num=1), eval_=False)
        assert (cls, collector_cfgs[0].is_train) == (CartPole, True)
    finally:
        del ENV_REGISTRY["ding_cartpole"]


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


def test_a_manager_seeds_its_episodes_as_it_does_those_of_the_env_type_gymnasium():
    def observations(env_fn):
        manager = BaseEnvManager([env_fn] * 2, {})
        manager.seed(5)
        manager.launch()
        seen = [np.stack(list(manager.ready_obs.values()))]
        for step in range(40):
            timesteps = manager.step({env_id: np.array([step % 3 > 0]) * 1 for env_id in manager.ready_obs})
            seen.append(np.stack([timestep.obs for timestep in timesteps.values()]))
        manager.close()
        return np.stack(seen)

    ours = observations(lambda: DingEnvWrapper(gymnasium.make("CartPole-v1")))
    theirs = observations(lambda: GymnasiumEnv({"env_id": "CartPole-v1"}))
    np.testing.assert_array_equal(ours, theirs)


def test_a_wrapper_around_an_env_of_this_package_is_seeded_by_its_manager():
    def first_obs(make):
        manager = BaseEnvManager([make], {})
        manager.seed(5)
        manager.launch()
        obs = manager.ready_obs[0]
        manager.close()
        return obs

    wrapped = first_obs(lambda: AllinObsWrapper(GymnasiumEnv({"env_id": "CartPole-v1"})))
    np.testing.assert_array_equal(wrapped["obs"], first_obs(lambda: GymnasiumEnv({"env_id": "CartPole-v1"})))


def some_steps(env_fn):
    """The observations of a few steps of the env that `env_fn` makes."""
    env = env_fn()
    env.seed_episodes(1, 2)
    seen = [env.reset().tolist(), *(env.step(k % 2).obs.tolist() for k in range(3))]
    env.close()
    return seen


def play_in_child(blobs, connection):
    """Answer with the steps of each of the pickled env functions `blobs`."""
    for blob in blobs:
        connection.send(some_steps(cloudpickle.loads(blob)))


def test_env_functions_serve_in_a_spawned_process():
    env_fns = [
        partial(DingEnvWrapper, cfg={"env_id": "CartPole-v1"}),
        lambda: DingEnvWrapper(gymnasium.make("CartPole-v1")),
        partial(DingEnvWrapper(gymnasium.make("CartPole-v1")).clone, "collector"),
        partial(DingEnvWrapper(cfg={"env_id": "CartPole-v1"}).clone, "evaluator"),
    ]
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe()
    process = context.Process(target=play_in_child, args=([cloudpickle.dumps(fn) for fn in env_fns], other))
    process.start()
    other.close()
    answers = []
    for _ in env_fns:
        assert mine.poll(60), "the child has not answered"
        answers.append(mine.recv())
    process.join(60)
    assert process.exitcode == 0
    assert answers == [some_steps(env_fn) for env_fn in env_fns]


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
