"""What a config leaves out of its model is read off the env."""

import re

import numpy as np
import pytest
from easydict import EasyDict
from gymnasium import spaces
from torch import nn

from ding.entry import evaluate_run, load_policy, parallel_pipeline, serial_pipeline
from ding.entry.checks import model_shape
from ding.entry.experiment import Experiment
from ding.entry.run_folder import RunFolder
from ding.model import create_model
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import MODEL_REGISTRY
from tests.entry.steps import Steps


def pair(policy, env="CartPole-v1", manager="base", **sections):
    main = EasyDict(
        exp_name="run",
        env={"env_id": env, "collector_env_num": 2, "evaluator_env_num": 1, "n_evaluator_episode": 1},
        policy=sections,
    )
    create = EasyDict(env={"type": "gymnasium"}, env_manager={"type": manager}, policy={"type": policy})
    return main, create


def completed(main, create, *env_and_model):
    """Return the main config with what is read off the env."""
    return Experiment.from_config((main, create), 0, *env_and_model).main


@pytest.mark.parametrize(
    ("policy", "env", "expected"),
    [
        ("dqn", "CartPole-v1", {"model": {"obs_shape": 4, "action_shape": 2}}),
        ("r2d2", "Acrobot-v1", {"model": {"obs_shape": 6, "action_shape": 3}}),
        ("sac", "Pendulum-v1", {"model": {"obs_shape": 3, "action_shape": 1}}),
        ("ppo", "CartPole-v1", {"model": {"obs_shape": 4, "action_shape": 2}, "action_space": "discrete"}),
        ("ppo", "Pendulum-v1", {"model": {"obs_shape": 3, "action_shape": 1}, "action_space": "continuous"}),
        ("pg", "Pendulum-v1", {"model": {"obs_shape": 3, "action_shape": 1}, "action_space": "continuous"}),
        ("bdq", "Acrobot-v1", {"model": {"obs_shape": 6, "num_branches": 1, "action_bins_per_branch": 3}}),
    ],
)
@pytest.mark.parametrize("manager", ["base", "vector_env"])
def test_shapes_and_kind_of_actions_are_those_of_the_env(policy, env, expected, manager):
    main, create = pair(policy, env, manager)
    main = completed(main, create)
    assert main.policy == expected


def test_what_is_given_stays():
    main, create = pair("dqn", model={"obs_shape": 4, "encoder_hidden_size_list": [8]})
    main = completed(main, create)
    assert main.policy.model == {"obs_shape": 4, "encoder_hidden_size_list": [8], "action_shape": 2}
    main, create = pair("ppo", "Pendulum-v1", action_space="discrete")
    main = completed(main, create)
    assert main.policy.action_space == "discrete"  # refused later, when it is compared with the env
    main, create = pair("dqn")
    create.policy.model = {"obs_shape": 4, "action_shape": 2}
    main = completed(main, create)
    assert main.policy == {}


BYTES, FLOATS = spaces.Box(0, 255, (1, 40, 40), np.uint8), spaces.Box(0, 1, (1, 40, 40))
VECTOR = spaces.Box(0, 255, (3,), np.uint8)


@pytest.mark.parametrize(
    ("space", "given", "scale"),
    [
        (BYTES, {}, 255.0),
        (spaces.Dict(image=BYTES, vector=VECTOR), {}, 255.0),
        (spaces.Dict(eyes=spaces.Dict(left=BYTES, right=BYTES), vector=VECTOR), {}, 255.0),
        (spaces.Dict(eyes=spaces.Dict(left=BYTES, right=FLOATS)), {}, None),
        (BYTES, {"scale_ob": 1.0}, 1.0),
        (BYTES, {"obs_shape": [1, 40, 40]}, None),
        (FLOATS, {}, None),
        (spaces.Dict(one=BYTES, other=FLOATS), {}, None),
        (VECTOR, {}, None),
    ],
)
@pytest.mark.parametrize("is_created", [False, True])
def test_images_of_bytes_are_divided_by_255(space, given, scale, is_created):
    class Shows(Steps):
        observation_space = space

    main, create = pair("dqn")
    main.env.pop("env_id")
    main.env.env = Shows
    (create if is_created else main).policy.model = EasyDict(given)
    main = completed(main, create)
    assert {**given, **main.policy.model}.get("scale_ob") == scale


