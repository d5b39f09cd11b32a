from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict
from gymnasium import spaces

import ding.worker.replay_buffer  # noqa: F401 registers the buffers
from ding.entry.checks import (
    check_evaluation_episodes,
    check_model_fits_env,
    check_pipeline,
    check_policy_fits_env,
    warn_of_overruled_settings,
    warn_of_unused_priority,
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
    with pytest.raises(
        ValueError, match=r"policy.model.obs_shape = 7 does not fit the env, .* is a dict of a, b; leave"
    ):
        check_model_fits_env({"obs_shape": 7}, manager)
    check_model_fits_env({"obs_shape": 7}, manager, is_foreign=True)
    with pytest.raises(ValueError, match=r"obs_shape = 5 .* observation_space\['observation'\] is Box"):
        check_model_fits_env({"obs_shape": 5}, env(spaces.Dict(observation=BOX, action_mask=BOX)))


def test_real_spaces_of_cartpole_fit():
    made = gymnasium.make("CartPole-v1")
    check_model_fits_env({"obs_shape": 4, "action_shape": 2}, made)
    with pytest.raises(ValueError, match=r"policy.model.action_shape = 3 does not fit .* Discrete\(2\)"):
        check_model_fits_env({"obs_shape": 4, "action_shape": 3}, made)
    made.close()


@pytest.mark.differs(
    "settings that another one overrules (`seed`, `policy.eval.evaluator.stop_value` and `n_episode`, "
    "`policy.collect.unroll_len`) have silently no effect",
    "one warning names both and the value that counts",
)
def test_settings_that_others_overrule_are_warned_of_once(caplog):
    evaluator = {"stop_value": 195, "n_episode": 8}
    user = EasyDict(seed=3, policy={"unroll_len": 4, "collect": {"unroll_len": 2}, "eval": {"evaluator": evaluator}})
    used = {"stop_value": 10**10, "n_episode": 4}
    compiled = EasyDict(seed=0, policy={"collect": {"unroll_len": 4}, "eval": {"evaluator": used}})
    for _ in range(2):
        warn_of_overruled_settings(user, compiled)
    assert caplog.messages == [
        "seed = 3 has no effect: the argument seed takes its place (0); set that one",
        "policy.collect.unroll_len = 2 has no effect: policy.unroll_len takes its place (4); set that one",
        "policy.eval.evaluator.stop_value = 195 has no effect: env.stop_value takes its place (10000000000); "
        "set that one",
        "policy.eval.evaluator.n_episode = 8 has no effect: env.n_evaluator_episode takes its place (4); set that one",
    ]


@pytest.mark.parametrize("user", [{}, {"seed": 0, "policy": {"eval": {"evaluator": {"n_episode": 4}}}}, {"policy": 1}])
def test_settings_that_are_used_are_not_warned_of(user, caplog):
    warn_of_overruled_settings(user, EasyDict(seed=0, policy={"eval": {"evaluator": {"n_episode": 4}}}))
    assert caplog.messages == []


def cfg_of_buffer(has_priority, **buffer):
    return EasyDict(policy={"priority": has_priority, "other": {"replay_buffer": buffer}})


@pytest.mark.differs(
    "`policy.priority` with a buffer that draws uniformly silently has no effect",
    "one warning says so",
)
@pytest.mark.parametrize(
    ("has_priority", "buffer", "text"),
    [
        (
            True,
            {"type": "naive"},
            "policy.priority = True has no effect: the replay buffer 'naive' draws uniformly; set",
        ),
        (True, {"type": "elastic"}, "policy.priority = True has no effect: the replay buffer 'elastic' draws"),
        (True, {"type": "deque"}, "policy.priority = True and policy.other.replay_buffer.priority = False: "),
        (
            False,
            {"type": "deque", "priority": True},
            "policy.priority = False and policy.other.replay_buffer.priority =",
        ),
    ],
)
def test_priorities_that_only_policy_or_buffer_know_are_warned_of(has_priority, buffer, text, caplog):
    warn_of_unused_priority(cfg_of_buffer(has_priority, **buffer))
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith(text)


@pytest.mark.parametrize(
    ("has_priority", "buffer"),
    [
        (True, {"type": "advanced"}),
        (False, {"type": "advanced"}),
        (False, {"type": "naive"}),
        (True, {"type": "deque", "priority": True}),
        (False, {"type": "deque"}),
        (True, {"multi_buffer": True}),
    ],
)
def test_priorities_that_both_know_are_not_warned_of(has_priority, buffer, caplog):
    warn_of_unused_priority(cfg_of_buffer(has_priority, **buffer))
    assert caplog.messages == []


def test_fewer_episodes_than_evaluator_envs_are_refused():
    with pytest.raises(ValueError, match="n_evaluator_episode = 4 is less than env.evaluator_env_num = 5"):
        check_evaluation_episodes(EasyDict(env={"n_evaluator_episode": 4, "evaluator_env_num": 5}))
    check_evaluation_episodes(EasyDict(env={"n_evaluator_episode": 5, "evaluator_env_num": 5}))
    check_evaluation_episodes(EasyDict(env={"n_evaluator_episode": 4}))


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
        with pytest.raises(ConfigError, match="actions, but the env's action_space is") as error:
            check_policy_fits_env(policy, env(action_space=space))
        assert ("act_bins" in str(error.value)) == discrete


def test_a_replay_buffer_of_none_is_refused_where_there_is_one():
    cfg = EasyDict(policy={"type": "dqn", "learn": {"update_per_collect": 1}, "other": {"replay_buffer": None}})
    with pytest.raises(ConfigError, match="policy.other.replay_buffer = None is not allowed"):
        check_pipeline(cfg, has_buffer=True)
    cfg.policy.on_policy = True
    check_pipeline(cfg, has_buffer=False)
