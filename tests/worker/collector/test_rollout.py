"""The rollout loop with managers that answer late, and between policies."""

import pytest
import torch

from ding.worker.collector.actor import SoloActor
from ding.worker.collector.base_serial_evaluator import VectorEvalMonitor
from ding.worker.collector.batch import PlayerOutputs, StackedOutput
from ding.worker.collector.interaction_serial_evaluator import EpisodeRecorder, InteractionSerialEvaluator
from ding.worker.collector.players import BattleActor
from ding.worker.collector.rollout import Rollout
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import CountedManager, FakeManager, FakeWriter, ScriptedPolicy
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


def test_an_answer_to_a_policy_that_was_replaced_is_not_recorded():
    env = LateManager([9, 9])
    collector = collecting(env)
    collector.collect(1)
    assert list(env.answers) == [1]
    collector.reset_policy(later_policy())
    rows = collector.collect(4)
    assert all(row["action"].item() > 100 for row in rows)
    assert [key(row) for row in rows if row["obs"][0] == 1][0] == (1, 0, 1)


def test_answers_to_a_policy_that_was_replaced_are_waited_for_when_no_env_is_ready():
    env = LateManager([9, 9], late={0: 3, 1: 2})
    collector = collecting(env)
    env.answers = {i: [5, timestep] for i, timestep in super(LateManager, env).step({0: 0, 1: 0}).items()}
    collector._rollout._stale = {0, 1}
    assert {key(row)[2] for row in collector.collect(2)} == {1}


def test_an_episode_that_ends_with_such_an_answer_does_not_count():
    env, tb = LateManager([99, 2]), FakeWriter()
    collector = collecting(env, tb=tb)
    collector.collect(4)
    assert env.answers[1][1].done
    collector.reset_policy(later_policy())
    rows = collector.collect(7, train_iter=100)
    assert [key(row) for row in rows if row["obs"][0] == 1] == [(1, 1, 0), (1, 1, 1)]
    assert ("collector_iter/avg_envstep_per_episode", 2.0, 100) in tb.scalars
    assert collector._total_episode_count == 1


def test_an_env_that_breaks_off_with_such_an_answer_is_reset():
    env = LateManager([9, 9], mark=lambda i, episode, step: {"abnormal": (i, episode, step) == (1, 0, 1)})
    collector = collecting(env)
    collector.collect(1)
    collector.reset_policy(later_policy())
    rows = collector.collect(4)
    assert ("reset", {1: None}) in env.calls
    assert [key(row) for row in rows if row["obs"][0] == 1][0] == (1, 1, 0)


def test_an_env_that_is_under_way_may_be_reset_by_somebody_else():
    env = LateManager([1, 3], late={1: 9})
    evaluator = evaluating(env, 2)
    film = env.step

    def reset_once(actions):
        if not actions and ("reset", {1: None}) not in env.calls:
            env.reset({1: None})
        return film(actions)

    env.step = reset_once
    assert evaluator.eval()[1]["eval_episode_return"] == [1.0, 3.0]


def test_what_is_under_way_is_waited_for_when_the_ready_envs_have_played_their_share():
    env = LateManager([1, 3], late={1: 1})
    assert evaluating(env, 2).eval()[1]["eval_episode_return"] == [1.0, 3.0]
    assert env.waits == [3, 0] and len(env.envs[0].actions) == 1


def test_a_reset_is_waited_for_when_the_ready_envs_have_played_their_share():
    env = LateManager([1, 2], late={}, slow_reset=(1,))
    assert evaluating(env, 4).eval()[1]["eval_episode_return"] == [1.0, 1.0, 2.0, 2.0]
    assert env.waits == [0, 1] and len(env.envs[0].actions) == 2


def test_an_abnormal_step_needs_nobody_to_tell():
    env = FakeManager([2], mark=lambda i, episode, step: {"abnormal": episode == 0})
    env.launch()
    recorder = EpisodeRecorder(VectorEvalMonitor(1, 1), 1)
    Rollout(env, SoloActor(ScriptedPolicy()), [recorder]).run(recorder, {})
    assert env.calls == ["launch", ("reset", {0: None})] and recorder.lengths == {0: [2]}


@pytest.mark.parametrize("make", [lambda first, _: SoloActor(first), lambda *policies: BattleActor(policies)])
def test_an_actor_resets_its_policies_for_some_envs_or_for_all(make):
    policies = ScriptedPolicy(), ScriptedPolicy()
    actor = make(*policies)
    actor.reset()
    actor.reset([3])
    assert policies[0].resets == [None, [3]] and policies[1].resets in ([], [None, [3]])


def test_what_several_policies_returned_is_told_by_env():
    stacked = StackedOutput({"action": torch.tensor([7, 8])}, [3, 5])
    outputs = PlayerOutputs([{3: "a", 5: "b"}, stacked]).dicts()
    assert outputs == {3: ["a", {"action": torch.tensor([7])}], 5: ["b", {"action": torch.tensor([8])}]}


def test_when_no_env_will_be_ready_an_error_says_so():
    env = LateManager([1, 2], late={}, episode_num=1)
    with pytest.raises(RuntimeError, match="no env is ready to step"):
        evaluating(env, 2).eval(n_episode=3)


def test_a_step_by_somebody_else_is_noticed_when_the_step_of_a_manager_is_patched_no_more():
    env = CountedManager([99])
    env.step = env.step  # as a tracer does, for some collects
    collector = collecting(env, n_sample=4)
    assert [key(row) for row in collector.collect(4)][-1] == (0, 0, 3)
    env.step({0: 0})
    del env.step
    assert [key(row) for row in collector.collect(4)] == [(0, 0, step) for step in (5, 6, 7, 8)]


def test_nobody_has_moved_an_env_because_the_step_of_its_manager_is_patched_again():
    env, policy = CountedManager([99]), ScriptedPolicy(n_sample=6)
    collector = SampleSerialCollector(SampleSerialCollector.default_config(), env, policy, FakeWriter(), "exp")
    collector._rollout.run(Rounds(2), {})
    env.step = env.step
    collector._rollout.run(Rounds(1), {})
    del env.step
    collector._rollout.run(Rounds(1), {})
    env.step = env.step
    assert [key(row) for row in collector.collect(6)] == [(0, 0, step) for step in range(6)]
    assert [len(piece) for piece in policy.pieces] == [6]


class Rounds:
    """A quota of so many rounds."""

    def __init__(self, count):
        self.left = count

    def is_filled(self):
        self.left -= 1
        return self.left < 0

    def choose(self, env_ids):
        return env_ids
