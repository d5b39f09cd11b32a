"""The rollout loop with managers that answer late, and between policies."""

import numpy as np
import pytest

from ding.envs.env_manager.block import ManagerInUseError
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from ding.worker.collector.rollout import Quota
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import CountedManager, FakeWriter, ScriptedPolicy
from tests.worker.collector.battles import LateManager


def collecting(env, n_sample=2, tb=None):
    policy = ScriptedPolicy(n_sample=n_sample)
    return SampleSerialCollector(SampleSerialCollector.default_config(), env, policy, tb or FakeWriter(), "exp")


def evaluating(env, n_episode):
    cfg = InteractionSerialEvaluator.default_config()
    cfg.n_episode, cfg.stop_value = n_episode, 100.0
    return InteractionSerialEvaluator(cfg, env, ScriptedPolicy(), FakeWriter(), "exp")


def later_policy(n_sample=2):
    """A policy whose actions count from 101."""
    policy = ScriptedPolicy(n_sample=n_sample)
    policy.seen.extend([None] * 100)
    return policy


def key(row):
    env_id, episode, step = (int(x) for x in row["obs"])
    assert [env_id, episode, step + 1] == [int(x) for x in row["next_obs"]]
    return env_id, episode, step


def test_an_env_that_has_yet_to_answer_a_policy_that_was_replaced_begins_another_episode():
    env, tb = LateManager([9, 9]), FakeWriter()
    collector = collecting(env, tb=tb)
    collector.collect(1)
    assert list(env.answers) == [1]
    collector.reset_policy(later_policy())
    rows = collector.collect(4)
    assert ("reset", {1: None}) in env.calls
    assert all(row["action"].item() > 100 for row in rows)
    assert [key(row) for row in rows if row["obs"][0] == 1][0] == (1, 1, 0)
    assert collector._total_episode_count == 0


class Rounds(Quota):
    """A quota of so many rounds."""

    def __init__(self, count):
        self.left = count

    def is_filled(self):
        self.left -= 1
        return self.left < 0

    def choose(self, env_ids):
        return env_ids


# From the beginning to the end of a call the envs belong to whoever collects or evaluates with them.


class SharedManager(CountedManager):
    """May be launched by several owners."""

    def launch(self):
        if "launch" not in self.calls:
            super().launch()


class Meddling(ScriptedPolicy):
    """`meddle(number of forwards)` is called within each forward."""

    meddle = None

    def _actions(self, obs, kwargs):
        actions = super()._actions(obs, kwargs)
        self.meddle(len(self.seen))
        return actions


def all_steps(env, policy):
    """A collector that makes a sample of each step."""
    cfg = SampleSerialCollector.default_config()
    cfg.fixed_rollout = True
    return SampleSerialCollector(cfg, env, policy, FakeWriter(), "exp")


@pytest.mark.guarantees("one-owner")
@pytest.mark.differs(
    "makes transitions that span two episodes if others reset or step an env while a collector acts",
    "raises an error in the reset or step",
)
@pytest.mark.parametrize("method, args", [("reset", [{1: None}]), ("reset", []), ("step", [{0: np.array([0])}])])
def test_envs_are_not_reset_or_stepped_by_others_within_a_call(method, args):
    policy, env = Meddling(n_sample=8), SharedManager([9, 9])
    collector, evaluator = all_steps(env, policy), evaluating(env, 2)
    policy.meddle = lambda number: getattr(env, method)(*args) if number == 3 else None
    with pytest.raises(ManagerInUseError):
        collector.collect(8)
    assert [len(one.actions) for one in env.envs] == [2, 2]
    assert [key(row)[1:] for row in collector.collect(8)] == [(0, step) for step in range(4)] * 2
    policy.meddle = lambda number: evaluator.eval()
    with pytest.raises(ManagerInUseError):
        collector.collect(8)


@pytest.mark.guarantees("one-owner")
@pytest.mark.parametrize("is_patched", [False, True])
def test_between_two_calls_anybody_may_reset_or_step_the_envs(is_patched):
    policy, env = ScriptedPolicy(n_sample=8), CountedManager([9, 9])
    if is_patched:
        env.step = env.step
    collector = all_steps(env, policy)
    collector._rollout.run(Rounds(2), {})
    env.step({0: np.array([0])})
    env.reset({1: None})
    assert [key(row) for row in collector.collect(8)] == [
        *((0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)),
        *((0, 0, 3), (0, 0, 4), (1, 1, 0), (1, 1, 1)),
    ]
    assert [len(fragment) for fragment in policy.fragments] == [2, 2, 2, 2] and policy.resets == [None, [0], [1]]
