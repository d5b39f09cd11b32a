"""The lists of wrappers that configs call by one name."""

from __future__ import annotations

from typing import Any

from easydict import EasyDict

from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY

# Their episodes begin with a press of the fire button.
_FIRE_GAMES = ("Pong", "Qbert", "SpaceInvader", "Montezuma")


def get_default_wrappers(
    env_wrapper_name: str, env_id: str | None = None, caller: str = "collector"
) -> list[dict[str, Any]]:
    """Return configs for `create_env_wrapper`, the innermost first: those of a preset, or of one registered wrapper.

    The presets are `default` and `mujoco_default` (the episode's return), `atari_default` and `gym_hybrid_default`.
    Each list ends with the episode's return, over rewards as the other wrappers leave them.

    Args:
        env_id: names the game for `atari_default`.
        caller: 'collector' or 'evaluator'; evaluators of `atari_default` see rewards unclipped.

    Raises:
        AssertionError: `caller` is neither 'collector' nor 'evaluator'.
        NotImplementedError: the name is neither a preset nor registered.
        ValueError: `env_id` is missing for `atari_default`.
    """
    if caller not in ("collector", "evaluator"):
        raise AssertionError(f"caller = {caller!r} is not allowed; it must be 'collector' or 'evaluator'")
    if env_wrapper_name in ("default", "mujoco_default"):
        inner = []
    elif env_wrapper_name == "atari_default":
        inner = _atari(env_id, caller)
    elif env_wrapper_name == "gym_hybrid_default":
        inner = [EasyDict(type="gym_hybrid_dict_action")]
    elif env_wrapper_name in ENV_WRAPPER_REGISTRY:
        inner = [] if env_wrapper_name == "eval_episode_return" else [EasyDict(type=env_wrapper_name)]
    else:
        raise NotImplementedError(
            f"not supported env_wrapper_name: {env_wrapper_name!r}; there are default, mujoco_default, atari_default, "
            f"gym_hybrid_default and the registered {sorted(ENV_WRAPPER_REGISTRY)}"
        )
    return [*inner, EasyDict(type="eval_episode_return")]


def _atari(env_id: str | None, caller: str) -> list[dict[str, Any]]:
    if env_id is None:
        raise ValueError("atari_default needs env_id, the name of the game; set env.env_id")
    fire = [EasyDict(type="fire_reset")] if any(game in env_id for game in _FIRE_GAMES) else []
    clip = [EasyDict(type="clip_reward")] if caller == "collector" else []
    return [
        EasyDict(type="noop_reset", kwargs={"noop_max": 30}),
        EasyDict(type="max_and_skip", kwargs={"skip": 4}),
        EasyDict(type="episodic_life"),
        *fire,
        EasyDict(type="warp_frame"),
        EasyDict(type="scaled_float_frame"),
        *clip,
        EasyDict(type="frame_stack", kwargs={"n_frames": 4}),
    ]
