"""Rounds in which a policy acts in all envs of a simulator, those too that begin an episode instead of a step."""

import itertools

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.envs import PoolEnvManager, VectorEnvManager
from ding.envs.env_manager.batch_env_manager import BatchEnvManager
from ding.policy import DQNPolicy
from ding.worker.collector import rollout
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.envs.env_manager.counting_vector_env import CountingVectorEnv
from tests.envs.env_manager.fake_envpool import FakeEnvpool
from tests.envs.env_manager.scripted_env import states
from tests.fakes import FakeWriter

LENGTHS = [3, 5, 1, 4]


@pytest.fixture(autouse=True)
def envpool(put_module):
    put_module("envpool", FakeEnvpool())


def vector_envs():
    kwargs = {"lengths": LENGTHS, "mode": "NextStep"}
    return VectorEnvManager({"vector_env": CountingVectorEnv, "env_num": 4, "kwargs": kwargs})


def pool():
    return PoolEnvManager({"env_id": "Three-v0", "env_num": 4, "batch_size": 4})


class OddSteps(DQNPolicy):
    """Chooses 1 in odd steps."""

    def _act_collect(self, obs, env_ids, **kwargs):
        steps = torch.as_tensor(obs)[:, 2].long()
        return {**super()._act_collect(obs, env_ids, **kwargs), "action": steps % 2}


def collecting(env, policy_cls=OddSteps, n_sample=10, nstep=1, tb=None, **cfg):
    policy_cfg = policy_cls.default_config()
    obs_shape = env.observation_space.shape[0]
    policy_cfg.model = EasyDict(obs_shape=obs_shape, action_shape=2, encoder_hidden_size_list=[8])
    policy_cfg.nstep, policy_cfg.collect.n_sample = nstep, n_sample
    policy = policy_cls(policy_cfg, enable_field=["collect"])
    collector_cfg = SampleSerialCollector.default_config()
    collector_cfg.update(cfg)
    return SampleSerialCollector(collector_cfg, env, policy.collect_mode, tb or FakeWriter(), "exp")


KWARGS = {"policy_kwargs": {"eps": 0.0}, "drop_extra": False}


def plain(rows):
    return [{key: np.asarray(value).tolist() for key, value in row.items()} for row in rows]


@pytest.fixture
def wide_rounds(monkeypatch):
    """The numbers of envs that made a step in each round of all envs."""
    seen, act = [], BatchEnvManager.act

    def noted(self, actions, env_ids):
        step = act(self, actions, env_ids)
        if self._is_wide:
            seen.append(len(env_ids) if step.active is None else int(step.active.sum()))
        return step

    monkeypatch.setattr(BatchEnvManager, "act", noted)
    return seen


@pytest.mark.parametrize("make", [vector_envs, pool])
@pytest.mark.parametrize("nstep, n_sample", [(1, 4), (1, 10), (2, 24)])
@pytest.mark.parametrize("cfg", [{}, {"fixed_rollout": True}])
def test_samples_and_statistics_are_those_of_rounds_of_the_envs_that_wait(
    make, nstep, n_sample, cfg, monkeypatch, wide_rounds
):
    def collected():
        tb = FakeWriter()
        collector = collecting(make(), n_sample=n_sample, nstep=nstep, tb=tb, **cfg)
        rows = [plain(collector.collect(train_iter=100 * i, **KWARGS)) for i in range(6)]
        timeless = [entry for entry in tb.scalars if "sec" not in entry[0] and "time" not in entry[0]]
        timeless = [entry for entry in timeless if "duration" not in entry[0]]
        return rows, timeless, collector.envstep, collector._env.ready_obs_id

    wide = collected()
    assert len(wide_rounds) >= 6 and min(wide_rounds) < 4
    monkeypatch.setattr(type(make()), "can_idle", False)
    count = len(wide_rounds)
    assert collected() == wide and len(wide_rounds) == count


@pytest.mark.parametrize("make", [vector_envs, pool])
def test_a_round_in_which_an_env_only_begins_an_episode_takes_none_of_its_time(make, monkeypatch, wide_rounds):
    clock, tb = itertools.count(), FakeWriter()
    monkeypatch.setattr(rollout, "perf_counter", lambda: next(clock))  # so each round takes a second
    collector = collecting(make(), tb=tb, collect_print_freq=1)
    for train_iter in range(1, 5):
        collector.collect(train_iter=train_iter, **KWARGS)
    assert min(wide_rounds) < 4
    assert {entry[1] for entry in tb.scalars if entry[0].endswith("avg_envstep_per_sec")} == {4.0}


