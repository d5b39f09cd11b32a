"""The rollout loop with managers that answer late, and between policies."""

import itertools

import numpy as np
import pytest
import torch

from ding.utils.batch_methods import plain_transition
from ding.utils.time_helper import PULSE
from ding.worker.collector import rollout
from ding.worker.collector.actor import SoloActor
from ding.worker.collector.base_serial_evaluator import VectorEvalMonitor
from ding.worker.collector.env_round import PlayerOutputs, StackedOutput
from ding.worker.collector.episode_serial_collector import EpisodeSerialCollector
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


@pytest.mark.differs(
    "a policy that replaces another is credited with steps that asynchronous envs began under the old one",
    "such steps are not recorded",
)
def test_an_answer_to_a_policy_that_was_replaced_is_not_recorded():
    env = LateManager([9, 9])
    collector = collecting(env)
    collector.collect(1)
    assert list(env.answers) == [1]
    collector.reset_policy(later_policy())
    rows = collector.collect(4)
    assert all(row["action"].item() > 100 for row in rows)
    assert [key(row) for row in rows if row["obs"][0] == 1][0] == (1, 0, 1)
    assert collector._rollout._stale == set()


def test_answers_to_a_policy_that_was_replaced_are_waited_for_when_no_env_is_ready():
    env = LateManager([9, 9], late={0: 3, 1: 2})
    collector = collecting(env)
    env.answers = {i: [5, timestep] for i, timestep in super(LateManager, env).step({0: 0, 1: 0}).items()}
    collector._rollout._stale = {0, 1}
    collector.reset_policy(later_policy())  # they are still under way
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


def test_each_round_of_a_collection_may_show_how_many_steps_it_has_made():
    collector, shown = collecting(FakeManager([99, 99]), n_sample=6), []
    PULSE.start(-1.0, shown.append)  # is due at any time
    for _ in range(2):
        collector.collect()
    PULSE.stop(shown.append)
    assert shown == [2, 4, 6] * 2


def test_an_episode_lasts_as_long_as_its_rounds(monkeypatch):
    monkeypatch.setattr(rollout, "perf_counter", itertools.count().__next__)  # each round takes a second
    collector = collecting(FakeManager([2]), n_sample=6)
    collector.collect()
    assert collector._total_duration == 6.0


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


# Another caller moves envs while the policy acts.


class Meddling(ScriptedPolicy):
    """`meddle(number of forwards)` is called within each forward."""

    meddle = None

    def _actions(self, obs, kwargs):
        actions = super()._actions(obs, kwargs)
        self.meddle(len(self.seen))
        return actions


class PlainMeddling(Meddling):
    """Its transitions go through columns."""

    @plain_transition("action")
    def process_transition(self, obs, output, timestep):
        raise AssertionError("a plain transition is asked for")


def all_steps(env, policy):
    """A collector that makes a sample of each step."""
    cfg = SampleSerialCollector.default_config()
    cfg.fixed_rollout = True
    return SampleSerialCollector(cfg, env, policy, FakeWriter(), "exp")


def spans(rows):
    """Of each sample: env, episode and step acted on, and the same of what it led to."""
    return [(tuple(int(x) for x in row["obs"]), tuple(int(x) for x in row["next_obs"])) for row in rows]


