"""An env manager over vector envs of gymnasium: native ones, `SyncVectorEnv`, `AsyncVectorEnv`, or the user's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import torch

from ding.envs.common.gym_compat import members_of, space_kind
from ding.envs.env.base_env import EnvOutputError
from ding.envs.env.gymnasium_env import GymnasiumSource, resolve_id
from ding.envs.env.gymnasium_spaces import as_observation, checked_observation, one_float, to_float32
from ding.envs.env.lazy_env import begin_episode
from ding.envs.env_manager.base_env_manager import RESET, RUN
from ding.envs.env_manager.batch_env_manager import (
    BatchEnvManager,
    SimStep,
    refuse_foreign,
    with_rows,
)
from ding.envs.env_manager.block import BoolArray, InfoColumns, stacked
from ding.utils.child_helper import allow_children
from ding.utils.config_helper import ConfigError, Setting, Settings, anything, instance_of, one_of
from ding.utils.data.nested import is_mapping, leaves, map_leaves
from ding.utils.data.samples import Column, IntArray, Kind, Node
from ding.utils.log_helper import shown
from ding.utils.references import resolve_reference
from ding.utils.registry_factory import ENV_MANAGER_REGISTRY

# Keys of infos for the terminal observations and infos of envs that begin the next episode in the same step.
_FINAL_OBS, _FINAL_INFO = ("final_obs", "final_observation"), "final_info"


class Autoreset(Enum):
    """Modes of gymnasium for when a vector env begins the next episode of an env, by their values."""

    NEXT_STEP = "NextStep"
    SAME_STEP = "SameStep"
    DISABLED = "Disabled"


@ENV_MANAGER_REGISTRY.register("vector_env")
class VectorEnvManager(BatchEnvManager):
    """Env manager that steps the envs of a `gymnasium.vector.VectorEnv`.

    The vector env is made by `gymnasium.make_vec` from `env_id`, or from the `env_id` in the config of `env_fn`; or by
    `vector_env(num_envs=n)`, for simulators that make their own: their tensors are copied to numpy arrays, and actions
    are passed to them as tensors on the same device. The envs are not those of `env_fn`, so an env section with
    wrappers is refused unless the vector env is made of single envs.

    The vector env's `metadata["autoreset_mode"]` is respected: every step is returned once, a terminal timestep has the
    terminal observation, and steps that only reset an env are not returned. With `NEXT_STEP` an env whose episode has
    ended is ready again one step later.

    A vector env steps all of its envs. So a running env that is left out of a step is stepped nevertheless, and its
    episode is dropped: the env is ready again when its next episode begins. The same holds for a `reset` of some envs,
    unless the mode is `DISABLED`. While no env is ready, `ready_obs` begins episodes.

    Seeds are given to the vector env's `reset`: at `launch`, and at the next `reset()` after `seed`. `info` has what
    the vector env reports of the env, the bools `terminated` and `truncated`, and at the last step
    `eval_episode_return`.

    Args:
        cfg: missing values are filled from `default_config()`.
        env_fn: one function for each env, which sets the number of envs; without it, `cfg.env_num` does.

    Raises:
        ConfigError: a config value is not allowed, there is no env, its autoreset mode is unknown, or its observations
            are not arrays.

    Example:
        >>> manager = VectorEnvManager({"env_id": "CartPole-v1", "env_num": 2})
        >>> manager.seed(0)
        >>> manager.launch()
        >>> timesteps = manager.step({env_id: 0 for env_id in manager.ready_obs})
        >>> {env_id: timestep.done for env_id, timestep in timesteps.items()}
        {0: False, 1: False}
        >>> manager.close()
    """

    simulator_name = "a vector env"
    settings = Settings(
        {
            "vectorization_mode": Setting(
                None,
                one_of(None, "vector_entry_point", "sync", "async"),
                "The env's own vector env, one that steps single envs in turn, or one that steps each in a process; "
                "None for the first if the env has one, else the second.",
            ),
            "vector_env": Setting(
                None, anything, "Function of `num_envs` that makes the vector env instead, or its name `module:name`."
            ),
            "autoreset_mode": Setting(
                None,
                one_of(None, *(mode.value for mode in Autoreset)),
                "When the vector env resets an env; None for what its metadata says.",
            ),
            "kwargs": Setting({}, instance_of(dict), "Further arguments of the env, or of `vector_env`."),
            "vector_kwargs": Setting(
                {}, instance_of(dict), "Further arguments of `SyncVectorEnv` or `AsyncVectorEnv`."
            ),
        },
        BatchEnvManager.settings,
    )

    def prepare(self, cfg: Mapping[str, Any], env_cfg: Mapping[str, Any]) -> tuple[str, Any, Any]:
        self._vector_cfg, self._env_section = cfg, env_cfg
        self._device: torch.device | None = None  # of a vector env that speaks in tensors
        self.simulator = self.make_simulator()
        self._mode = self._read_mode()
        self.idles = self._mode is Autoreset.NEXT_STEP
        space = self.simulator.single_observation_space
        if not _is_of_arrays(space):
            raise ConfigError(f"a vector env with the observation space {space} is not supported; use 'subprocess'")
        return str(self.simulator), space, self.simulator.single_action_space

    def step_all(self, actions: np.ndarray) -> SimStep:
        obs, rewards, terminated, truncated, infos = self.simulator.step(
            actions if self._device is None else torch.as_tensor(actions, device=self._device)
        )
        # It may write into its arrays later, so all is copied.
        rewards = np.array(rewards if type(rewards) is np.ndarray else _array(rewards))
        if rewards.ndim > 1:
            rewards = rewards.reshape(self._env_num)
        terminated, truncated = _flags(terminated), _flags(truncated)
        returned, shown = _copied(obs), None
        if self._mode is Autoreset.SAME_STEP:
            ended = terminated | truncated
            if np.count_nonzero(ended):
                shown = returned
                returned, infos = _final(returned, infos, ended)
        columns, rows_of = _info_columns(infos, self._env_num) if infos else ({}, {})
        return SimStep(returned, rewards, terminated, truncated, columns, rows_of, shown)

    def begin_episodes(self, ids: IntArray) -> Node:
        if len(ids) < self._env_num and self._mode is Autoreset.DISABLED:
            mask = np.zeros(self._env_num, np.bool_)
            mask[ids] = True
            obs, _ = self.simulator.reset(options={"reset_mask": mask})
        else:
            obs, _ = self.simulator.reset(seed=self.new_seeds)
            self._device = next((leaf.device for leaf in leaves(obs) if isinstance(leaf, torch.Tensor)), None)
        return _copied(obs, None if len(ids) == self._env_num else ids)

    def _declared_stack(self) -> int:
        return int(self.simulator.metadata.get("frame_stack", 1))

    def wait_another(self) -> bool:
        """Drop the running episodes and wait until another env is ready; return False at once if none will be."""
        waiting = self._states == RESET
        is_due = self._begins is not None and bool((self._begins & waiting).any())
        if self._mode is not Autoreset.DISABLED and waiting.any() and not is_due:
            self._drop(self._states == RUN)  # as all envs are reset together
        return super().wait_another()

    def _reset_envs(self, env_ids: list[int]) -> None:
        if len(env_ids) == self._env_num or self._mode is Autoreset.DISABLED:
            super()._reset_envs(env_ids)
            return
        mask = np.zeros(self._env_num, np.bool_)
        mask[env_ids] = True
        self._drop(mask)
        if not (self._states == RUN).any():
            self.wait_another()

    # Making the vector env.

    def make_simulator(self) -> Any:
        import gymnasium

        cfg, count = self._vector_cfg, self._env_num
        if cfg["vector_env"] is None:
            return _vector_of_section(cfg, self._env_section, count)
        refuse_foreign(self._env_section, "vector_env", "")
        make = cfg["vector_env"]
        make = resolve_reference(make, "env.manager.vector_env") if isinstance(make, str) else make
        vector = make(num_envs=count, **cfg["kwargs"])
        if not isinstance(vector, gymnasium.vector.VectorEnv) or vector.num_envs != count:
            raise ConfigError(
                f"env.manager.vector_env gave {shown(vector)}, which is not a gymnasium.vector.VectorEnv of {count} "
                "envs"
            )
        return vector

    def _read_mode(self) -> Autoreset:
        stated = self._vector_cfg["autoreset_mode"] or self.simulator.metadata.get("autoreset_mode")
        try:
            return Autoreset(getattr(stated, "value", stated))
        except ValueError:
            raise ConfigError(
                f"{shown(self.simulator)} does not say when it resets an env: metadata['autoreset_mode'] is "
                f"{stated!r}; set env.manager.autoreset_mode to one of {[mode.value for mode in Autoreset]}"
            ) from None


def _vector_of_section(cfg: Mapping[str, Any], env_cfg: Mapping[str, Any], count: int) -> Any:
    """Return the vector env of the `env_id` in the config, or otherwise in the env section."""
    import gymnasium

    refuse_foreign(env_cfg, "vector_env", "; use 'subprocess' to have actions binned", ("act_bins", "env_wrapper"))
    own_id = {} if cfg["env_id"] is None else {"env_id": cfg["env_id"]}
    source = GymnasiumSource.from_config(
        {**env_cfg, **own_id, "kwargs": {**env_cfg.get("kwargs", {}), **cfg["kwargs"]}}
    )
    env_id, limit = (None, None) if source.env_id is None or source.wrappers else resolve_id(source.env_id)
    mode = cfg["vectorization_mode"]
    if mode is None:
        has_own = env_id is not None and gymnasium.spec(env_id).vector_entry_point is not None
        mode = "vector_entry_point" if has_own else "sync"
    if mode == "vector_entry_point":
        if cfg["vector_kwargs"]:
            raise ConfigError("env.manager.vector_kwargs have no meaning for an env's own vector env; use kwargs")
        if env_id is None:
            raise ConfigError(
                "an env's own vector env takes an env_id, and no wrappers of single envs; set env.manager."
                "vectorization_mode to 'sync' or 'async'"
            )
        limit = source.max_episode_steps or limit
        limits = {} if limit is None else {"max_episode_steps": limit}
        return gymnasium.make_vec(env_id, count, mode, **{**limits, **source.kwargs})
    if source.is_instance:
        raise ConfigError(f"env.env = {shown(source.env)} is one env; give a function that makes it")
    return _vector_of_singles(source, count, mode == "async", cfg["vector_kwargs"])


def _vector_of_singles(source: GymnasiumSource, count: int, in_processes: bool, kwargs: Mapping[str, Any]) -> Any:
    from gymnasium import __version__, vector

    if not hasattr(vector, "AutoresetMode"):
        raise ImportError(
            f"vector envs of single envs need gymnasium>=1.1, this is {__version__}: pip install -U 'gymnasium>=1.1'"
        )
    kwargs = {"autoreset_mode": vector.AutoresetMode(Autoreset.DISABLED.value), **kwargs}
    members = [partial(_make_member, source, os.getpid())] * count
    return (vector.AsyncVectorEnv if in_processes else vector.SyncVectorEnv)(members, **kwargs)


def _make_member(source: GymnasiumSource, parent_pid: int) -> Any:
    if os.getpid() != parent_pid:
        allow_children()
    return _checked(source.make(), source.name)


def _checked(env: Any, name: str) -> Any:
    """Wrap a single env so that it says what is wrong with what it returns, and returns rewards as numbers."""
    import gymnasium

    class Checked(gymnasium.Wrapper[Any, Any, Any, Any]):
        def __repr__(self) -> str:
            return name

        def reset(self, **how: Any) -> tuple[Any, Any]:
            obs, info = begin_episode(env, self, **how)
            return checked_observation(obs, space, self), info

        def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
            try:
                obs, reward, terminated, truncated, info = env.step(action)
            except (TypeError, ValueError) as e:
                wrong = EnvOutputError.of_step(e, self)
                if wrong is None:
                    raise
                raise wrong from e
            if type(obs) is not np.ndarray or obs.dtype != space.dtype or obs.shape != space.shape:
                obs = checked_observation(obs, space, self)
            return obs, reward if type(reward) is float else one_float(reward), terminated, truncated, info

    space = env.observation_space
    return Checked(env)


def _is_of_arrays(space: Any) -> bool:
    kind = space_kind(space)
    return all(map(_is_of_arrays, members_of(space).values())) if kind in ("Dict", "Tuple") else kind != ""


def _array(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _flags(value: Any) -> BoolArray:
    return np.array(value if type(value) is np.ndarray else _array(value), np.bool_)


def _copied(obs: Any, rows: IntArray | None = None) -> Node:
    """Return copies of these rows, or of all, of the arrays or tensors of a vector env, as columns."""
    if type(obs) is not np.ndarray:
        return map_leaves(lambda leaf: _copied(_array(leaf), rows), obs)
    data = obs if rows is None else obs.take(rows, axis=0)
    if data.dtype == np.float64:
        data = to_float32(data)
    elif rows is None:
        data = data.copy()
    return Column(Kind.ARRAY, data)


def _final(obs: Node, infos: Mapping[str, Any], ended: BoolArray) -> tuple[Node, dict[str, Any]]:
    """Return the observations and infos of a step, the terminal ones where episodes have ended."""
    final = next((infos[key] for key in _FINAL_OBS if key in infos), None)
    if final is None:
        raise ValueError(
            f"the episodes of the envs {np.flatnonzero(ended).tolist()} have ended, but the infos of the vector env "
            f"have no terminal observations {_FINAL_OBS[0]!r}; wrap it so that they do, or use another autoreset mode"
        )
    if isinstance(final, np.ndarray) and final.dtype == object:
        rows = stacked([as_observation(row) for row in final[ended]])
    else:
        rows = _copied(final, np.flatnonzero(ended))
    skipped = {name for key in (*_FINAL_OBS, _FINAL_INFO) for name in (key, f"_{key}")}
    rest = {key: value for key, value in infos.items() if key not in skipped}
    final_infos: Any = infos.get(_FINAL_INFO)
    if is_mapping(final_infos):
        rest = _merged_infos(rest, final_infos, ended)
    return with_rows(obs, ended, rows), rest


def _merged_infos(infos: Mapping[str, Any], final: Mapping[str, Any], ended: BoolArray) -> dict[str, Any]:
    """Return the infos, with those of the terminal steps for the envs whose episodes have ended."""
    merged = dict(infos)
    for key, value in final.items():
        if _is_mask(key, final):
            continue
        has_entry = ended & _mask_of(key, final, len(ended))
        if is_mapping(value):
            value = _merged_infos(infos.get(key, {}), value, ended)
        elif key in infos:
            value = _array(infos[key]).copy()
            value[ended] = _array(final[key])[ended]
        merged[key] = value
        merged[f"_{key}"] = np.where(ended, has_entry, _mask_of(key, infos, len(ended)))
    return merged


def _is_mask(key: Any, infos: Mapping[str, Any]) -> bool:
    return isinstance(key, str) and key.startswith("_") and key[1:] in infos


def _mask_of(key: str, infos: Mapping[str, Any], count: int) -> BoolArray:
    """Return a mask [count] of the envs that have an entry."""
    mask = infos.get(f"_{key}", np.full(count, key in infos))
    return _array(mask).astype(np.bool_)


def _info_columns(infos: Mapping[str, Any], env_num: int) -> tuple[dict[str, Any], dict[str, BoolArray]]:
    """Copy the infos of all envs for `InfoColumns`: `_key` says which envs have an entry `key`."""
    columns: dict[str, Any] = {}
    rows_of: dict[str, BoolArray] = {}
    for key, value in infos.items():
        if _is_mask(key, infos):
            rows_of[key[1:]] = _mask_of(key[1:], infos, env_num)
        elif is_mapping(value):
            nested, nested_rows = _info_columns(value, env_num)
            columns[key] = InfoColumns(nested, env_num, nested_rows)
        elif isinstance(value, np.ndarray | torch.Tensor) and value.shape[:1] == (env_num,):
            columns[key] = np.array(_array(value))
        else:
            columns[key] = [value] * env_num
    return columns, rows_of
