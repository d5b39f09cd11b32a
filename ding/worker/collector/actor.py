"""Actors of a rollout: one policy acts in all envs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import nn

from ding.torch_utils.data_helper import to_ndarray
from ding.torch_utils.thread_count import model_of
from ding.utils.batch_methods import batch_method, is_idle
from ding.utils.config_helper import is_of_package
from ding.utils.data.collate_fn import split_output
from ding.utils.data.nested import all_finite, has_nan, is_finite, is_mapping, leaves
from ding.utils.data.samples import Column, Kind
from ding.utils.log_helper import in_one_line
from ding.utils.object_state import SavedAttributes
from ding.worker.collector.env_round import Batch, PolicyOutput, StackedOutput, by_env, not_finite_name


class Actor(Protocol):
    """The part of a rollout that chooses the actions."""

    @property
    def model(self) -> nn.Module | None:
        """The network that acts; None if it is not known."""

    def act(self, obs: Batch, kwargs: Mapping[str, Any]) -> tuple[PolicyOutput, Sequence[Any]]:
        """Return the output of the policy (see `by_env`), and the actions for the envs of `obs`, in order."""

    @property
    def is_stateless(self) -> bool:
        """Whether `reset` does nothing for some of the envs, so that it acts in each round alike."""

    @property
    def keeps_layers(self) -> bool:
        """Whether no layer of the network is replaced by `act`."""

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        """Handle the end of the episodes of these envs, or of all."""


class SoloActor:
    """One policy (a mode namedtuple, or any object with `forward` and `reset`) that acts in every env.

    Whether its forward has a form on batches is looked up here, once.

    Args:
        policy: the policy that acts.
        float_obs: pass float32 tensors to the policy instead of the observations themselves.
        keep_integers: with `float_obs`, convert no integers except bytes.

    Attributes:
        states: `{env_id: state}`, what a `StateActor` has to hand to the policy.
        ended: the envs whose end of an episode the policy has yet to be told of.
        is_stateless: whether the policy acts on batches, and nothing that it keeps ends with an episode.
        keeps_layers: whether the forward is one of this package, which replaces no layer of the network.
    """

    states: Mapping[int, Any] = {}
    ended: Collection[int] = ()

    def __init__(self, policy: Any, float_obs: bool = False, keep_integers: bool = False) -> None:
        self._policy = policy
        self._act_on_batch = None if policy is None else batch_method(policy.forward)
        self.is_stateless = self._act_on_batch is not None and is_idle(policy.reset)
        self.keeps_layers = is_of_package(self._act_on_batch)
        self._obs_form = float_obs, keep_integers

    @property
    def model(self) -> nn.Module | None:
        return model_of(self._policy)

    def act(self, obs: Batch, kwargs: Mapping[str, Any]) -> tuple[PolicyOutput, Sequence[Any]]:
        act, node, stacked = self._act_on_batch, obs.node, None
        if act is not None:
            is_plain = type(node) is Column and node.kind is Kind.ARRAY and not self._obs_form[0]
            stacked = node.data if is_plain else obs.stacked_input(*self._obs_form)
        output: PolicyOutput
        if act is None or stacked is None:
            own = Batch.copied(obs.env_ids, obs.rows)  # a forward may write into what it is given; others store `obs`
            output = self._policy.forward(own.seen(*self._obs_form), **kwargs)
        else:
            columns = act(stacked, obs.env_ids, **kwargs)
            if isinstance(columns, dict):
                output = StackedOutput(columns, obs.env_ids)
            else:  # such as a bare tensor, of a model of the user's own
                output = dict(zip(obs.env_ids, split_output(columns), strict=True))
        return output, env_actions(output, obs.env_ids)

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        if env_ids is None:
            self._policy.reset()
        else:
            self._policy.reset(env_ids)

    def state_dict(self) -> dict[str, Any]:
        """Return what the actor has to remember between two collections."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict`; return the reasons why it is not restored exactly."""
        return []