def test_a_model_gets_the_shapes_that_it_has_arguments_for():
    @MODEL_REGISTRY.register("test_model_shapes_own")
    class Own(nn.Module):
        def __init__(self, width=3, obs_shape=None):
            super().__init__()

    main, create = pair("dqn", model={"type": "test_model_shapes_own"})
    main = completed(main, create)
    assert main.policy.model == {"type": "test_model_shapes_own", "obs_shape": 4}


def test_shapes_of_spaces():
    image, vector = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Box(-1, 1, (3,))
    assert model_shape("obs_shape", image) == [4, 84, 84]
    assert model_shape("obs_shape", spaces.Dict(image=image, vector=vector)) == {"image": [4, 84, 84], "vector": 3}
    masked = spaces.Dict(observation=vector, action_mask=spaces.MultiBinary(2))
    assert model_shape("obs_shape", masked) == 3
    beside = spaces.Dict(board=vector, observation=vector, action_mask=spaces.MultiBinary(2))
    assert model_shape("obs_shape", beside) == {"board": 3, "observation": 3}
    assert model_shape("action_shape", spaces.MultiDiscrete([2, 5])) == [2, 5]
    assert model_shape("action_shape", spaces.Box(-1, 1, (2, 3))) == [2, 3]


@pytest.mark.parametrize("key", ["obs_shape", "action_shape"])
def test_a_space_without_a_shape_is_refused_in_one_line(key):
    with pytest.raises(ConfigError) as error:
        model_shape(key, spaces.Text(3))
    assert str(error.value).startswith(f"policy.model.{key} is missing, and the env's ") and "Text" in str(error.value)


class Photos(Steps):
    """Shows images with their channels last."""

    observation_space = spaces.Box(0, 255, (40, 50, 3), np.uint8)


@pytest.mark.parametrize(("env", "shape"), [("FrozenLake-v1", 16), ("Blackjack-v1", 32 + 11 + 2)])
def test_the_wrapper_that_a_message_names_gives_the_shape(env, shape):
    main, create = pair("dqn", env)
    with pytest.raises(ConfigError) as error:
        main = completed(main, create)
        create_model({"type": "dqn", **main.policy.pop("model")})
    main.env.wrappers = re.findall(r"env\.wrappers = \['([\w.:]+)'\]", str(error.value))
    main = completed(main, create)
    assert len(main.env.wrappers) == 1 and main.policy.model.obs_shape == shape


def test_the_setting_that_a_message_names_turns_images():
    main, create = pair("dqn", Photos)
    main.env.env = main.env.pop("env_id")
    with pytest.raises(ConfigError, match=r"env\.channels_first = True"):
        main = completed(main, create)
    main.env.channels_first = True
    main = completed(main, create)
    assert main.policy.model.obs_shape == [3, 40, 50]


def test_runs_keep_what_was_read_off():
    main, create = pair("dqn", learn={"batch_size": 4}, collect={"n_sample": 8})
    serial_pipeline((main, create), max_train_iter=1)
    assert main.policy == {"learn": {"batch_size": 4}, "collect": {"n_sample": 8}}  # the caller's
    compiled = RunFolder("run").compiled.policy.model
    assert (compiled.obs_shape, compiled.action_shape) == (4, 2)
    assert len(evaluate_run("run").returns) == 1
    assert load_policy("run").predict(np.zeros(4, np.float32)).shape == (1,)
    serial_pipeline((main, create), max_train_iter=2, resume=True)


def test_parallel_runs():
    main, create = pair("dqn", learn={"batch_size": 4}, collect={"n_sample": 8}, other={"eps": {"decay": 100}})
    main.env.evaluator_episode_num = main.env.collector_episode_num = 1
    parallel_pipeline((main, create, {"transport": "local"}), max_train_iter=2)
    compiled = RunFolder("run").compiled.policy.model
    assert (compiled.obs_shape, compiled.action_shape) == (4, 2)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (1, 7)),
        ({"action_bins_per_branch": 5}, (1, 5)),
        ({"num_branches": 2, "action_bins_per_branch": 3}, (2, 3)),
    ],
)
def test_branches_are_those_of_the_env_unless_they_are_given(given, expected):
    main, create = pair("bdq", "Pendulum-v1", model=given)
    main.env.act_bins = 7
    main = completed(main, create)
    assert (main.policy.model.num_branches, main.policy.model.action_bins_per_branch) == expected
