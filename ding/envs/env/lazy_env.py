"""Base of the envs that make the underlying environment at their first reset, and their videos."""

from __future__ import annotations

import importlib.util
import os
import warnings
from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from ding.envs.env.base_env import BaseEnv
from ding.envs.env.gymnasium_spaces import (
    action_adapter,
    as_arrays,
    checked_observation,
    float32_space,
    policy_space,
    reward_space_of,
)
from ding.utils.import_helper import missing_package
from ding.utils.log_helper import shown


class _Spaces(NamedTuple):
    observation: Any
    action: Any
    reward: Any


_SEEDS_AHEAD = 16


def _seed_of(*numbers: int) -> int:
    """Return the first number that `SeedSequence(numbers)` generates."""
    # What numpy makes of small numbers, at a third of the cost.
    entropy: Any = np.array(numbers, np.uint32) if max(numbers) < 2**32 else numbers
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


class EpisodeSeeds:
    """Seeds of an env's episodes: `SeedSequence([seed, i, k])` for episode k of env i; none before `assign`.

    Example:
        >>> seeds = EpisodeSeeds()
        >>> seeds.current()
        >>> seeds.assign(0)
        >>> first = seeds.current()
        >>> seeds.advance()
        >>> first, seeds.current()
        (2968811710, 3831201730)
    """

    def __init__(self) -> None:
        self._root: tuple[int, int] | None = None  # (seed, env index)
        self._episode = 0
        self._ahead: dict[int, int] = {}  # seeds by episode: those of some in a row take a third of the time each

    def assign(self, seed: int, env_index: int = 0, first_episode: int = 0) -> None:
        """Seed the episodes from the current one on, which is number `first_episode`.

        Raises:
            ValueError: a number is negative.
        """
        if min(seed, env_index, first_episode) < 0:
            raise ValueError(f"seeds are numbers >= 0; got {seed}, env index {env_index}, episode {first_episode}")
        self._root = int(seed), int(env_index)
        self._episode = int(first_episode)
        self._ahead = {}

    def current(self) -> int | None:
        """Return the seed of the current episode, None if there is none."""
        if self._root is None:
            return None
        if self._episode not in self._ahead:
            episodes = range(self._episode, self._episode + _SEEDS_AHEAD)
            self._ahead = {episode: _seed_of(*self._root, episode) for episode in episodes}
        return self._ahead[self._episode]

    def advance(self) -> None:
        """Make the next episode the current one."""
        self._episode += 1


