"""The buffer `her`: goals of samples are replaced by goals that their episodes have reached."""

import math

import numpy as np
import pytest
import torch

from ding.utils.config_helper import ConfigError
from ding.utils.msgpack_helper import pack, unpack
from ding.worker.replay_buffer import HindsightReplayBuffer
from tests.fakes import FakeWriter

GOAL = -1.0  # of all episodes, which none reaches


class Goals:
    """The reward is 0 for the goal, else -1; with `ends` the goal ends the episode."""

    def __init__(self, ends: bool = False) -> None:
        self.ends = ends

    def reward(self, achieved, desired):
        return np.where((achieved == desired).all(axis=1), 0.0, -1.0).astype(np.float32)

    def terminated(self, achieved, desired):
        return (achieved == desired).all(axis=1) if self.ends else None


def place(number: float) -> dict:
    return {
        "observation": torch.tensor([number, 0.5]),
        "achieved_goal": torch.tensor([number]),
        "desired_goal": torch.tensor([GOAL]),
    }


def episode(start: int, stop: int, done: bool = True) -> list[dict]:
    """Steps from each number to the next one, which is reached with it; the last is cut off."""
    return [
        {
            "obs": place(i),
            "next_obs": place(i + 1),
            "action": torch.tensor([i]),
            "reward": torch.tensor([-1.0]),
            "done": done and i == stop - 1,
            "terminated": False,
            "truncated": done and i == stop - 1,
        }
        for i in range(start, stop)
    ]


@pytest.fixture
def make():
    made = []

    def make(size: int = 64, ends: bool = False, **cfg) -> HindsightReplayBuffer:
        made.append(HindsightReplayBuffer({"replay_buffer_size": size, **cfg}, FakeWriter(), "exp", "her"))
        made[-1].goals = Goals(ends)
        return made[-1]

    yield make
    for buffer in made:
        buffer.close()


def goals_by_step(buffer: HindsightReplayBuffer, size: int = 600) -> dict[int, set[float]]:
    """Return the goals, other than the own, that are drawn for each action; they are equal in `obs` and `next_obs`."""
    found: dict[int, set[float]] = {}
    for item in buffer.sample(size, 0, replace=True):
        goal = item["obs"]["desired_goal"].item()
        assert item["next_obs"]["desired_goal"].item() == goal
        found.setdefault(item["action"].item(), set()).update({goal} - {GOAL})
    return found


def test_future_goals_are_those_of_this_and_later_steps_of_the_same_episode(make):
    buffer = make()
    buffer.push(episode(0, 4) + episode(10, 13), 0)
    assert goals_by_step(buffer) == {
        0: {1, 2, 3, 4},
        1: {2, 3, 4},
        2: {3, 4},
        3: {4},
        10: {11, 12, 13},
        11: {12, 13},
        12: {13},
    }


@pytest.mark.parametrize(("strategy", "first", "second"), [("final", {3}, {12}), ("episode", {1, 2, 3}, {11, 12})])
def test_goals_may_be_that_of_the_last_step_or_those_of_the_whole_episode(make, strategy, first, second):
    buffer = make(strategy=strategy)
    buffer.push(episode(0, 3) + episode(10, 12), 0)
    assert goals_by_step(buffer) == {**dict.fromkeys(range(3), first), **dict.fromkeys((10, 11), second)}


def test_an_unfinished_episode_lends_only_what_is_stored(make):
    buffer = make(strategy="final")
    buffer.push(episode(0, 3, done=False) + episode(10, 12), 0)  # the next item does not continue the first episode
    buffer.push(episode(3, 5), 0)
    assert goals_by_step(buffer) == {0: {3}, 1: {3}, 2: {3}, 10: {12}, 11: {12}, 3: {5}, 4: {5}}


def test_episodes_are_found_after_items_were_discarded(make):
    buffer = make()
    buffer.push(episode(0, 4) + episode(10, 12), 0)
    buffer.discard(lambda item: item["action"].item() == 2)
    assert goals_by_step(buffer) == {0: {1, 2, 4}, 1: {2, 4}, 3: {4}, 10: {11, 12}, 11: {12}}


def test_the_reward_is_that_of_the_new_goal_and_the_rest_stays(make):
    buffer = make(k=math.inf)
    buffer.push(episode(0, 3), 0)
    for item in buffer.sample(100, 0, replace=True):
        number, goal = item["action"].item(), item["obs"]["desired_goal"].item()
        assert item["reward"].tolist() == [0.0 if goal == number + 1 else -1.0]
        assert item["obs"]["observation"].tolist() == [number, 0.5]
        assert item["next_obs"]["achieved_goal"].tolist() == [number + 1]
        assert (item["done"], item["terminated"], item["truncated"]) == (number == 2, False, number == 2)


def test_an_end_that_the_env_computes_is_that_of_the_new_goal(make):
    buffer = make(k=math.inf, ends=True, strategy="episode")
    buffer.push(episode(0, 3), 0)
    for item in buffer.sample(100, 0, replace=True):
        is_there = item["obs"]["desired_goal"].item() == item["action"].item() + 1
        assert (item["terminated"], item["truncated"]) == (is_there, item["action"].item() == 2)
        assert item["done"] == (item["terminated"] or item["truncated"])


def test_k_of_k_plus_one_samples_have_another_goal(make):
    for k, share in [(0, 0), (1, 0.5), (4, 0.8)]:
        buffer = make(k=k)
        buffer.push(episode(0, 8), 0)
        goals = [item["obs"]["desired_goal"].item() for item in buffer.sample(4000, 0, replace=True)]
        assert np.mean(np.array(goals) != GOAL) == pytest.approx(share, abs=0.03)


def test_a_buffer_goes_on_from_its_state_with_the_same_samples(make):
    one, other = make(8), make(8)
    one.push(episode(0, 4), 0)
    one.push(episode(10, 16), 0)
    one.sample(5, 0)
    other.load_state_dict(unpack(pack(one.state_dict())))
    for buffer in (one, other):
        buffer.push(episode(20, 22), 0)

    def drawn(buffer):
        return [(x["action"].item(), x["obs"]["desired_goal"].item()) for x in buffer.sample(50, 0, replace=True)]

    assert drawn(one) == drawn(other)


def test_samples_without_goals_are_refused(make):
    buffer = make()
    without_goal = episode(0, 1)[0]
    del without_goal["obs"]["desired_goal"]
    without_reward = episode(0, 1)[0]
    del without_reward["reward"]
    for item in ({"obs": torch.zeros(2)}, without_goal, without_reward, [1, 2]):
        with pytest.raises(ValueError, match="desired_goal"):
            buffer.push(item, 0)
    assert buffer.count() == 0 and buffer.push([], 0) == 0


def test_a_buffer_without_rewards_for_other_goals_says_so(make):
    buffer = make(k=math.inf)
    buffer.goals = None
    buffer.push(episode(0, 3), 0)
    with pytest.raises(RuntimeError, match="GoalFunctions"):
        buffer.sample(2, 0)


@pytest.mark.parametrize("cfg", [{"strategy": "past"}, {"k": -1}])
def test_impossible_settings_are_refused(make, cfg):
    with pytest.raises(ConfigError, match=next(iter(cfg))):
        make(**cfg)
