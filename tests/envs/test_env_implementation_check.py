"""Checks of an env's implementation."""

import logging

import numpy as np
import pytest
from gymnasium import spaces

from ding.envs import (
    BaseEnvTimestep,
    DemoEnv,
    DingEnvWrapper,
    GymnasiumEnv,
    check_all,
    check_array_space,
    check_obs_deepcopy,
    check_reset,
    check_space_dtype,
    check_step,
    demonstrate_correct_procedure,
)

INTS = np.array([0, 1])


def walk(**attributes):
    """A DemoEnv with other attributes."""
    env = DemoEnv({})
    vars(env).update(attributes)
    return env


@pytest.mark.parametrize(
    "make",
    [
        lambda: DemoEnv({}),
        lambda: DingEnvWrapper(cfg={"env_id": "CartPole-v1"}),
        lambda: GymnasiumEnv({"env_id": "CartPole-v1"}),
        lambda: DingEnvWrapper(cfg={"env_id": "CartPole-v1", "env_wrapper": ["frame_stack"]}),
    ],
)
def test_good_envs_pass_all_checks_and_the_log_says_so(make, caplog):
    with caplog.at_level(logging.INFO, "ding"):
        check_all(make())
    assert [record.message.split()[-1] for record in caplog.records] == [
        "check_space_dtype", "check_reset", "check_step", "check_obs_deepcopy",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("space", "match"),
    [
        (spaces.Box(0, 1, (1,), np.float64), "observation_space is float64; it must be float32"),
        (spaces.Box(0, 9, (1,), np.int32), "observation_space is int32; it must be int64"),
        (spaces.Box(0, 9, (1,), np.uint16), "uint16; it must be uint8"),
        (spaces.Dict(a=spaces.Box(0, 1, (1,), np.float64)), r"observation_space\['a'\] is float64"),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,), np.float64)]), r"observation_space\[1\] is float64"),
    ],
)
def test_other_dtypes_of_spaces_are_named(space, match):
    with pytest.raises(AssertionError, match=match):
        check_space_dtype(walk(observation_space=space))


@pytest.mark.parametrize(
    ("data", "space"),
    [
        (np.float32([1, 2]), spaces.Box(1, 2, (2,), np.float32)),
        (np.array(2), spaces.Discrete(3)),
        (np.array([0]), spaces.Discrete(3)),
        (np.array([5]), spaces.Discrete(3, start=5)),
        (np.array([0, 2]), spaces.MultiDiscrete([1, 3])),
        (np.array([5, 2]), spaces.MultiDiscrete([1, 3], start=[5, 0])),
        (np.array([1, 0], np.int8), spaces.MultiBinary(2)),
        ({"a": np.array(1)}, spaces.Dict(a=spaces.Discrete(2))),
        ({"a": np.array(1)}, {"a": spaces.Discrete(2)}),
        ([np.array(1), np.array(0)], [spaces.Discrete(2)] * 2),
        ((np.array(1),), spaces.Tuple([spaces.Discrete(2)])),
    ],
)
def test_data_in_its_space_passes(data, space):
    assert check_array_space(data, space, "data") is True


@pytest.mark.differs(
    "accepts n in the check of a Discrete space, and mistakes views of one buffer for separate memory",
    "rejects n, and detects shared memory",
)
@pytest.mark.parametrize(
    ("data", "space", "match"),
    [
        (np.array([3]), spaces.Discrete(3), r"data exceeds its space Discrete\(3\): array"),
        (np.array([-1]), spaces.Discrete(3), "falls below"),
        (np.array([4]), spaces.Discrete(3, start=5), "falls below"),
        (np.array([1, 3]), spaces.MultiDiscrete([2, 3]), "exceeds"),
        (np.array([0, 2], np.int8), spaces.MultiBinary(2), "exceeds"),
        (np.float32([1, 3]), spaces.Box(1, 2, (2,), np.float32), "exceeds"),
        (np.float32([np.nan]), spaces.Box(1, 2, (1,), np.float32), "data has NaN or inf"),
        (np.float32([np.inf]), spaces.Box(0, np.inf, (1,), np.float32), "data has NaN or inf"),
        (np.array([1.0]), spaces.Box(1, 2, (1,), np.float32), "dtype float64, its space float32"),
        (np.array([1], np.int32), spaces.Discrete(3), "dtype int32, its space int64"),
        (np.float32([1]), spaces.Box(1, 2, (2,), np.float32), r"shape \(1,\), its space \(2,\)"),
        (INTS, spaces.Discrete(3), "shape"),
        ({"a": INTS}, spaces.Dict(b=spaces.Discrete(2)), r"members \['a'\], its space \['b'\]"),
        ({"a": np.array(2)}, spaces.Dict(a=spaces.Discrete(2)), r"data\['a'\] exceeds"),
        ([np.array(1)], [spaces.Discrete(2)] * 2, r"members \[0\], its space \[0, 1\]"),
        ([np.array(0), np.array(2)], [spaces.Discrete(2)] * 2, r"data\[1\] exceeds"),
        ([np.array(1)], spaces.Discrete(2), r"its space \[\]"),
    ],
)
def test_data_outside_of_its_space_is_told_how(data, space, match):
    with pytest.raises(AssertionError, match=match):
        check_array_space(data, space, "data")


