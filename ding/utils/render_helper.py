"""Pictures of environments, and how many of them make a second."""

from __future__ import annotations

from typing import Any

import numpy as np

DEFAULT_FPS = 30


def get_env_fps(env: Any) -> float:
    """The frame rate that the metadata of the gymnasium or gym environment `env` states.

    Raises:
        KeyError: it states none.
    """
    metadata = env.metadata
    for key in ("render_fps", "video.frames_per_second"):
        if metadata.get(key) is not None:
            return float(metadata[key])
    raise KeyError(f"the metadata of {env} has neither 'render_fps' nor 'video.frames_per_second'")


def fps(env_manager: Any) -> float:
    """The frame rate of the environments of `env_manager`, from its `env_ref`; 30 where it cannot be told."""
    try:
        env = env_manager.env_ref
        # A BaseEnv keeps the environment it wraps as `_env`.
        return get_env_fps(getattr(env, "_env", env))
    except Exception:
        return DEFAULT_FPS


def render_env(env: Any, render_mode: str = "rgb_array") -> np.ndarray:
    """One picture of the gymnasium or gym environment `env`, uint8 of shape (C, H, W)."""
    if getattr(env, "render_mode", None) is not None or not _takes_mode(env):
        frame = env.render()
    else:
        frame = env.render(mode=render_mode)
    if frame is None:
        raise ValueError(f"{env} rendered nothing; make it with render_mode={render_mode!r}")
    return np.moveaxis(np.asarray(frame, dtype=np.uint8), -1, 0)


def render(env: Any, render_mode: str = "rgb_array") -> np.ndarray:
    """One picture of the environment that the `BaseEnv` `env` wraps, uint8 of shape (C, H, W)."""
    return render_env(getattr(env, "_env", env), render_mode)


def _takes_mode(env: Any) -> bool:
    # Old gym environments take the mode at each call; gymnasium fixes it when the environment is made.
    code = getattr(env.render, "__code__", None)
    return code is not None and "mode" in code.co_varnames[: code.co_argcount]
