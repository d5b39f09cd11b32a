"""Rendering of environments, and their frame rates."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding.utils.log_helper import shown

DEFAULT_FPS = 30


def get_env_fps(env: Any) -> float:
    """Return the frame rate in the metadata of a gymnasium or gym environment.

    Raises:
        KeyError: the metadata has none.
    """
    metadata = env.metadata
    for key in ("render_fps", "video.frames_per_second"):
        if metadata.get(key) is not None:
            return float(metadata[key])
    raise KeyError(f"the metadata of {shown(env, str)} has neither 'render_fps' nor 'video.frames_per_second'")


def fps(env_manager: Any) -> float:
    """Return the frame rate of the `env_ref` of `env_manager`, or 30 if it is unknown."""
    try:
        env = env_manager.env_ref
        # `_env` is the environment that a BaseEnv wraps.
        return get_env_fps(getattr(env, "_env", env))
    except Exception:  # of an env that is not made yet, or knows no rate
        return DEFAULT_FPS


def render_env(env: Any, render_mode: str = "rgb_array") -> np.ndarray:
    """Return a frame of a gymnasium or gym environment, uint8 [C, H, W].

    Raises:
        ValueError: the environment renders nothing.
    """
    if getattr(env, "render_mode", None) is not None or not _takes_mode(env):
        frame = env.render()
    else:
        frame = env.render(mode=render_mode)
    if frame is None:
        raise ValueError(f"{shown(env, str)} rendered nothing; create it with render_mode={render_mode!r}")
    return np.moveaxis(np.asarray(frame, dtype=np.uint8), -1, 0)


def render(env: Any, render_mode: str = "rgb_array") -> np.ndarray:
    """Return a frame of the environment that a `BaseEnv` wraps, uint8 [C, H, W]; see `render_env`."""
    return render_env(getattr(env, "_env", env), render_mode)


def _takes_mode(env: Any) -> bool:
    # Old gym environments take the mode in each call, gymnasium environments at construction.
    code = getattr(env.render, "__code__", None)
    return code is not None and "mode" in code.co_varnames[: code.co_argcount]