@pytest.mark.parametrize(("data", "space"), [(1, spaces.Discrete(3)), ("a", spaces.Text(1)), (INTS, spaces.Text(1))])
def test_data_of_other_types_is_a_type_error(data, space):
    with pytest.raises(TypeError, match="data is"):
        check_array_space(data, space, "data")


def test_a_reset_outside_of_the_space_is_named():
    with pytest.raises(AssertionError, match=r"the observation of reset\(\) falls below"):
        check_reset(walk(observation_space=spaces.Box(1, 2, (1,), np.float32)))


@pytest.mark.parametrize("name", ["observation", "reward"])
def test_a_step_outside_of_a_space_is_named(name):
    with pytest.raises(AssertionError, match=rf"the {name} of step\(\)"):
        check_step(walk(**{f"{name}_space": spaces.Box(5, 6, (1,), np.float32)}))


def with_step(change):
    """A DemoEnv whose steps are changed."""

    def step(self, action):
        return change(DemoEnv.step(self, action))

    return type("Walk", (DemoEnv,), {"step": step})


def without_return(timestep):
    return timestep._replace(info={})


def with_numpy_done(timestep):
    return timestep._replace(done=np.bool_(timestep.done))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (without_return, "eval_episode_return"),
        (with_numpy_done, "return a bool"),
        (tuple, r"return a BaseEnvTimestep\(obs, reward, done, info\)"),
        (lambda timestep: timestep._replace(info=None), "info is None; return a dict"),
    ],
)
@pytest.mark.parametrize("check", [check_step, check_obs_deepcopy, demonstrate_correct_procedure])
def test_what_workers_need_of_a_step_is_asked_for(change, match, check):
    cls = with_step(change)
    with pytest.raises(AssertionError, match=match):
        check(cls if check is demonstrate_correct_procedure else cls({}))


def test_three_episodes_of_one_action_are_checked():
    actions = []

    class Counting(DemoEnv):
        def step(self, action):
            actions.append(int(action[0]))
            return super().step(action)

    check_step(Counting({}))
    assert len(actions) == 6
    assert len(set(actions)) == 1


def test_an_env_that_writes_into_its_last_observation_is_found():
    class Reusing(DemoEnv):
        _kept = np.zeros(1, np.float32)

        def _observe(self):
            self._kept[0] = self._env["place"]
            return self._kept

    with pytest.raises(AssertionError, match="after step 1 share memory.*return a copy"):
        check_obs_deepcopy(Reusing({}))
    with pytest.raises(AssertionError):
        check_all(Reusing({}))


def test_an_env_that_is_made_too_early_is_found():
    class Eager(DemoEnv):
        def __init__(self, cfg):
            super().__init__(cfg)
            self.reset()

    with pytest.raises(AssertionError):
        demonstrate_correct_procedure(Eager)


def test_the_demo_env_ends_or_is_truncated():
    env = DemoEnv({"max_step": 3})
    with pytest.raises(RuntimeError, match="before reset"):
        env.step(0)
    env.reset()
    steps = [env.step(action) for action in (0, 1, 0)]
    assert [step.obs.tolist() for step in steps] == [[-1.0], [0.0], [-1.0]]
    assert steps[-1][2:] == (True, {"terminated": False, "truncated": True, "eval_episode_return": np.zeros(1)})
    env.reset()
    timestep = [env.step(1) for _ in range(2)][-1]
    assert isinstance(timestep, BaseEnvTimestep)
    assert (timestep.reward.tolist(), timestep.info["terminated"]) == ([1.0], True)
    env.seed(1)
    first = [int(env.random_action()[0]) for _ in range(9)]
    env.seed(1)
    assert [int(env.random_action()[0]) for _ in range(9)] == first
    env.close()
