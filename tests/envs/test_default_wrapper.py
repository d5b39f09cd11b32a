"""The lists of wrappers that configs call by one name."""

from __future__ import annotations

import pytest

from ding.envs import get_default_wrappers


def types_of(*args):
    return [entry["type"] for entry in get_default_wrappers(*args)]


@pytest.mark.parametrize("name", ["default", "mujoco_default"])
def test_the_default_tells_the_return_of_an_episode(name):
    assert get_default_wrappers(name) == [{"type": "eval_episode_return"}]


ATARI = ["noop_reset", "max_and_skip", "episodic_life", "warp_frame", "scaled_float_frame", "frame_stack"]


def test_atari_games_are_wrapped_for_collecting_and_evaluating():
    collect = types_of("atari_default", "BreakoutNoFrameskip-v4")
    assert collect == [*ATARI[:5], "clip_reward", "frame_stack", "eval_episode_return"]
    assert types_of("atari_default", "BreakoutNoFrameskip-v4", "evaluator") == [*ATARI, "eval_episode_return"]
    kwargs = {
        entry["type"]: entry["kwargs"] for entry in get_default_wrappers("atari_default", "Enduro") if "kwargs" in entry
    }
    assert kwargs == {"noop_reset": {"noop_max": 30}, "max_and_skip": {"skip": 4}, "frame_stack": {"n_frames": 4}}


@pytest.mark.parametrize("game", ["PongNoFrameskip-v4", "Qbert-v0", "SpaceInvaders-v4", "MontezumaRevenge-v4"])
def test_games_that_begin_with_fire_begin_so(game):
    assert types_of("atari_default", game)[3] == "fire_reset"


def test_hybrid_actions_come_as_dicts():
    assert types_of("gym_hybrid_default") == ["gym_hybrid_dict_action", "eval_episode_return"]


def test_a_registered_wrapper_is_a_preset_of_its_own():
    assert types_of("reward_in_obs") == ["reward_in_obs", "eval_episode_return"]
    assert types_of("eval_episode_return") == ["eval_episode_return"]


def test_the_caller_is_checked_for_every_preset():
    with pytest.raises(AssertionError):
        get_default_wrappers("default", caller="actor")


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(NotImplementedError):
        get_default_wrappers("atari")


def test_atari_needs_the_name_of_the_game():
    with pytest.raises(ValueError, match="env_id"):
        get_default_wrappers("atari_default")
