"""Helpers for the pipelines: random collection, marks on transitions, and an accuracy metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ding.policy.policy_factory import PolicyFactory
from ding.utils.config_helper import ConfigError
from ding.worker.collector.metric_serial_evaluator import IMetric


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

    A random policy acts, or the policy itself if `policy_cfg.transition_with_policy_data` is set. The steps count in
    `collector.envstep`; afterwards the collector uses `policy.collect_mode` again.

    Args:
        policy_cfg: the compiled policy section.
        postprocess_data_fn: a function that is applied to the data before they are pushed.

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
    """Set `is_expert` = 0 in each transition in place, and return the list."""
    for item in ori_data:
        item["is_expert"] = 0
    return ori_data


def mark_warm_up(ori_data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Set `warm_up` = True in each transition in place, and return the list."""
    for item in ori_data:
        item["warm_up"] = True
    return ori_data


class AccMetric(IMetric):
    """The accuracy of a classifier, under the key `Acc`.

    Example:
        >>> import torch
        >>> metric = AccMetric()
        >>> output = {"logit": torch.tensor([[2], [5]])}
        >>> metric.reduce_mean([metric.eval(output, torch.tensor(label)) for label in ([2, 3], [2, 5])])
        {'Acc': 0.75}
    """

    def eval(self, inputs: dict[str, Any], label: torch.Tensor) -> dict[str, Any]:
        """Return the share of the labels [B, *shape] that equal `inputs['logit']` [B, N, *shape] summed over N."""
        return {"Acc": (inputs["logit"].sum(dim=1) == label).float().mean().item()}

    def reduce_mean(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the unweighted mean accuracy of the batches."""
        return {"Acc": sum(item["Acc"] for item in inputs) / len(inputs)}

    def gt(self, metric1: dict[str, Any], metric2: dict[str, Any] | float | None) -> bool:
        """Return whether `metric1` is better than `metric2`, which is a metric, a number, or None (True)."""
        if metric2 is None:
            return True
        other = metric2["Acc"] if isinstance(metric2, dict) else metric2
        return bool(metric1["Acc"] > other)
