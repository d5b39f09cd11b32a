"""EpisodeSerialCollector: which episodes are played and returned, what is counted and logged."""

import numpy as np
import pytest
import torch

from ding.worker.collector.episode_serial_collector import EpisodeSerialCollector
from tests.fakes import FakeManager, FakeWriter, ScriptedPolicy
from tests.worker.collector.battles import LateManager


def build(lengths=(3, 5), policy=None, cfg=(), tb=None, env=None, n_episode=None, **env_kwargs):
    config = EpisodeSerialCollector.default_config()
    config.update(cfg)
    env = FakeManager(list(lengths), **env_kwargs) if env is None else env
    policy = ScriptedPolicy() if policy is None else policy
    policy.attributes["n_episode"] = n_episode
    return EpisodeSerialCollector(config, env, policy, tb or FakeWriter(), "exp"), env, policy


def key(row):
    """(env, episode, step acted on) of a transition of a CountingEnv."""
    env_id, episode, step = (int(x) for x in row["obs"])
    assert [env_id, episode, step + 1] == [int(x) for x in row["next_obs"]]
    return env_id, episode, step


def which(episode):
    """(env, number of the episode, length) of a whole episode."""
    keys = [key(row) for row in episode]
    env_id, number, _ = keys[0]
    assert keys == [(env_id, number, step) for step in range(len(keys))]
    assert [bool(np.all(row["done"])) for row in episode] == [False] * (len(keys) - 1) + [True]
    return env_id, number, len(keys)


def test_episodes_are_whole_and_come_in_the_order_in_which_they_end():
    collector, env, _ = build(lengths=(3, 5))
    episodes = [which(episode) for episode in collector.collect(4, train_iter=7)]
    assert episodes == [(0, 0, 3), (1, 0, 5), (0, 1, 3), (1, 1, 5)]
    assert [len(one.actions) for one in env.envs] == [6, 10]


def test_exactly_the_wanted_episodes_are_started_and_idle_envs_are_not_stepped():
    collector, env, policy = build(lengths=(2, 9))
    collector.collect(3)
    assert [len(one.actions) for one in env.envs] == [4, 9]
    assert [sorted(seen) for seen in policy.seen] == [[0, 1]] * 4 + [[1]] * 5
    assert [which(episode)[:2] for episode in collector.collect(2)] == [(0, 2), (1, 1)]


def test_the_lowest_ids_start_the_last_episodes():
    collector, env, _ = build(lengths=(2, 2, 2))
    collector.collect(4)
    assert [len(one.actions) for one in env.envs] == [4, 2, 2]


def test_transitions_have_what_the_policy_and_the_env_gave():
    collector, env, _ = build(lengths=(2,))
    (episode,) = collector.collect(1, train_iter=7)
    assert [row["action"].tolist() for row in episode] == [[1], [2]]
    assert all(row["reward"].tolist() == [1.0] and row["collect_iter"] == 7 for row in episode)
    assert episode[0]["next_obs"] is episode[1]["obs"] and type(episode[0]["obs"]) is torch.Tensor


def test_with_get_train_sample_the_samples_of_all_episodes_come_in_one_list():
    policy = ScriptedPolicy(sample=lambda fragment: fragment[::2])
    collector, _, _ = build(lengths=(3, 5), policy=policy, cfg={"get_train_sample": True})
    assert [key(row) for row in collector.collect(2)] == [(0, 0, 0), (0, 0, 2), (1, 0, 0), (1, 0, 2), (1, 0, 4)]
    assert [len(fragment) for fragment in policy.fragments] == [3, 5]


def test_an_episode_without_samples_counts_as_an_episode():
    answers = iter([None, []])
    policy = ScriptedPolicy(sample=lambda fragment: next(answers, fragment))
    collector, _, _ = build(lengths=(2,), policy=policy, cfg={"get_train_sample": True})
    assert [key(row) for row in collector.collect(3)] == [(0, 2, 0), (0, 2, 1)]


class ShapingManager(FakeManager):
    """Reshapes each reward to 100 + step, in place, and returns `answer(transitions)`."""

    answer = staticmethod(lambda transitions: None)

    def reward_shaping(self, env_id, transitions):
        self.calls.append(("shape", env_id, len(transitions)))
        for step, row in enumerate(transitions):
            row["reward"] = torch.tensor([100.0 + step])
        return self.answer(transitions)


