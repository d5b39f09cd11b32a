"""What envs return in another form than they have to: taken where it is exact, else refused in one line."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ding.envs import DingEnvWrapper, EnvOutputError, GymnasiumEnv
from ding.envs.env.gymnasium_spaces import checked_observation

BOX = spaces.Box(0, 9, (2,), np.float32)
BYTES = spaces.Box(0, 255, (2,), np.uint8)
DICT = spaces.Dict(a=BOX, b=spaces.Tuple([spaces.Discrete(3), BYTES]))


class Returning(gymnasium.Env):
    """An env whose `step` returns these values, and whose `reset` an observation."""

    observation_space, action_space = BOX, spaces.Discrete(2)

    def __init__(self, values, first=(0.0, 0.5)):
        self.first, self.values = first, values

    def reset(self, *, seed=None, options=None):
        return self.first, {}

    def step(self, action):
        return self.values


FOUR = partial(Returning, values=(np.zeros(2, np.float32), 0.0, False, {}))
WIDE = partial(Returning, values=(np.zeros(3, np.float32), 0.0, False, False, {}))


@pytest.mark.parametrize(
    ("obs", "space", "dtype", "expected"),
    [
        ([0, 1], BOX, np.float32, [0, 1]),
        ((0.5, 1), BOX, np.float32, [0.5, 1]),
        ([0.1, 1.0], BOX, np.float32, np.float32([0.1, 1.0]).tolist()),
        (np.array([0.5, 1.0]), BOX, np.float32, [0.5, 1]),
        (np.array([3, 4], np.uint8), BOX, np.float32, [3, 4]),
        ([3, 4], BYTES, np.uint8, [3, 4]),
        (np.array([3.0, 4.0]), BYTES, np.uint8, [3, 4]),
        (np.array([3, 4]), BYTES, np.int64, [3, 4]),
        (0.5, spaces.Box(0, 1, (1,), np.float32), np.float32, [0.5]),
        ([[1, 0]], spaces.MultiBinary((1, 2)), np.int8, [[1, 0]]),
        ([2, 1], spaces.MultiDiscrete([3, 3]), np.int64, [2, 1]),
        (2, spaces.Discrete(3), np.int64, 2),
        (np.array([2]), spaces.Discrete(3), np.int64, [2]),
    ],
)
def test_what_converts_exactly_is_taken_as_an_array(obs, space, dtype, expected):
    array = checked_observation(obs, space, "env")
    assert (type(array), array.dtype, array.tolist()) == (np.ndarray, dtype, expected)


def test_lists_are_taken_in_dicts_and_tuples_too():
    found = checked_observation({"a": [0, 1], "b": [2, [3, 4]], "more": 0.5}, DICT, "env")
    assert type(found["b"]) is tuple and found["b"][0].tolist() == 2
    assert (found["a"].tolist(), found["b"][1].tolist(), found["more"].tolist()) == ([0, 1], [3, 4], 0.5)


@pytest.mark.parametrize(
    ("obs", "space", "message"),
    [
        (np.zeros(3, np.float32), BOX, r"of the shape \(3,\) and dtype float32; the env shows Box.*\(2,\), float32"),
        (np.zeros((1, 2), np.float32), BOX, r"of the shape \(1, 2\)"),
        ([0.0, 1.0, 2.0], BOX, r"observation is \[0.0, 1.0, 2.0\]; the env shows Box"),
        ([[0.0], [1.0, 2.0]], BOX, "the env shows Box"),
        (["a", "b"], BOX, "the env shows Box"),
        (None, BOX, "observation is None; the env shows Box"),
        (np.array([0.5, 1.0]), BYTES, "dtype float64; the env shows Box.* uint8"),
        ([256, 0], BYTES, "uint8"),
        (np.array([np.nan, 0.0]), BYTES, "uint8"),
        ([1, 2], spaces.Discrete(3), "Discrete"),
        ({"a": np.zeros(2)}, DICT, "the env shows Dict"),
        (np.zeros(2), DICT, "the env shows Dict"),
        ({"a": np.zeros(2), "b": (1,)}, DICT, r"observation\['b'\] .*the env shows Tuple"),
        ({"a": np.zeros(2), "b": (1, [0.5, 1])}, DICT, r"observation\['b'\]\[1\] .*uint8"),
    ],
)
def test_other_observations_are_refused_in_one_line(obs, space, message):
    with pytest.raises(EnvOutputError, match=message) as caught:
        checked_observation(obs, space, "env")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("first", [[0.0, 0.5], np.array([0.0, 0.5])])
def test_an_env_checks_its_first_observation_and_each_step(first):
    env = GymnasiumEnv({"env": partial(WIDE, first=first)})
    assert env.reset().tolist() == [0.0, 0.5]
    with pytest.raises(EnvOutputError):
        env.step(0)
    with pytest.raises(EnvOutputError):
        GymnasiumEnv({"env": partial(Returning, (), first=[0.0])}).reset()


@pytest.mark.parametrize(
    "make",
    [
        lambda: GymnasiumEnv({"env": FOUR}),
        lambda: GymnasiumEnv({"env": FOUR, "max_episode_steps": 5}),  # where gymnasium's own wrapper fails
        lambda: DingEnvWrapper(FOUR(), {"env_wrapper": []}),
        lambda: GymnasiumEnv({"env": partial(Returning, values=None)}),
    ],
)
def test_a_step_of_four_values_is_told_what_is_wanted(make):
    env = make()
    env.reset()
    with pytest.raises(EnvOutputError, match="truncated"):
        env.step(0)
