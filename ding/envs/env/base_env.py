"""The interface of environments, and how configs name one."""

from __future__ import annotations

import copy
import traceback
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from ding.utils.import_helper import import_module
from ding.utils.log_helper import shown
from ding.utils.references import resolved
from ding.utils.registry_factory import ENV_REGISTRY


class EnvOutputError(TypeError, ValueError):
    """An env returned something of another form than it has to; the message says in one line what is wanted."""

    @classmethod
    def of_step(cls, error: Exception, env: Any) -> EnvOutputError | None:
        """Return the error to raise if `error` is about the number of values that `env.step` returned, else None."""
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        is_ours = frame.f_globals.get("__name__", "").startswith(("ding.envs.", "gymnasium."))
        if not is_ours or "unpack" not in str(error):
            return None
        return cls(
            f"{shown(env)}: step() has to return (observation, reward, terminated, truncated, info), five values where "
            f"gym's old form has (observation, reward, done, info): {error}"
        )


class BaseEnvTimestep(NamedTuple):
    """Result of one step.

    `obs` is an array (or a dict or tuple of arrays), float32 where it is real-valued; `reward` an array [1] float32;
    `done` is True if the episode ended. `info` holds `eval_episode_return` when done and, from envs that distinguish a
    time limit from a true end, the bools `terminated` and `truncated` at every step.
    """

    obs: Any
    reward: Any
    done: bool
    info: dict[str, Any]


class BaseEnvInfo(NamedTuple):
    """Description of an environment written for early versions; the spaces are `EnvElementInfo`s."""

    agent_num: int
    obs_space: Any
    act_space: Any
    rew_space: Any
    use_wrappers: Any = None


class BaseEnv(ABC):
    """One environment: `reset()` returns an observation, `step(action)` a `BaseEnvTimestep`.

    Implementations create the real environment at the first `reset` and have the properties `observation_space`,
    `action_space` and `reward_space`. `close` may be followed by another `reset`.

    `config_keys` are the keys of the env section that a class reads; if it is defined, similar keys count as misspelt.

    A class may define `get_state()` and `set_state(state)`, both or none. The first returns, as dicts and lists of
    plain values, arrays and tensors, all that later steps and episodes depend on, including generators but not the
    seed; the second puts another instance, which has been reset, into that state. With them a resumed run continues
    in mid-episode; other envs begin another episode, except for those of this package, which replay theirs.

    Example:
        >>> import numpy as np
        >>> class Countdown(BaseEnv):
        ...     def __init__(self, cfg):
        ...         self._start = cfg["start"]
        ...     def reset(self):
        ...         self._left = self._start
        ...         return np.array([self._left], dtype=np.float32)
        ...     def step(self, action):
        ...         self._left -= 1
        ...         obs, reward = np.array([self._left], dtype=np.float32), np.ones(1, dtype=np.float32)
        ...         info = {"eval_episode_return": float(self._start)} if self._left == 0 else {}
        ...         return BaseEnvTimestep(obs, reward, self._left == 0, info)
        ...     def seed(self, seed, dynamic_seed=True):
        ...         self._seed = seed
        ...     def close(self):
        ...         self._left = 0
        ...     def __repr__(self):
        ...         return "Countdown"
        >>> env = Countdown({"start": 1})
        >>> env.reset().tolist(), env.step(0).done
        ([1.0], True)
    """

    config_keys: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def __init__(self, cfg: dict[str, Any]) -> None: ...

    @abstractmethod
    def reset(self) -> Any:
        """Begin an episode and return its first observation."""

    @abstractmethod
    def close(self) -> None:
        """Release the resources of the environment; a second call does nothing."""

    @abstractmethod
    def step(self, action: Any) -> BaseEnvTimestep:
        """Act once."""

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Seed the episodes from the next `reset` on; implementations may take a second argument `dynamic_seed`."""

    @abstractmethod
    def __repr__(self) -> str: ...

    @staticmethod
    def create_collector_env_cfg(cfg: dict[str, Any]) -> list[dict[str, Any]]:
        """Take `collector_env_num` out of `cfg` and return that many independent copies of the rest.

        Raises:
            KeyError: `cfg` has no `collector_env_num`.
        """
        return _copies(cfg, "collector_env_num")

    @staticmethod
    def create_evaluator_env_cfg(cfg: dict[str, Any]) -> list[dict[str, Any]]:
        """Take `evaluator_env_num` out of `cfg` and return that many independent copies of the rest.

        Raises:
            KeyError: `cfg` has no `evaluator_env_num`.
        """
        return _copies(cfg, "evaluator_env_num")

    def enable_save_replay(self, replay_path: str) -> None:
        """Record a video of each episode in the folder `replay_path`; call it before the first `reset`."""
        raise NotImplementedError(f"{type(self).__name__} cannot record videos: it does not define enable_save_replay")

    def random_action(self) -> Any:
        """Return a random action, as `step` takes it; None if the environment does not offer this."""
        return None


def _copies(cfg: dict[str, Any], count_key: str) -> list[dict[str, Any]]:
    count = cfg.pop(count_key)
    return [copy.deepcopy(cfg) for _ in range(count)]


def get_env_cls(cfg: dict[str, Any]) -> type:
    """Return the environment class registered as `cfg.type`, after importing `cfg.import_names`.

    Raises:
        KeyError: no environment is registered under that name.
    """
    import_module(cfg.get("import_names", []))
    env_cls: type = ENV_REGISTRY.get(cfg["type"])
    return env_cls


def get_vec_env_setting(
    cfg: dict[str, Any], collect: bool = True, eval_: bool = True
) -> tuple[type, list[dict[str, Any]] | None, list[dict[str, Any]] | None]:
    """Return `(env class, configs of the collector envs or None, configs of the evaluator envs or None)`.

    `cfg` is changed: `collector_env_num` and `evaluator_env_num` are taken out as they are used.

    Raises:
        KeyError: no environment is registered as `cfg.type`, or a requested count is missing.
    """
    env_cls: Any = get_env_cls(cfg)
    collector_cfg = env_cls.create_collector_env_cfg(cfg) if collect else None
    evaluator_cfg = env_cls.create_evaluator_env_cfg(cfg) if eval_ else None
    collector_cfg, evaluator_cfg = resolved([collector_cfg, evaluator_cfg], "env")
    return env_cls, collector_cfg, evaluator_cfg


def create_model_env(cfg: dict[str, Any]) -> Any:
    """Return an instance of the class registered as `cfg.type`, made with the other keys of `cfg` as keyword arguments.

    Raises:
        KeyError: `import_names` or `type` is missing, or nothing is registered under `type`.
    """
    kwargs = dict(cfg)
    import_module(kwargs.pop("import_names"))
    return ENV_REGISTRY.get(kwargs.pop("type"))(**kwargs)