@pytest.mark.differs(
    "an env that is reset while the policy acts gets its action, and a transition spans two episodes",
    "it acts on what it shows then, in the next round; the policy is reset for it",
)
@pytest.mark.parametrize("make", [Meddling, PlainMeddling])
@pytest.mark.parametrize("manager", ["blocks", "patched"])
def test_an_env_that_is_reset_while_the_policy_acts_is_not_stepped_before_it_acts_on_what_it_shows(make, manager):
    policy = make(n_sample=20)
    env = CountedManager([9, 9])
    if manager == "patched":
        step = env.step
        env.step = lambda actions: step(actions)
    collector = all_steps(env, policy)
    policy.meddle = lambda number: env.reset({1: None}) if number in (1, 4) else None
    collected = spans(collector.collect(20))
    assert all(after == (*before[:2], before[2] + 1) for before, after in collected)
    mine = [[before[1:] for before, _ in collected if before[0] == env_id] for env_id in range(2)]
    assert mine[0] == [(0, step) for step in range(9)] + [(1, 0), (1, 1)]
    assert mine[1] == [(1, 0), (1, 1)] + [(2, step) for step in range(7)]
    assert policy.resets == [None, [1], [0]]  # it had not acted in env 1 before the first reset
    actions = [[int(action[0]) for action in one.actions] for one in env.envs]
    assert actions == [list(range(1, 12)), [2, 3, *range(5, 12)]]


def test_an_env_that_is_stepped_while_the_policy_acts_begins_another_piece():
    policy, env = Meddling(n_sample=16), CountedManager([9, 9])
    collector = all_steps(env, policy)
    policy.meddle = lambda number: env.step({0: np.array([0])}) if number == 3 else None
    collector._rollout.run(Rounds(3), {})
    env.step({0: np.array([0])})  # and once more before it acts again
    collected = spans(collector.collect(16))
    mine = [(before[2], after[2]) for before, after in collected if before[0] == 0]
    assert mine == [(0, 1), (1, 2), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9)]
    assert [len(piece) for piece in policy.pieces] == [2, 5, 9, 1]


def test_all_envs_may_be_reset_while_the_policy_acts():
    policy, env = Meddling(n_sample=8), CountedManager([9, 9])
    collector = all_steps(env, policy)
    policy.meddle = lambda number: env.reset() if number == 3 else None
    collected = spans(collector.collect(8))
    places = [(env_id, episode, step) for env_id in range(2) for episode in range(2) for step in range(2)]
    assert sorted(before for before, _ in collected) == places
    assert collector.envstep == 8 and [len(one.actions) for one in env.envs] == [4, 4]


def test_a_policy_that_resets_all_envs_at_each_forward_is_told_so():
    policy, env = Meddling(n_sample=8), CountedManager([9, 9])
    collector = all_steps(env, policy)
    policy.meddle = lambda number: env.reset()
    with pytest.raises(RuntimeError, match="1000 rounds in a row, all envs that the policy acted in were reset or"):
        collector.collect(8)


def test_rounds_that_others_spoil_now_and_then_are_not_counted_together(monkeypatch):
    monkeypatch.setattr(rollout, "MAX_LOST_ROUNDS", 2)
    policy, env = Meddling(n_sample=40), CountedManager([9, 9])
    collector = all_steps(env, policy)
    policy.meddle = lambda number: env.reset() if number % 5 == 0 else None
    assert len(collector.collect(40)) == 40


def test_an_episode_is_whole_though_its_env_was_reset_while_the_policy_acted():
    policy, env = Meddling(n_sample=8), CountedManager([4, 6])
    policy.attributes["n_episode"] = 4
    collector = EpisodeSerialCollector(EpisodeSerialCollector.default_config(), env, policy, FakeWriter(), "exp")
    policy.meddle = lambda number: env.reset({0: None}) if number in (1, 3) else None
    episodes = [[before for before, _ in spans(episode)] for episode in collector.collect()]
    assert all(episode == [(*episode[0][:2], step) for step in range((4, 6)[episode[0][0]])] for episode in episodes)
    assert len(episodes) == 4


def test_an_evaluation_counts_whole_episodes_though_an_env_was_reset_while_the_policy_acted():
    evaluator = evaluating(CountedManager([4, 6]), 2)
    policy = Meddling()
    policy.meddle = lambda number: evaluator._env.reset({1: None}) if number == 3 else None
    evaluator.reset_policy(policy)
    assert evaluator.eval()[1]["eval_episode_return"] == [4.0, 6.0]
    assert ("evaluator_iter/envstep_count", 10.0, -1) in evaluator._tb_logger.scalars
