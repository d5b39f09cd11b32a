"""Any gymnasium environment, behind the conventions of this package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.envs.env.gymnasium_source import GymnasiumSource, peel, require_video
from ding.envs.env.gymnasium_spaces import action_adapter, as_observation, float32_space, unit_space
from ding.utils.registry_factory import ENV_REGISTRY

_FLOAT32 = np.dtype(np.float32)


class _Spaces(NamedTuple):
    observation: Any
    action: Any
    reward: Any


@ENV_REGISTRY.register("gymnasium")
class GymnasiumEnv(BaseEnv):
    """A gymnasium environment: observations float32 (other dtypes than float64 are kept), reward [1] float32.

    The config names it by `env_id` (with `kwargs` for `gymnasium.make`) or gives `env`, an instance or a function
    without arguments. `wrappers` lists wrappers or (wrapper, kwargs), innermost first; `max_episode_steps` sets the
    step limit; with `act_scale` real-valued actions come in [-1, 1] and are mapped onto the bounds of the action space.

    The environment is made at the first `reset`. Where a space is asked for earlier, one is made, looked at and
    closed. `info` has the bools `terminated` and `truncated` at each step, and the float `eval_episode_return` at
    the last. An `env` instance belongs to the caller until the first `reset`; from then on `close` closes it.

    Example:
        >>> env = GymnasiumEnv({"env_id": "CartPole-v1"})
        >>> env.seed(0)
        >>> env.reset().shape
        (4,)
        >>> timestep = env.step(np.array([1]))
        >>> timestep.reward, timestep.done, timestep.info
        (array([1.], dtype=float32), False, {'terminated': False, 'truncated': False})
        >>> env.close()
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._cfg = cfg
        self._source = GymnasiumSource.from_config(cfg)
        self._act_scale = bool(cfg.get("act_scale", False))
        self._env: Any = None
        self._is_begun = False  # whether _env has been reset
        self._spaces: _Spaces | None = None
        self._replay_path: str | None = None
        self._is_recording = False
        self._seed: tuple[int, int] | None = None  # (seed, env index)
        self._known_seeds: list[int] = []  # of the episodes from number _first_known on
        self._first_known = 0
        self._is_sampling_seeded = False
        self._episode = 0
        self._episode_return = 0.0
        self._steps = 0

    @property
    def observation_space(self) -> Any:
        """The space of the observations as they are returned: float32 where the environment has float64."""
        return self._read_spaces().observation

    @property
    def action_space(self) -> Any:
        """The space of the actions `step` takes: [-1, 1] for real-valued ones with `act_scale`."""
        return self._read_spaces().action

    @property
    def reward_space(self) -> Any:
        """A Box [1]; unbounded unless the environment tells its `reward_range`."""
        return self._read_spaces().reward

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Seed the episodes from the next reset on; each has a seed of its own, whatever `dynamic_seed` says."""
        self.seed_episodes(seed, 0)

    def seed_episodes(self, seed: int, env_index: int, first_episode: int = 0) -> None:
        """Seed episode k, counted from the next reset and `first_episode`, by `SeedSequence([seed, env_index, k])`.

        Raises:
            ValueError: a number is negative.
        """
        if min(seed, env_index, first_episode) < 0:
            raise ValueError(f"seeds are numbers >= 0; got {seed}, env index {env_index}, episode {first_episode}")
        self._seed = int(seed), int(env_index)
        self._known_seeds = []
        self._is_sampling_seeded = False
        self._episode = int(first_episode)

    def reset(self, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode; `options` goes to gymnasium's `reset`."""
        if self._replay_path is not None and not self._is_recording:
            self.close()
        if self._env is None:
            self._open()
        seed = self._episode_seed()
        # The wrappers that check the order of calls see the first reset; that is all they ask for.
        env = self._inner if self._is_begun else self._env
        obs, _ = env.reset(seed=seed, options=options)
        self._is_begun = True
        if seed is not None and not self._is_sampling_seeded:
            # Once: samples of the action space are one stream over all episodes.
            self._env.action_space.seed(seed)
            if self._act_scale:
                self.action_space.seed(seed)
            self._is_sampling_seeded = True
        self._episode += 1
        self._episode_return = 0.0
        self._steps = 0
        return as_observation(obs)

    def step(self, action: Any) -> BaseEnvTimestep:
        """Act once; integers come as int or as an integer array with one element, the rest as arrays.

        Raises:
            TypeError: the action is of another kind than the action space.
            ValueError: the action is outside of the action space, or the reward is not one number.
            RuntimeError: there was no reset.
        """
        if self._env is None:
            raise RuntimeError(f"{self!r}: step() before reset()")
        obs, reward, terminated, truncated, info = self._inner_step(self._adapt_action(action))
        if type(reward) is not float:
            reward = _one_float(reward)
        self._episode_return += reward
        self._steps += 1
        terminated, truncated = bool(terminated), bool(truncated) or self._steps >= self._step_limit
        info = {**info, "terminated": terminated, "truncated": truncated}
        done = terminated or truncated
        if done:
            info["eval_episode_return"] = self._episode_return
        if type(obs) is not np.ndarray or obs.dtype is not _FLOAT32:
            obs = as_observation(obs)
        # A named tuple made without a Python call: this runs once for each step of each env.
        own_reward = np.empty(1, _FLOAT32)
        own_reward[0] = reward
        return tuple.__new__(BaseEnvTimestep, (obs, own_reward, done, info))

    def random_action(self) -> Any:
        """A sample of the action space, numbers as arrays (an integer as int64 [1])."""
        return _as_arrays(self.action_space.sample())

    def render(self, mode: str = "rgb_array") -> Any:
        """What the environment renders; the mode itself is chosen at its making (`kwargs.render_mode`).

        Raises:
            RuntimeError: the environment is not open, or not made for `mode`.
        """
        if self._env is None or self._env.render_mode != mode:
            made_for = None if self._env is None else self._env.render_mode
            raise RuntimeError(
                f"{self!r} renders {made_for!r}, not {mode!r}; set env.kwargs.render_mode = {mode!r} and reset it first"
            )
        return self._env.render()

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """Record a video of each episode from the next reset on, in the folder `replay_path` (default ./video).

        Raises:
            ImportError: the package that encodes videos is not installed.
        """
        require_video()
        self._replay_path = "./video" if replay_path is None else str(replay_path)
        self._is_recording = False

    def close(self) -> None:
        """Close the environment; a later reset makes it anew and goes on with the seeds."""
        env, self._env = self._env, None
        self._is_recording = False
        if env is not None:
            env.close()

    def __repr__(self) -> str:
        return f"GymnasiumEnv({self._source.name})"

    def _open(self) -> None:
        # The process id keeps the files of forked workers apart, whose objects have the same id.
        env = self._source.make(self._replay_path, f"rl-video-{os.getpid()}-{id(self)}")
        try:
            self._adapt_action = action_adapter(env.action_space, self._act_scale)
            self._spaces = self._spaces_of(env)
        except Exception:
            self._discard(env)
            raise
        self._is_recording = self._replay_path is not None
        self._inner, self._step_limit = peel(env)
        self._inner_step = self._inner.step
        self._is_begun = False
        self._env = env

    def _read_spaces(self) -> _Spaces:
        if self._spaces is None:
            env = self._source.make()
            try:
                self._spaces = self._spaces_of(env)
            finally:
                self._discard(env)
        return self._spaces

    def _discard(self, env: Any) -> None:
        if not self._source.is_instance:
            env.close()

    def _spaces_of(self, env: Any) -> _Spaces:
        action_space = unit_space(env.action_space) if self._act_scale else env.action_space
        return _Spaces(float32_space(env.observation_space), action_space, _reward_space(env))

    def _episode_seed(self) -> int | None:
        if self._seed is None:
            return None
        index = self._episode - self._first_known
        if not 0 <= index < len(self._known_seeds):
            self._first_known, index = self._episode, 0
            self._known_seeds = _episode_seeds(*self._seed, self._episode)
        return self._known_seeds[index]


