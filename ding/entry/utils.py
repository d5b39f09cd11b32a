"""Helpers of the entries: collecting with a random policy, and marks on transitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ding.policy.policy_factory import PolicyFactory
from ding.utils.config_helper import ConfigError


def random_collect(
    policy_cfg: Any,
    policy: Any,
    collector: Any,
    collector_env: Any,
    commander: Any,
    replay_buffer: Any,
    postprocess_data_fn: Callable[[list[Any]], list[Any]] | None = None,
) -> None:
    """Fill `replay_buffer` with `policy_cfg.random_collect_size` samples (or episodes) before training.

    A random policy acts, or the policy itself with `policy_cfg.transition_with_policy_data`. The steps count in
    `collector.envstep`; the collector has `policy.collect_mode` again afterwards.

    Args:
        policy_cfg: the compiled policy section.
        postprocess_data_fn: what is pushed is its result.

    Raises:
        ConfigError: `random_collect_size` is not positive.
    """
    size = policy_cfg.get("random_collect_size", 0)
    if not size > 0:
        raise ConfigError(
            f"policy.random_collect_size = {size!r} is not allowed; random_collect needs a number above 0"
        )
    if policy_cfg.get("transition_with_policy_data", False):
        collector.reset_policy(policy.collect_mode)
    else:
        action_space = collector_env.action_space
        collector.reset_policy(PolicyFactory.get_random_policy(policy.collect_mode, action_space=action_space))
    collect_kwargs = commander.step()
    if policy_cfg.collect.collector.type == "episode":
        data = collector.collect(n_episode=size, policy_kwargs=collect_kwargs)
    else:
        data = collector.collect(
            n_sample=size, random_collect=True, record_random_collect=False, policy_kwargs=collect_kwargs
        )
    if postprocess_data_fn is not None:
        data = postprocess_data_fn(data)
    replay_buffer.push(data, cur_collector_envstep=0)
    collector.reset_policy(policy.collect_mode)


def mark_not_expert(ori_data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Set `is_expert` = 0 in each transition, in place; returns the same list."""
    for item in ori_data:
        item["is_expert"] = 0
    return ori_data


def mark_warm_up(ori_data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Set `warm_up` = True in each transition, in place; returns the same list."""
    for item in ori_data:
        item["warm_up"] = True
    return ori_data
