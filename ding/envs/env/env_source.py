"""Sources of the environment inside a `DingEnvWrapper`: an id, or an existing instance."""

from __future__ import annotations

import copy
import functools
from typing import Any

from ding.envs.common.gym_compat import gym_that_knows, is_gymnasium_env, layers, library_of, make_gym_env
from ding.envs.env.gymnasium_source import make_by_id, record_video, resolve_id
from ding.utils.showing import shown


class IdSource:
    """Source of the environment `env_id`: gymnasium's, or that of gym where gymnasium has none.

    Args:
        is_gymnasium: leave gym out.
    """

    is_instance = False

    def __init__(self, env_id: str, is_gymnasium: bool = False) -> None:
        self.env_id = env_id
        self._is_gymnasium = is_gymnasium

    def make(self, video_folder: str | None, video_prefix: str) -> Any:
        """Return a new environment; with `video_folder` it records each episode there.

        Raises:
            gymnasium.error.Error: no environment has the id.
        """
        kwargs = {} if video_folder is None else {"render_mode": "rgb_array"}
        env = make_env(self.env_id, self._is_gymnasium, disable_env_checker=True, **kwargs)
        return env if video_folder is None else record_any(env, video_folder, video_prefix)

    def clone(self) -> IdSource:
        """Return a source for other environments."""
        return self


class InstanceSource:
    """Source that returns a given environment and, after that was closed, new ones made by its `spec`."""

    is_instance = True

    def __init__(self, env: Any) -> None:
        self._env = env
        self._spec = getattr(env, "spec", None)
        self._classes = _classes(env)
        self._is_closed = False

    @property
    def env_id(self) -> str | None:
        """The id in the environment's `spec`, None if it has none."""
        env_id = getattr(self._spec, "id", None)
        return None if env_id is None else str(env_id)

    def make(self, video_folder: str | None, video_prefix: str) -> Any:
        """Return the environment; with `video_folder`, in a wrapper that records each episode there.

        Raises:
            RuntimeError: it was closed and cannot be made again.
            ValueError: a video is requested, but the environment was not made for `rgb_array` rendering.
        """
        if self._is_closed:
            self._env, self._is_closed = self._remade(), False
        if video_folder is None:
            return self._env
        if getattr(self._env, "render_mode", None) != "rgb_array":
            self._exchange_for_images()
        return record_any(self._env, video_folder, video_prefix)

    def forget(self) -> None:
        """Note that the environment was closed."""
        self._env, self._is_closed = None, True

    def clone(self) -> InstanceSource:
        """Return a source with an environment of its own: made by the `spec`, else a copy in its present state.

        Raises:
            RuntimeError: neither is possible.
        """
        try:
            return InstanceSource(self._remade())
        except RuntimeError as e:
            if self._is_closed:
                raise
            unmade = e
        try:
            copied = copy.deepcopy(self._env)
        except Exception as e:
            raise RuntimeError(
                f"{shown(self._env, str)} cannot be cloned: {unmade}; and a copy fails with {e!r}. Give DingEnvWrapper "
                "cfg.env_id instead of an instance, or make one DingEnvWrapper in each env_fn"
            ) from e
        if any(layer is own for layer, own in zip(layers(copied), layers(self._env), strict=False)):
            raise RuntimeError(f"{shown(self._env, str)} cannot be cloned: its copy shares a layer with it")
        return InstanceSource(copied)

    def _exchange_for_images(self) -> None:
        """Replace the first environment by a new one that renders images."""
        silent = self._env
        try:
            self._env = self._remade(render_mode="rgb_array")
        except RuntimeError as e:
            raise ValueError(f"a video needs an env made with render_mode='rgb_array'; make {silent} so") from e
        silent.close()

    def _remade(self, **kwargs: Any) -> Any:
        """Return a new environment like the first one, whose spec must name all of its wrappers."""
        names = [cls.__name__ for cls in self._classes]
        advice = "give DingEnvWrapper cfg.env_id instead of an instance"
        library = library_of(self._classes[0])
        if self._spec is None or library is None:
            raise RuntimeError(f"{names} cannot be made anew without a spec; {advice}")
        try:
            make = functools.partial(make_gym_env, library) if library.__name__ == "gym" else library.make
            env = make(self._spec, **kwargs)
        except Exception as e:
            raise RuntimeError(f"{self.env_id} cannot be made anew as its spec says: {e!r}; {advice}") from e
        if _classes(env) != self._classes:
            env.close()
            raise RuntimeError(f"{self.env_id} cannot be made anew: its spec does not hold all of {names}; {advice}")
        return env


def record_any(env: Any, folder: str, prefix: str) -> Any:
    """Return `env`, each episode of which is recorded; see `record_video`."""
    if is_gymnasium_env(env):
        return record_video(env, folder, prefix)
    from ding.envs.env_wrappers.bilingual import BilingualEnv

    view = BilingualEnv(env)
    return view.settle(record_video(view, folder, prefix))


def make_env(env_id: str, is_gymnasium: bool = False, **kwargs: Any) -> Any:
    """Return the environment `env_id`, made by gymnasium or, where it has none, by gym; `is_gymnasium` leaves gym out.

    Raises:
        gymnasium.error.Error: no environment has the id.
    """
    gym = None if is_gymnasium or _gymnasium_knows(env_id) else gym_that_knows(env_id)
    return make_by_id(env_id, **kwargs) if gym is None else make_gym_env(gym, env_id, **kwargs)


def _gymnasium_knows(env_id: str) -> bool:
    import gymnasium

    try:
        gymnasium.spec(resolve_id(env_id)[0])
    except (gymnasium.error.Error, ImportError):
        return False
    return True


def _classes(env: Any) -> list[type]:
    return [type(layer) for layer in layers(env)]
