"""Who acts in a rollout: one policy for all envs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from ding.torch_utils.data_helper import to_ndarray
from ding.utils.data.env_batch import EnvBatch


class Actor(Protocol):
    """Chooses the actions of a round."""

    def act(self, obs: EnvBatch, kwargs: Mapping[str, Any]) -> tuple[Mapping[int, Any], dict[int, Any]]:
        """Return `({env_id: what the policy returned}, {env_id: the action for env.step})`."""

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        """The episodes of these envs, or of all, have ended."""


class SoloActor:
    """One policy (a mode namedtuple, or any object with `forward` and `reset`) acts in every env."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def act(self, obs: EnvBatch, kwargs: Mapping[str, Any]) -> tuple[Mapping[int, Any], dict[int, Any]]:
        output = self._policy.forward(obs, **kwargs)
        return output, env_actions(output)

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        if env_ids is None:
            self._policy.reset()
        else:
            self._policy.reset(env_ids)


class StateActor(SoloActor):
    """One policy that is handed its own latent state and the envs' reset flags at each forward (Dreamer's contract).

    `forward` gets `state` = the states the policy returned last for these envs, in order (None when none of them has
    one), and `reset` = a bool array [E] that is true where an episode begins.
    """

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)
        self._states: dict[int, Any] = {}
        self._ended: set[int] = set()

    def act(self, obs: EnvBatch, kwargs: Mapping[str, Any]) -> tuple[Mapping[int, Any], dict[int, Any]]:
        states = [self._states.get(env_id) for env_id in obs]
        resets = np.array([env_id in self._ended for env_id in obs])
        self._ended.difference_update(obs)
        state = None if all(s is None for s in states) else states
        output = self._policy.forward(obs, **kwargs, reset=resets, state=state)
        self._states.update((env_id, out["state"]) for env_id, out in output.items())
        return output, env_actions(output)

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        self._ended.update(self._states if env_ids is None else env_ids)
        super().reset(env_ids)


def env_actions(output: Mapping[int, Any]) -> dict[int, Any]:
    """`{env_id: action}` as arrays that share no memory with what the policy returned: an env may write into them."""
    stacked = getattr(output, "stacked", None)
    batch = stacked.get("action") if isinstance(stacked, dict) else None
    if isinstance(batch, torch.Tensor) and batch.ndim > 0:
        actions = batch.numpy(force=True).copy()
        return dict(zip(output.keys(), list(actions[:, None] if actions.ndim == 1 else actions), strict=True))
    return {env_id: _own_array(_action_of(out, env_id)) for env_id, out in output.items()}


def _action_of(out: Any, env_id: int) -> Any:
    try:
        return out["action"]
    except (KeyError, TypeError) as e:
        raise KeyError(
            f"policy.forward returned {out!r} for env {env_id}; it must return {{env_id: {{'action': ...}}}}"
        ) from e


def _own_array(action: Any) -> Any:
    array = to_ndarray(action)
    return array.copy() if isinstance(array, np.ndarray) else copy.deepcopy(array)