@pytest.mark.parametrize("make", [vector_envs, pool])
def test_an_error_within_a_step_leaves_the_finished_samples_and_envs_that_have_to_be_reset(make, monkeypatch):
    collector = collecting(make(), n_sample=4)
    env = collector._env
    before, step = plain(collector.collect(**KWARGS)), env.step_all
    with monkeypatch.context() as context, pytest.raises(ZeroDivisionError):
        context.setattr(env, "step_all", lambda actions: step(actions) and 1 / 0)
        collector.collect(**KWARGS)
    assert not env.is_owned and states(env) == ["ERROR"] * 4
    with pytest.raises(RuntimeError, match="no env is ready"):
        collector.collect(**KWARGS)
    env.reset()
    after = plain(collector.collect(**KWARGS))
    assert all(row["next_obs"][2] == row["obs"][2] + 1 for row in before + after)


def steps_of(rows):
    """The episode and the step before and after each transition, by env."""
    return {i: [[*r["obs"][1:3], *r["next_obs"][1:3]] for r in rows if r["obs"][0] == i] for i in range(4)}


@pytest.mark.guarantees("one-owner")
@pytest.mark.parametrize(
    "interfere, following",
    [
        (lambda env: env.reset(), [2, 0, 2, 1]),
        (lambda env: env.reset({1: None}), [2, 0, 2, 1]),
        (lambda env: env.step(dict.fromkeys([0, 1], np.array([1]))), [1, 1, 1, 2]),
    ],
)
def test_an_env_that_others_reset_or_step_before_its_first_step_begins_new_fragments(interfere, following, wide_rounds):
    kwargs = {"lengths": [9, 3], "mode": "NextStep"}
    env = VectorEnvManager({"vector_env": CountingVectorEnv, "env_num": 2, "kwargs": kwargs})
    collector = collecting(env, n_sample=2)
    for _ in range(3):
        collector.collect(**KWARGS)
    collector.collect(1, **KWARGS)
    assert wide_rounds[-1] == 1 and env.ready_obs[1].tolist()[:3] == [1, 1, 0]
    interfere(env)
    steps = steps_of(plain(collector.collect(8, **KWARGS)))
    assert steps[1][0] == following and all(a == c and b + 1 == d for a, b, c, d in steps[0] + steps[1])


@pytest.mark.guarantees("data")
def test_an_abnormal_step_voids_its_episode_for_later_collects_too(wide_rounds):
    class Abnormal(CountingVectorEnv):
        def step(self, actions):
            obs, rewards, terminated, truncated, infos = super().step(actions)
            is_abnormal = (self.state == [1, 0, 2, 0])[:, :3].all(axis=1)
            return obs, rewards, terminated, truncated, {**infos, "abnormal": is_abnormal}

    kwargs = {"lengths": [9, 9], "mode": "NextStep"}
    env = VectorEnvManager({"vector_env": Abnormal, "env_num": 2, "kwargs": kwargs})
    collector = collecting(env, n_sample=2)
    rows = [row for _ in range(20) for row in plain(collector.collect(**KWARGS))]
    steps = steps_of(rows)
    assert steps[1][:2] == [[0, 0, 0, 1], [1, 0, 1, 1]] and len(wide_rounds) > 5
    assert all(a == c and b + 1 == d for a, b, c, d in steps[0] + steps[1])


@pytest.mark.guarantees("resume")
@pytest.mark.parametrize("collects", range(1, 7))
def test_a_collector_goes_on_whatever_its_envs_waited_for_when_they_were_saved(collects):
    def making():
        kwargs = {"lengths": [3, 1], "mode": "NextStep"}
        return collecting(
            VectorEnvManager({"vector_env": CountingVectorEnv, "env_num": 2, "kwargs": kwargs}), n_sample=2
        )

    saved, loaded = making(), making()
    for _ in range(collects):
        saved.collect(1, **KWARGS)
    assert "its running episode is dropped" in loaded._env.load_state_dict(saved._env.state_dict())[0]
    loaded.load_state_dict(saved.state_dict())
    steps = steps_of([row for _ in range(6) for row in plain(loaded.collect(**KWARGS))])
    assert all(a == c and b + 1 == d for a, b, c, d in steps[0] + steps[1])