class LazyEnv(BaseEnv):
    """Base of envs whose underlying environment is made at the first `reset`: spaces, seeds, videos, start and end.

    If a space is read earlier, an environment is made and closed for that.

    Args:
        act_scale: real-valued actions come in [-1, 1] and are mapped onto the bounds of the action space.
        act_bins: instead, real-valued actions come as choices among so many values of each dimension.
    """

    def __init__(self, act_scale: bool, act_bins: int | None = None) -> None:
        self._act_scale = act_scale
        self._act_bins = act_bins
        self._env: Any = None
        self._adapt_action: Any = None
        self._is_begun = False  # whether _env has been reset
        self._spaces: _Spaces | None = None
        self._replay_path: str | None = None
        self._is_recording = False
        self._seeds = EpisodeSeeds()
        self._is_sampling_seeded = False
        self._episode_return = 0.0

    @property
    def observation_space(self) -> Any:
        """The space of the returned observations: float32 if the environment's is float64."""
        return self._read_spaces().observation

    @property
    def action_space(self) -> Any:
        """The space of the actions of `step`: [-1, 1] for real-valued ones with `act_scale`; choices count from 0."""
        return self._read_spaces().action

    @property
    def reward_space(self) -> Any:
        """A Box [1]; unbounded unless the environment has a `reward_range`."""
        return self._read_spaces().reward

    @property
    def unwrapped(self) -> Any:
        """The environment without its wrappers, from the first reset until `close`; otherwise None."""
        return None if self._env is None else self._env.unwrapped

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Seed the episodes from the next reset on; each has its own seed, with either `dynamic_seed`."""
        self.seed_episodes(seed, 0)

    def seed_episodes(self, seed: int, env_index: int, first_episode: int = 0) -> None:
        """Seed episode k, counted from the next reset and `first_episode`, by `SeedSequence([seed, env_index, k])`.

        Raises:
            ValueError: a number is negative.
        """
        self._seeds.assign(seed, env_index, first_episode)
        self._is_sampling_seeded = False

    def reset(self, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode and return its first observation; `options` goes to the environment's `reset`."""
        if self._replay_path is not None and not self._is_recording:
            self._put_away()
        if self._env is None:
            self._open()
        seed = self._seeds.current()
        obs = self._begin(seed, options)
        self._is_begun = True
        if seed is not None and not self._is_sampling_seeded:
            # Once: samples of the action space are one stream over all episodes.
            self._env.action_space.seed(seed)
            if self.action_space is not self._env.action_space:
                self.action_space.seed(seed)
            self._is_sampling_seeded = True
        self._seeds.advance()
        self._episode_return = 0.0
        return self._as_observation(obs)

    def random_action(self) -> Any:
        """Return a sample of the action space, numbers as arrays (an integer as int64 [1])."""
        return as_arrays(self.action_space.sample())

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """Record a video of each episode from the next reset on, in the folder `replay_path` (default ./video).

        Raises:
            ImportError: the package that encodes videos is not installed.
        """
        require_video()
        self._replay_path = "./video" if replay_path is None else str(replay_path)
        self._is_recording = False

    def close(self) -> None:
        """Close the environment; a later reset makes a new one and continues the sequence of seeds."""
        env, self._env = self._env, None
        self._is_recording = False
        self._is_begun = False
        if env is not None:
            env.close()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_adapt_action", None)  # a closure, which pickle refuses
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._env is not None:
            self._attach(self._env)

    def _open(self) -> None:
        env = self._make(self._replay_path)
        self._is_begun = False
        try:
            self._spaces = self._spaces_of(env)
            self._attach(env)
        except Exception:
            self._discard(env)
            raise
        self._is_recording = self._replay_path is not None
        self._env = env

    def _attach(self, env: Any) -> None:
        """Cache the parts of `env` that each step needs."""
        self._adapt_action = action_adapter(env.action_space, self._act_scale, self._act_bins)

    def _read_spaces(self) -> _Spaces:
        if self._spaces is None:
            env = self._make(None)
            try:
                self._spaces = self._spaces_of(env)
            finally:
                self._discard(env)
        return self._spaces

    def _spaces_of(self, env: Any) -> _Spaces:
        action_space = policy_space(env.action_space, self._act_scale, self._act_bins)
        return _Spaces(float32_space(env.observation_space), action_space, reward_space_of(env))

    def _as_observation(self, obs: Any) -> Any:
        """Return `obs` in the form in which the env shows it.

        Raises:
            EnvOutputError: it does not fit the observation space.
        """
        return checked_observation(obs, self.observation_space, self)

    def _put_away(self) -> None:
        """Close the open environment, which another one replaces."""
        self.close()

    @abstractmethod
    def _make(self, video_folder: str | None) -> Any:
        """Return an environment; with `video_folder` it records each episode there."""

    @abstractmethod
    def _discard(self, env: Any) -> None:
        """Close the unused `env`, unless the caller owns it."""

    @abstractmethod
    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        """Reset the open environment, and return its observation."""


def require_video() -> None:
    """Raise ImportError if the package that encodes videos is missing, naming all missing packages.

    One of them may be pygame, which draws many envs such as CartPole.
    """
    try:
        import moviepy  # noqa: F401
    except ImportError as e:
        more = " pygame" if importlib.util.find_spec("pygame") is None else ""
        raise missing_package("recording videos", f"moviepy{more}", "video") from e


def video_prefix(env: Any) -> str:
    """Return the prefix of the file names of the videos of `env`."""
    # The process id keeps the files of forked workers apart, whose objects have the same id.
    return f"rl-video-{os.getpid()}-{id(env)}"


def record_video(env: Any, folder: str, prefix: str) -> Any:
    """Return the gymnasium env `env`, each episode of which is recorded in its own file.

    Raises:
        ValueError: it was not made for `rgb_array` rendering.
    """
    from gymnasium.wrappers import RecordVideo

    if env.render_mode != "rgb_array":
        raise ValueError(
            f"a video needs an env made with render_mode='rgb_array'; {shown(env, str)} has {env.render_mode!r}"
        )
    with warnings.catch_warnings():
        # The folder may be there, from another env; names begin with a prefix of their own, so nothing is overwritten.
        warnings.filterwarnings("ignore", message=".*Overwriting existing videos")
        return RecordVideo(env, folder, episode_trigger=lambda episode: True, name_prefix=prefix, disable_logger=True)