@pytest.mark.differs(
    "ignores the transitions that an env's `reward_shaping` returns, and fails if envs run in processes",
    "uses them; None means that the env has changed them in place",
)
@pytest.mark.parametrize(("answer", "steps"), [(lambda rows: None, [0, 1, 2]), (lambda rows: rows[1:], [1, 2])])
def test_the_env_reshapes_the_rewards_in_place_or_in_the_list_it_returns(answer, steps):
    env = ShapingManager([3])
    env.answer = answer
    collector, _, _ = build(env=env, cfg={"reward_shaping": True})
    (episode,) = collector.collect(1)
    assert [row["reward"].item() for row in episode] == [100.0 + step for step in steps]
    assert ("shape", 0, 3) in env.calls


def test_samples_are_made_of_reshaped_rewards():
    env = ShapingManager([3])
    collector, _, _ = build(env=env, cfg={"reward_shaping": True, "get_train_sample": True})
    assert [row["reward"].item() for row in collector.collect(1)] == [100.0, 101.0, 102.0]


def test_the_envstep_grows_with_each_step_and_can_be_set():
    policy = ScriptedPolicy()
    seen, process = [], policy.process_transition

    def process_transition(*args):
        seen.append(collector.envstep)
        return process(*args)

    policy.process_transition = process_transition
    collector, _, _ = build(lengths=(3,), policy=policy)
    collector.collect(2)
    assert seen == [1, 2, 3, 4, 5, 6] and collector.envstep == 6
    collector.envstep = 100
    collector.collect(1)
    assert collector.envstep == 103


@pytest.mark.differs(
    "fails to collect episodes if a running env is not ready, as with the asynchronous manager",
    "waits for the env",
)
def test_when_only_a_late_env_plays_its_answer_is_waited_for_without_stepping_others():
    env = LateManager([1, 4])
    collector, _, policy = build(env=env)
    assert sorted(which(episode) for episode in collector.collect(2)) == [(0, 0, 1), (1, 0, 4)]
    assert env.waits == [4, 0] and len(env.envs[0].actions) == 1
    assert all(seen for seen in policy.seen)


@pytest.mark.guarantees("data")
@pytest.mark.parametrize("where", ["env", "forward", "process_transition"])
def test_an_exception_loses_no_finished_episode_and_unfinished_ones_are_played_anew(where):
    class Failing(ScriptedPolicy):
        def forward(self, obs, **kwargs):
            fail("forward", len(self.seen) == 4)
            return super().forward(obs, **kwargs)

        def process_transition(self, obs, output, timestep):
            fail("process_transition", timestep.obs.tolist() == [1, 0, 5])
            return super().process_transition(obs, output, timestep)

    def fail(place, is_time):
        if place == where and is_time and not failed:
            failed.append(True)
            raise ZeroDivisionError(place)

    def mark(env_id, episode, step):
        fail("env", (env_id, episode, step) == (1, 0, 5))
        return {}

    failed = []
    collector, env, _ = build(lengths=(2, 9), policy=Failing(), mark=mark)
    with pytest.raises(ZeroDivisionError, match=where):
        collector.collect(4)
    episodes = [which(episode) for episode in collector.collect(3)]
    assert episodes[:2] == [(0, 0, 2), (0, 1, 2)] and episodes[2][2] == 2
    assert ("reset", {1: None}) in env.calls
    assert [which(episode)[2] for episode in collector.collect(2)] == [2, 9]


@pytest.mark.guarantees("one-owner")
def test_a_reset_by_somebody_else_between_collects_changes_no_episode():
    collector, env, _ = build(lengths=(3, 4))
    collector.collect(2)
    env.reset({0: None})
    env.reset_count = 1
    assert [which(episode) for episode in collector.collect(2)] == [(0, 2, 3), (1, 1, 4)]


def test_resetting_env_or_policy_alone_keeps_the_counters():
    collector, env, policy = build()
    collector.collect(2)
    collector.reset_env()
    assert env.calls[-1] == ("reset", None) and policy.resets[3:] == [None]
    collector.reset_policy()
    assert policy.resets[-1] is None and collector.envstep == 8
    assert [which(episode)[1] for episode in collector.collect(2)] == [2, 2]


def test_logged_values_are_those_since_the_last_output():
    tb = FakeWriter()
    collector, _, _ = build(lengths=(2, 4), tb=tb)
    collector.collect(3, train_iter=99)
    assert not tb.scalars
    collector.collect(2, train_iter=100)
    values = {tag.split("/")[1]: value for tag, value, _ in tb.scalars}
    assert (values["episode_count"], values["envstep_count"], values["reward_mean"]) == (5, 14, 14 / 5)
    assert values["collect_time"] == values["total_duration"] > 0
    tb.scalars.clear()
    collector.collect(2, train_iter=200)
    values = {tag.split("/")[1]: value for tag, value, _ in tb.scalars}
    assert (values["episode_count"], values["total_episode_count"]) == (2, 7)
    assert 0 < values["collect_time"] < values["total_duration"]
