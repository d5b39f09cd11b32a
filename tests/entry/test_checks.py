from types import SimpleNamespace

import numpy as np
import pytest
from easydict import EasyDict
from gymnasium import spaces

from ding.entry.checks import (
    check_model_fits_env,
    check_policy_fits_env,
)
from ding.utils.config_helper import ConfigError

BOX = spaces.Box(-1, 1, (4,), dtype=np.float32)
IMAGE = spaces.Box(0, 255, (3, 84, 84), dtype=np.uint8)
TEAM = spaces.Box(-1, 1, (5, 12), dtype=np.float32)


def env(observation_space=None, action_space=None):
    return SimpleNamespace(observation_space=observation_space, action_space=action_space)


@pytest.mark.parametrize(
    ("model", "manager"),
    [
        ({}, env(BOX, spaces.Discrete(2))),
        ({"obs_shape": 4, "action_shape": 2}, env(BOX, spaces.Discrete(2))),
        ({"obs_shape": [4], "action_shape": [2]}, env(BOX, spaces.Discrete(2))),
        ({"obs_shape": 4, "action_shape": 2}, env()),
        ({"obs_shape": 4, "action_shape": 2}, object()),
        ({"obs_shape": [3, 84, 84], "action_shape": 4}, env(IMAGE, spaces.Box(-1, 1, (4,)))),
        ({"obs_shape": 12}, env(TEAM)),
        ({"obs_shape": {"agent_state": 5}}, env(BOX)),
        ({"obs_shape": 4}, env(spaces.Dict(observation=BOX, action_mask=BOX))),
        ({"action_shape": {"action_type_shape": 3}}, env(None, spaces.Discrete(2))),
        ({"action_shape": [3, 2]}, env(None, spaces.MultiDiscrete([3, 2]))),
        ({"action_shape": 6}, env(None, spaces.MultiDiscrete([3, 2]))),
        ({"obs_shape": ()}, env(spaces.Box(-1, 1, ()))),
    ],
)
def test_models_that_fit_or_cannot_be_compared_pass(model, manager):
    check_model_fits_env(EasyDict(model), manager)


@pytest.mark.parametrize(
    ("key", "shape", "space"),
    [
        ("obs_shape", 5, BOX),
        ("obs_shape", [3, 4], BOX),
        ("obs_shape", [4, 84, 84], IMAGE),
        ("action_shape", 3, spaces.Discrete(2)),
        ("action_shape", 2, spaces.Box(-1, 1, (1,))),
        ("action_shape", [3, 3], spaces.MultiDiscrete([3, 2])),
    ],
)
def test_a_misfit_names_both_sides(key, shape, space):
    manager = env(space, None) if key == "obs_shape" else env(None, space)
    with pytest.raises(ValueError, match=f"policy.model.{key} = ") as e:
        check_model_fits_env({key: shape}, manager)
    assert str(shape) in str(e.value) and str(space) in str(e.value)


def test_a_dict_of_observations_needs_a_dict_of_shapes_unless_the_model_is_of_ones_own():
    manager = env(spaces.Dict(a=BOX, b=BOX))
    with pytest.raises(ValueError, match=r"obs_shape = 7 .* {'a': 4, 'b': 4}"):
        check_model_fits_env({"obs_shape": 7}, manager)
    check_model_fits_env({"obs_shape": 7}, manager, is_foreign=True)
    with pytest.raises(ValueError, match="obs_shape = 5 .* 4"):
        check_model_fits_env({"obs_shape": 5}, env(spaces.Dict(observation=BOX, action_mask=BOX)))


@pytest.mark.parametrize(
    ("discrete", "space", "fits"),
    [
        (True, spaces.Discrete(2), True),
        (True, spaces.MultiDiscrete([2, 3]), True),
        (True, spaces.Box(-1, 1, (1,)), False),
        (False, spaces.Box(-1, 1, (1,)), True),
        (False, spaces.Discrete(2), False),
        (None, spaces.Box(-1, 1, (1,)), True),
        (True, None, True),
    ],
)
def test_the_kind_of_actions_of_policy_and_env_must_agree(discrete, space, fits):
    policy = SimpleNamespace(has_discrete_actions=discrete)
    if fits:
        check_policy_fits_env(policy, env(action_space=space))
    else:
        with pytest.raises(ConfigError, match="chooses") as error:
            check_policy_fits_env(policy, env(action_space=space))
        assert ("act_bins" in str(error.value)) == discrete
