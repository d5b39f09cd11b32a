"""The format of the V2 managers: stacked observations and actions, and timesteps as trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from ding.envs.env_manager.manager_view import ManagerView
from ding.utils.dict_helper import make_key_as_identifier, remove_illegal_item


class Tree(dict[str, Any]):
    """A dict of arrays, nested in further ones, whose keys are attributes as well.

    Example:
        >>> tree = Tree(obs=Tree(image=np.zeros(2)), done=np.array(True))
        >>> tree.obs.image.shape, tree["done"].item()
        ((2,), True)
    """

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError(f"this tree has no {key!r}, only {sorted(self)}") from None


class StackedFormat(ManagerView):
    """Put before a manager class, it stacks what comes from the envs and splits what goes to them.

    A tree is a `treetensor.numpy` array where DI-treetensor is installed, else a `Tree`.
    """

    _served: list[int] | None = None  # whose observations were read last, in order

    @property
    def ready_obs(self) -> Any:
        """The observations of the envs that wait for an action, stacked: [E, *obs_shape], or a tree of such arrays.

        Raises:
            IndexError: no env waits for an action.
        """
        obs = super().ready_obs
        self._served = list(obs)
        if not obs:
            raise IndexError(
                "no env waits for an action: the manager is closed, or its envs have played their episodes"
            )
        return _stack(list(obs.values()))

    def reset(self, reset_param: Mapping[int, dict[str, Any] | None] | None = None) -> None:
        """Begin a new episode in all envs, or in those of `reset_param`; see `BaseEnvManager.reset`."""
        self._served = None
        super().reset(reset_param)  # type: ignore[misc]

    def step(self, actions: Any) -> Any:
        """Act in the envs whose observations `ready_obs` showed last; return a list with a tree for each.

        Args:
            actions: one for each of these envs, in order: in a list, or stacked along the first axis of an array, a
                tensor or a dict of them. `{env_id: action}` is for the envs that it names.

        Returns:
            Trees of `obs`, `reward`, `done`, `info` and `env_id`, in the order of the actions. In `info`, keys are made
            identifiers, and strings left out.

        Raises:
            ValueError: there are more or fewer actions than envs.
        """
        served = self.ready_obs_id if self._served is None else self._served
        chosen = self._by_env(actions, served)
        timesteps = super().step(chosen)  # type: ignore[misc]
        self._served = None
        return [_as_tree(env_id, timestep) for env_id, timestep in timesteps.items()]

    def _by_env(self, actions: Any, env_ids: list[int]) -> dict[int, Any]:
        if isinstance(actions, Mapping) and all(isinstance(key, (int, np.integer)) for key in actions):
            return {int(env_id): action for env_id, action in actions.items()}
        rows = _rows(actions)
        if len(rows) != len(env_ids):
            raise ValueError(f"{len(rows)} actions were given for the {len(env_ids)} envs {env_ids}")
        return dict(zip(env_ids, rows, strict=True))


def _rows(actions: Any) -> list[Any]:
    if hasattr(actions, "json"):  # a tree of treetensor
        actions = actions.json()
    if isinstance(actions, Mapping):
        columns = {key: _rows(value) for key, value in actions.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if not isinstance(actions, Iterable):
        raise ValueError(f"actions = {actions!r} are not one for each env")
    return list(actions)


def _stack(items: list[Any]) -> Any:
    first = items[0]
    if isinstance(first, Mapping):
        return _tree({key: _stack([item[key] for item in items]) for key in first})
    return np.array(items)


def _as_tree(env_id: int, timestep: Any) -> Any:
    info = timestep.info
    return _tree(
        {
            "obs": timestep.obs,
            "reward": timestep.reward,
            "done": timestep.done,
            "info": _legible(info) if isinstance(info, Mapping) else info,
            "env_id": env_id,
        }
    )


def _legible(info: Mapping[Any, Any]) -> dict[str, Any]:
    """The info without strings, under keys that can be attributes."""
    return {
        _identifier(str(key)): _legible(value) if isinstance(value, (dict, Mapping)) else value
        for key, value in remove_illegal_item(info).items()
    }


@lru_cache(maxsize=1024)
def _identifier(key: str) -> str:
    return next(iter(make_key_as_identifier({key: None})))


def _tree(data: dict[str, Any]) -> Any:
    trees = _treetensor()
    return _nested(data, Tree) if trees is None else trees.array(_nested(data, dict))


def _nested(data: Mapping[str, Any], make: Callable[[dict[str, Any]], Any]) -> Any:
    """Every leaf an array; the check for an array comes first because most are one."""
    return make(
        {
            key: value
            if type(value) is np.ndarray
            else _nested(value, make)
            if isinstance(value, (dict, Mapping))
            else np.asarray(value)
            for key, value in data.items()
        }
    )


@lru_cache(maxsize=1)
def _treetensor() -> Any:
    try:
        import treetensor.numpy
    except ImportError:
        return None
    return treetensor.numpy