def _episode_seeds(seed: int, env_index: int, first: int, count: int = 32) -> list[int]:
    """The seeds of `count` episodes; derived one by one, between steps, each would cost twice as much."""
    words = [[seed, env_index, episode] for episode in range(first, first + count)]
    # One uint32 for each number is what SeedSequence makes of a list, at twice the cost.
    entropies = np.array(words, np.uint32) if max(words[-1]) < 2**32 else words
    return [int(np.random.SeedSequence(entropy).generate_state(1)[0]) for entropy in entropies]


def _reward_space(env: Any) -> Any:
    from gymnasium.spaces import Box

    if env.has_wrapper_attr("reward_space"):
        return env.get_wrapper_attr("reward_space")
    low, high = env.get_wrapper_attr("reward_range") if env.has_wrapper_attr("reward_range") else (-np.inf, np.inf)
    return Box(np.float32(low), np.float32(high), (1,), np.float32)


def _one_float(reward: Any) -> float:
    array = np.asarray(reward)
    if array.size != 1 or array.dtype.kind not in "iubf":
        raise ValueError(f"the environment returned the reward {reward!r}; it must be one number")
    return float(array.item())


def _as_arrays(action: Any) -> Any:
    if isinstance(action, dict):
        return {key: _as_arrays(value) for key, value in action.items()}
    if isinstance(action, tuple):
        return tuple(_as_arrays(value) for value in action)
    return np.array([action]) if isinstance(action, (int, np.integer)) else action
