"""Checks of policy settings; unknown keys are left to the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ding.torch_utils.optimizer_helper import CLIP_TYPES
from ding.utils.config_helper import ConfigError, Rule, instance_of, integer, number, one_of

_MISSING = object()


def positive(value: Any) -> str | None:
    """A real number above 0."""
    return "a number above 0" if number()(value) is not None or value <= 0 else None


def one_number(value: Any) -> str | None:
    """Checks for a single number: the `model.action_shape` of policies that do not support multi-discrete actions."""
    return "a number: this policy has one action a step" if isinstance(value, Sequence) and len(value) > 1 else None


# Rules of the optimizer settings that all policies share.
OPTIMIZER_RULES: dict[str, Rule] = {
    "learn.lr_scheduler": instance_of(Mapping, optional=True),
    "learn.lr_scheduler.epoch_num": integer(1),
    "learn.lr_scheduler.min_lr_lambda": number(0, 1),
    "learn.grad_clip_type": one_of(*CLIP_TYPES),
    "learn.grad_clip_value": number(0, optional=True),
}


def check_settings(cfg: Mapping[str, Any], where: str, rules: Mapping[str, Rule]) -> None:
    """Check the keys of `rules` (dotted where nested) that are present in `cfg`.

    Raises:
        ConfigError: a value violates its rule.
    """
    for path, rule in rules.items():
        value = setting(cfg, path, _MISSING)
        if value is _MISSING:
            continue
        allowed = rule(value)
        if allowed is not None:
            raise ConfigError(f"{where}: {path} = {value!r} is not allowed; it must be {allowed}")


def setting(cfg: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """The value under the dotted `path`, or `default` if a part of it is missing."""
    value: Any = cfg
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return default
        value = value[name]
    return value
