"""Random policies, for filling a buffer before training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ding.envs.common.gym_compat import duck_kind, entries_of, gymnasium_space, sample_legal
from ding.policy.modes import random_collect_function
from ding.utils.action_mask import action_mask_of
from ding.utils.default_helper import new_generator
from ding.utils.random_draws import draw_index


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

        rng = new_generator()
        space = _own_space(action_space, rng)

        def forward(data: dict[int, Any], *args: Any, **kwargs: Any) -> dict[int, Any]:
            return {env_id: _random_output(space, obs, rng) for env_id, obs in data.items()}

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


def _own_space(space: Any, rng: np.random.Generator) -> Any:
    """Return a copy of an action space, or of a list of them, that nobody else seeds: envs of a class may share one."""
    space_copy = copy.deepcopy([*map(gymnasium_space, space)] if isinstance(space, list) else gymnasium_space(space))
    for member in space_copy if isinstance(space_copy, list) else [space_copy]:
        if hasattr(member, "seed"):
            member.seed(int(rng.integers(2**31)))
    return space_copy


def _random_output(space: Any, obs: Any, rng: np.random.Generator) -> dict[str, Any]:
    if isinstance(space, list):
        mask, is_discrete = action_mask_of(obs), duck_kind(space[0]) == "Discrete"
        if mask is not None and is_discrete:
            logit = torch.ones(np.shape(mask)).masked_fill(torch.as_tensor(mask) == 0, -1e8)
            return {"action": draw_index(rng, torch.softmax(logit, -1)), "logit": logit}
        action = torch.as_tensor(np.stack([member.sample() for member in space]))
        shape = [len(space), int(space[0].n)] if is_discrete else list(action.shape)
        return {"action": action, "logit": torch.ones(shape)}
    return {"action": _random_action(space, obs)}


def _random_action(space: Any, obs: Any) -> Tensor | list[Tensor]:
    """Sample in the shape of a policy's output."""
    sample = sample_legal(space, obs)
    if entries_of(space) is not None:
        return torch.as_tensor(np.stack(list(sample.values())))
    match duck_kind(space):
        case "MultiDiscrete":
            return [torch.LongTensor([int(value)]) for value in np.ravel(sample)]
        case "Discrete":
            return torch.LongTensor([int(sample)])
    action = torch.as_tensor(sample)
    return action.float() if action.is_floating_point() else action