class StateActor(SavedAttributes, SoloActor):
    """One policy that is handed its own latent state and the envs' reset flags at each forward (Dreamer's contract).

    `forward` gets `state` = the states the policy returned last for these envs, in order (None when none of them has
    one), and `reset` = a bool array [E] that is true where an episode begins.

    Attributes:
        states: `{env_id: state}`, what the policy returned last.
        ended: the envs whose episode has ended since.
    """

    states: dict[int, Any]
    ended: set[int]
    _saved = ("ended",)
    _saved_if_plain: ClassVar = {"states": "the latent states of the policy are not made of plain values"}

    def __init__(self, policy: Any, float_obs: bool = False, keep_integers: bool = False) -> None:
        super().__init__(policy, float_obs, keep_integers)
        self.is_stateless = False
        self.states, self.ended = {}, set()

    def act(self, obs: Batch, kwargs: Mapping[str, Any]) -> tuple[PolicyOutput, Sequence[Any]]:
        states = [self.states.get(env_id) for env_id in obs.env_ids]
        resets = np.array([env_id in self.ended for env_id in obs.env_ids])
        self.ended.difference_update(obs.env_ids)
        state = None if all(s is None for s in states) else states
        output, actions = super().act(obs, {**kwargs, "reset": resets, "state": state})
        self.states.update((env_id, out["state"]) for env_id, out in by_env(output).items())
        return output, actions

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        self.ended.update(self.states if env_ids is None else env_ids)
        super().reset(env_ids)


def env_actions(output: PolicyOutput, env_ids: list[int]) -> Any:
    """Return the actions for these envs, in order: an array [E, *action_shape] (of single numbers [E, 1]), or a list.

    They share no memory with what the policy returned: an env may write into them.

    Raises:
        FloatingPointError: the policy returned NaN as an action or a logit, or an infinite action.
        KeyError: it returned no action for an env.
    """
    if type(output) is StackedOutput and output.env_ids == env_ids:
        for key in _FITS:
            value = output.columns.get(key)
            if type(value) is torch.Tensor:  # numpy is faster for a few numbers
                fits = True
                if value.is_floating_point():
                    array = value.float().numpy(force=True)
                    fits = not np.count_nonzero(np.isnan(array)) if key == "logit" else all_finite(array)
            else:
                fits = value is None or all(map(_FITS[key], leaves(value)))
            if not fits:
                _refuse_rows(by_env(output), key)
        batch = output.columns.get("action")
        if type(batch) is torch.Tensor and batch.ndim > 0:
            actions: np.ndarray = batch.numpy(force=True).copy()
            return actions[:, None] if actions.ndim == 1 else actions
        output = by_env(output)
    else:
        output = by_env(output)
        for key in _FITS:
            _refuse_rows(output, key)
    missing = [env_id for env_id in env_ids if env_id not in output]
    if missing:
        raise KeyError(f"policy.forward returned nothing for the envs {missing}, only for {list(output)}")
    return [_own_array(_action_of(output[env_id], env_id)) for env_id in env_ids]


# What a leaf of an entry has to be; the logits of illegal actions may be minus infinity.
_FITS: Mapping[str, Callable[[Any], bool]] = {"action": is_finite, "logit": lambda leaf: not has_nan(leaf)}


def _refuse_rows(output: Mapping[int, Any], key: str) -> None:
    for env_id, out in output.items():
        value = out.get(key) if is_mapping(out) else None
        wrong = next((leaf for leaf in leaves(value) if not _FITS[key](leaf)), None)
        if wrong is not None:
            raise FloatingPointError(
                f"the policy returned {not_finite_name(wrong)} for env {env_id}: {key} = {in_one_line(value)}; look "
                "for NaN and infinities in the policy's parameters (lower the learning rate, clip gradients) and in "
                "observations passed to `predict`, and for huge observations"
            )


def _action_of(out: Any, env_id: int) -> Any:
    try:
        return out["action"]
    except (KeyError, IndexError, TypeError) as e:
        raise KeyError(
            f"policy.forward returned {out!r} for env {env_id}; it must return {{env_id: {{'action': ...}}}}"
        ) from e


def _own_array(action: Any) -> Any:
    array = to_ndarray(action)
    return array.copy() if isinstance(array, np.ndarray) else copy.deepcopy(array)
