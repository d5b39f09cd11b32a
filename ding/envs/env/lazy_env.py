"""Base of the envs that make the underlying environment at their first reset, and their videos."""

from __future__ import annotations

import copy
import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from ding.envs.common.gym_compat import layers, space_kind
from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep, EnvOutputError
from ding.envs.env.gymnasium_spaces import (
    ActionAdapter,
    action_adapter,
    as_arrays,
    checked_observation,
    float32_space,
    one_float,
    policy_space,
    reward_space_of,
)
from ding.envs.env_wrappers.normalize_wrappers import RunningNormWrapper
from ding.utils import msgpack_helper
from ding.utils.data.nested import FLOAT32_MAX, own_copy
from ding.utils.import_helper import optional_module
from ding.utils.log_helper import in_one_line, shown
from ding.utils.object_state import SavedAttributes

_FLOAT32, _INT64 = np.dtype(np.float32), np.dtype(np.int64)
_NUMBERS = frozenset((int, np.int64))  # types of actions that need no copy


def episode_seed(seed: int, env_index: int, episode: int) -> int:
    """Return the seed of an episode of an env: the first word of `SeedSequence([seed, env_index, episode])`.

    Raises:
        ValueError: a number is negative.
    """
    entropy: Any = seed, env_index, episode
    if min(entropy) >= 0 and max(entropy) < 1 << 32:  # as words, which take a third of the time of numbers
        entropy = np.array(entropy, np.uint32)
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


