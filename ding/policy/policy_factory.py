"""Policies derived from others: random ones, for filling a buffer before training, and ones with a command mode."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import new_class
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding.policy.base_policy import Policy
from ding.policy.command_mode_policy_instance import DummyCommandModePolicy, EpsCommandModePolicy
from ding.policy.modes import random_collect_function
from ding.utils.batch_methods import batch_method_name
from ding.utils.registry_factory import POLICY_REGISTRY

_COMMAND = "_command"


def derive_command_policy(name: str) -> type | None:
    """Derive the class of `<x>_command` if only the policy `<x>` is registered: that policy with a command mode.

    Epsilon follows `other.eps` if the policy's `_forward_collect` or `_act_collect` takes `eps` and its default config
    has that section; otherwise the modes get no settings. A policy that has a command mode is returned unchanged.
    The result is None for other names.

    Raises:
        KeyError: `<x>` is not registered.
    """
    if not name.endswith(_COMMAND):
        return None
    return _with_command_mode(POLICY_REGISTRY.get(name.removesuffix(_COMMAND)))


@lru_cache
def _with_command_mode(policy: type) -> type | None:
    if hasattr(policy, "_init_command"):
        return policy
    if not issubclass(policy, Policy):
        return None
    batch_name = batch_method_name(policy._forward_collect)
    act = policy._forward_collect if batch_name is None else getattr(policy, batch_name)
    takes_eps = "eps" in inspect.signature(act).parameters
    explores = takes_eps and "eps" in policy.default_config().get("other", {})
    mode = EpsCommandModePolicy if explores else DummyCommandModePolicy
    names = {"__module__": policy.__module__, "__doc__": f"`{policy.__name__}` with a command mode."}
    name = f"{policy.__name__.removesuffix('Policy')}CommandModePolicy"
    return new_class(name, (policy, mode), exec_body=lambda namespace: namespace.update(names))


POLICY_REGISTRY.derive = derive_command_policy


class PolicyFactory:
    """A factory of random replacements for a policy's collect mode."""

    @staticmethod
    def get_random_policy(
        policy: Any, action_space: Any = None, forward_fn: Callable[..., dict[int, Any]] | None = None
    ) -> Any:
        """Return a collect mode that samples `action_space` or acts with `forward_fn`; other functions are `policy`'s.

        The result has `forward, process_transition, get_train_sample, reset, get_attribute`; it is None if both
        arguments are given.

        Raises:
            AssertionError: neither `action_space` nor `forward_fn` is given.
        """
        if action_space is None and forward_fn is None:
            raise AssertionError("get_random_policy needs action_space (to sample from) or forward_fn (to act with)")
        if action_space is not None and forward_fn is not None:
            return None

        def forward(data: dict[int, Any], *args: Any, **kwargs: Any) -> dict[int, Any]:
            return {env_id: _random_output(action_space, obs) for env_id, obs in data.items()}

        def reset(*args: Any, **kwargs: Any) -> None:
            """Do nothing: random actions have no state."""

        return random_collect_function(
            forward if forward_fn is None else forward_fn,
            policy.process_transition,
            policy.get_train_sample,
            reset,
            policy.get_attribute,
        )


def get_random_policy(cfg: Any, policy: Any, env: Any) -> Any:
    """Return a random collect mode for `env`, or `policy` itself if transitions need the outputs of the policy."""
    if cfg.policy.get("transition_with_policy_data", False):
        return policy
    return PolicyFactory.get_random_policy(policy, action_space=env.action_space)


def _random_output(space: Any, obs: Any) -> dict[str, Any]:
    if isinstance(space, list):
        if isinstance(obs, Mapping) and "global_state" in obs:
            return _random_masked(torch.as_tensor(obs["action_mask"]))
        action = torch.as_tensor(np.stack([member.sample() for member in space]))
        shape = [len(space), int(space[0].n)] if hasattr(space[0], "n") else list(action.shape)
        return {"action": action, "logit": torch.ones(shape)}
    return {"action": _random_action(space)}


def _random_masked(mask: Tensor) -> dict[str, Any]:
    """Sample one legal action per agent, and return it and its logits."""
    logit = torch.ones(mask.shape).masked_fill(mask == 0, -1e8)
    probability = torch.softmax(logit, -1)
    action = torch.multinomial(probability.view(-1, mask.shape[-1]), 1).view(mask.shape[:-1])
    return {"action": action, "logit": logit}


def _random_action(space: Any) -> Tensor | list[Tensor]:
    """Sample in the shape of a policy's output; works with spaces of gym and gymnasium."""
    sample = space.sample()
    if isinstance(getattr(space, "spaces", None), Mapping):
        return torch.as_tensor(np.stack(list(sample.values())))
    if hasattr(space, "nvec"):
        return [torch.LongTensor([int(value)]) for value in sample]
    if hasattr(space, "n") and np.ndim(sample) == 0:
        return torch.LongTensor([int(sample)])
    action = torch.as_tensor(sample)
    return action.float() if action.is_floating_point() else action