class LazyEnv(BaseEnv):
    """Base of envs over a gymnasium env that is made at the first `reset`: steps, spaces, seeds, videos and states.

    If a space is read earlier, an environment is made and closed for that. A state consists of the seed of the running
    episode and the actions since its reset, which are replayed, and of what env wrappers name in `_saved`.

    Args:
        act_scale: real-valued actions come in [-1, 1] and are mapped onto the bounds of the action space.
        act_bins: instead, real-valued actions come as choices among so many values of each dimension.
    """

    _is_strict = True  # whether observations must have the shapes of their space
    _is_instance = False  # whether each `_make` returns an env that the caller owns
    _takes_seeds = True
    _least_reward = -math.inf  # lower rewards are shown as this one

    def __init__(self, act_scale: bool, act_bins: int | None = None) -> None:
        self._act_scale = act_scale
        self._act_bins = act_bins
        self._env: Any = None
        self._adapt_action: Any = None
        self._spaces: tuple[Any, Any, Any] | None = None  # of observations, actions and rewards
        self._frame_stack = 1
        self._replay_path: str | None = None
        self._root: tuple[int, int] | None = None  # and the index of the env
        self._episode = 0
        self._is_sampling_seeded = False
        self._episode_return: Any = 0.0
        self._obs: Any = None  # that the last reset or step has returned
        # Seed, options, and actions as the inner environment gets them, of each reset since the episode or, where a
        # wrapper makes episodes of lives, the game began.
        self._resets: list[tuple[int | None, Any, list[Any]]] = []
        self._actions: list[Any] | None = None  # of the running episode

    @property
    def observation_space(self) -> Any:
        """The space of the returned observations: float32 if the environment's is float64."""
        return self._read_spaces()[0]

    @property
    def frame_stack(self) -> int:
        """Number C of frames that an observation [C, ...] is a stack of, newest last; 1 without a wrapper for that."""
        self._read_spaces()
        return self._frame_stack

    @property
    def action_space(self) -> Any:
        """The space of the actions of `step`: [-1, 1] for real-valued ones with `act_scale`; choices count from 0."""
        return self._read_spaces()[1]

    @property
    def reward_space(self) -> Any:
        """A Box [1]; unbounded unless the environment has a `reward_range`."""
        return self._read_spaces()[2]

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
        episode_seed(seed, env_index, first_episode)  # raises
        self._root, self._episode = (int(seed), int(env_index)), int(first_episode)
        self._is_sampling_seeded = False

    def reset(self, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode and return its first observation; `options` goes to the environment's `reset`.

        Raises:
            EnvOutputError: what the environment returns is not of the form that gymnasium requires.
        """
        if self._env is None:
            self._open()
        seed = None
        if self._root is not None:
            root_seed, env_index = self._root
            seed = episode_seed(root_seed, env_index, self._episode)
        self._episode += 1
        return self._begin(seed, options)

    def step(self, action: Any) -> BaseEnvTimestep:
        """Act once; integers come as any kind of integer or as an array with one element, the rest as arrays.

        Raises:
            TypeError: the action is of another kind than the action space.
            ValueError: the action is outside of the action space.
            EnvOutputError: what the environment returns is not of the form that gymnasium requires.
            RuntimeError: there was no reset.
        """
        if self._actions is None:
            raise RuntimeError(f"{self!r}: step() before reset()")
        is_choice = type(action) is np.ndarray and action.shape == (1,) and action.dtype is _INT64
        if is_choice and 0 <= action[0] < self._choices:  # what policies return, without a call
            action = action[0]
        else:
            action = self._adapt_action(action)
        self._actions.append(action if type(action) in _NUMBERS else own_copy(action))
        try:
            obs, reward, terminated, truncated, info = self._env.step(action)
        except (TypeError, ValueError) as e:
            wrong = EnvOutputError.of_step(e, self)
            if wrong is None:
                raise
            raise wrong from e
        if type(reward) is not float:
            reward = one_float(reward)
        self._episode_return += reward
        terminated, truncated = bool(terminated), bool(truncated)
        try:
            info = {**info, "terminated": terminated, "truncated": truncated}
        except TypeError:
            raise EnvOutputError(
                f"{self!r}: the info of step() is {shown(info)}; return a dict, which may be empty"
            ) from None
        done = terminated or truncated
        if done:
            self._add_return(info)
        if type(obs) is not np.ndarray or obs.dtype is not self._obs_dtype or obs.shape != self._obs_shape:
            obs = checked_observation(obs, self.observation_space, self, is_strict=self._is_strict)
        self._obs = obs
        if reward < self._least_reward:
            reward = self._least_reward
        # A named tuple made without a Python call: this runs once for each step of each env.
        own_reward = np.empty(1, _FLOAT32)
        own_reward[0] = reward if abs(reward) <= FLOAT32_MAX else reward * math.inf  # numpy would warn of an overflow
        return tuple.__new__(BaseEnvTimestep, (obs, own_reward, done, info))

    def render(self, mode: str = "rgb_array") -> Any:
        """Return the rendered image; the mode is chosen when the environment is made (`render_mode`).

        Raises:
            RuntimeError: the environment is not open, or not made for `mode`.
        """
        made_with = None if self._env is None else self._env.render_mode
        if made_with != mode:
            raise RuntimeError(
                f"{self!r} renders {made_with!r}, not {mode!r}; make it with render_mode={mode!r}, and reset it first"
            )
        return self._env.render()

    def get_state(self) -> dict[str, Any]:
        """Return what `set_state` needs to replay the episode.

        Raises:
            TypeError: a subclass overrides `reset` or `step`, but not `get_state`.
        """
        cls = type(self)
        is_ours = all(method.__module__.startswith("ding.envs.") for method in (cls.reset, cls.step))
        if cls.get_state is LazyEnv.get_state and not is_ours:
            raise TypeError(f"{cls.__name__} overrides reset or step; let it define get_state and set_state, too")
        return {
            "resets": [(seed, options, msgpack_helper.pack(actions)) for seed, options, actions in self._resets],
            "root": (self._root, self._episode),
            "wrappers": [wrapper.state_dict() for wrapper in self._wrappers_with_state()],
            "return": copy.copy(self._episode_return),
            "obs": msgpack_helper.pack(self._obs),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Replay the episode of a state of `get_state` of another instance; this one has been reset.

        Raises:
            RuntimeError: the replay ends at another observation or return.
        """
        if self._game is not None:
            self._game.was_real_done = True  # so that the first reset begins a game
        for seed, options, actions in state["resets"]:
            obs = self._begin(seed, options)
            for action in msgpack_helper.unpack(actions):
                self._resets[-1][-1].append(own_copy(action))
                obs, reward = self._env.step(action)[:2]
                self._episode_return = self._episode_return + self._summed(reward)
        seed, self._episode = state["root"]
        self._root = None if seed is None else tuple(seed)
        self._obs = obs = checked_observation(obs, self.observation_space, self, is_strict=self._is_strict)
        wrappers, replayed = self._wrappers_with_state(), msgpack_helper.pack(self._episode_return)
        for wrapper, own in zip(wrappers, state["wrappers"], strict=True):
            wrapper.load_state_dict(own)
        self._episode_return = state["return"]
        # What wrappers keep beyond an episode may have changed since its reset: the replay then has other rewards,
        # and with shared statistics other observations.
        is_normalized = any(isinstance(wrapper, RunningNormWrapper) for wrapper in wrappers)
        is_other = not is_normalized and msgpack_helper.pack(obs) != state["obs"]
        if is_other or (not wrappers and replayed != msgpack_helper.pack(state["return"])):
            raise RuntimeError(
                "the replayed episode ends at another observation or return: the env is not deterministic, or holds "
                "state that its seed and actions do not decide"
            )

    def random_action(self) -> Any:
        """Return a sample of the action space, numbers as arrays (an integer as int64 [1])."""
        return as_arrays(self.action_space.sample())

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """Record a video of each episode from the next reset on, in the folder `replay_path` (default ./video).

        Raises:
            ImportError: the package that encodes videos is not installed.
        """
        optional_module("moviepy", "recording videos", "moviepy pygame", "video")  # pygame draws envs such as CartPole
        self._replay_path = "./video" if replay_path is None else str(replay_path)
        if self._env is not None:
            self._discard(self._env)  # for one that records
        self._env = self._actions = None

    def close(self) -> None:
        """Close the environment; a later reset makes a new one and continues the sequence of seeds."""
        env, self._env, self._actions = self._env, None, None
        if env is not None:
            env.close()

    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        """Begin the episode of this seed in the open environment, and return its first observation."""
        if self._game is None or self._game.was_real_done:
            self._resets = []
        obs, _ = begin_episode(self._env, self, seed=seed if self._takes_seeds else None, options=options)
        self._actions = []
        self._resets.append((seed, options, self._actions))
        if seed is not None and not self._is_sampling_seeded:
            # Once: samples of the action space are one stream over all episodes.
            self._env.action_space.seed(seed)
            if self.action_space is not self._env.action_space:
                self.action_space.seed(seed)
            self._is_sampling_seeded = True
        self._episode_return = 0.0
        if type(obs) is not np.ndarray or obs.dtype is not self._obs_dtype or obs.shape != self._obs_shape:
            obs = checked_observation(obs, self.observation_space, self, is_strict=self._is_strict)
        self._obs = obs
        return obs

    def _wrappers_with_state(self) -> list[SavedAttributes]:
        return [layer for layer in layers(self._env) if isinstance(layer, SavedAttributes)]

    def _open(self) -> None:
        env = self._make(self._replay_path)
        self._spaces = self._spaces_of(env)
        self._adapt_action = self._adapter_of(env)
        # The number of choices that need no conversion, which are int64 from 0.
        choices = env.action_space
        is_plain = space_kind(choices) == "Discrete" and choices.start == 0 and choices.dtype == _INT64
        self._choices = int(choices.n) if is_plain else 0
        # The wrapper that makes several episodes of a game: the innermost, since wrappers forward attributes.
        games = [layer for layer in layers(env) if hasattr(layer, "was_real_done")]
        self._game: Any = games[-1] if games else None
        # Of observations that need no conversion: none but those of a Box.
        space = self._spaces[0]
        is_box = space_kind(space) == "Box"
        self._obs_dtype: Any = space.dtype if is_box else None
        self._obs_shape: Any = space.shape if is_box else None
        self._env = env

    def _read_spaces(self) -> tuple[Any, Any, Any]:
        if self._spaces is None:
            env = self._make(None)
            try:
                self._spaces = self._spaces_of(env)
            finally:
                self._discard(env)
        return self._spaces

    def _spaces_of(self, env: Any) -> tuple[Any, Any, Any]:
        self._frame_stack = _frame_stack_of(env)
        action_space = policy_space(env.action_space, self._act_scale, self._act_bins)
        return float32_space(env.observation_space), action_space, reward_space_of(env)

    def _adapter_of(self, env: Any) -> ActionAdapter:
        """Return a function that turns actions of policies into those of `env`."""
        return action_adapter(env.action_space, self._act_scale, self._act_bins)

    def _discard(self, env: Any) -> None:
        """Close an unused environment, unless the caller owns it."""
        if not self._is_instance:
            env.close()

    def _summed(self, reward: Any) -> Any:
        """Return what a reward adds to the return."""
        return one_float(reward)

    @abstractmethod
    def _make(self, video_folder: str | None) -> Any:
        """Return a gymnasium env; with `video_folder` it records each episode there."""

    @abstractmethod
    def _add_return(self, info: dict[str, Any]) -> None:
        """Put the return into the info of the last step of an episode."""


# Wrappers that stack frames, with the attribute of their number, and wrappers that leave observations as they are.
_STACKS = {"FrameStackObservation": "stack_size", "FrameStackWrapper": "n_frames", "FrameStack": "num_stack"}
_WITHOUT_CHANGES = {
    *("ClipReward", "ClipRewardWrapper", "NormalizeReward", "TransformReward", "TimeLimit", "TimeLimitWrapper"),
    *("EvalEpisodeReturnWrapper", "GymAdapter", "RecordEpisodeStatistics", "RecordVideo"),
    *("OrderEnforcing", "PassiveEnvChecker"),
}


def _frame_stack_of(env: Any) -> int:
    """Return the number of frames that observations of `env` are stacks of, 1 if that is unknown."""
    for layer in layers(env):
        name = type(layer).__name__
        if name in _STACKS:
            return int(getattr(layer, _STACKS[name]))
        if name not in _WITHOUT_CHANGES:
            break
    return 1


def begin_episode(env: Any, named: Any, **how: Any) -> tuple[Any, Any]:
    """Reset a gymnasium env, which errors call `named`, and return the observation and info.

    Raises:
        EnvOutputError: the env returns something else.
    """
    begun = env.reset(**how)
    if not (isinstance(begun, tuple | list) and len(begun) == 2 and isinstance(begun[1], Mapping)):
        raise EnvOutputError(
            f"{named!r}: reset() returned {in_one_line(begun)}, of type {type(begun).__name__}; "
            "return (observation, info)"
        )
    return begun[0], begun[1]


def record_video(env: Any, folder: str, owner: Any) -> Any:
    """Return the gymnasium env `env`, each episode of which is recorded in its own file, named after `owner`.

    Raises:
        ValueError: it was not made with a render mode of images, such as `rgb_array`.
    """
    from gymnasium.wrappers import RecordVideo

    # The process id keeps the files of forked workers apart, whose objects have the same id.
    prefix = f"rl-video-{os.getpid()}-{id(owner)}"
    with warnings.catch_warnings():
        # The folder may be there, from another env; names begin with a prefix of their own, so nothing is overwritten.
        warnings.filterwarnings("ignore", message=".*Overwriting existing videos")
        return RecordVideo(env, folder, episode_trigger=lambda episode: True, name_prefix=prefix, disable_logger=True)
