"""The named tuples of bound methods through which workers use a policy. The field order is part of the interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

# Attributes of policies that are called with more arguments, and the type of config that implies each: those of
# algorithm libraries are known by their type only.
_IMPLIED_BY_TYPE = {"process_transition_takes_env_id": "ngu_command", "forward_takes_state": "dreamer_command"}


def is_implied(attribute: str, cfg: Mapping[str, Any]) -> bool:
    """Return whether the type of a policy implies this attribute; used if the policy itself does not say."""
    return cfg.get("type") == _IMPLIED_BY_TYPE[attribute]


def takes_env_id(policy: Any) -> bool:
    """Return whether `process_transition` of a mode takes the id of the env as a fourth argument; see `Policy`."""
    return _attribute_of(policy, "process_transition_takes_env_id")


def takes_state(policy: Any) -> bool:
    """Return whether `forward` of a mode takes latent states; see `Policy`."""
    return _attribute_of(policy, "forward_takes_state")


def follows_progress(policy: Any) -> bool:
    """Return whether training steps of a mode need the attribute `progress_remaining`."""
    try:
        return bool(policy.get_attribute("follows_progress"))
    except (AttributeError, LookupError, NotImplementedError):  # no mode of a `Policy`
        return False


def _attribute_of(policy: Any, name: str) -> bool:
    try:
        return bool(policy.get_attribute(name))
    except (AttributeError, LookupError, NotImplementedError):  # no mode of a `Policy`
        return is_implied(name, policy.get_attribute("cfg"))


class learn_function(NamedTuple):
    forward: Any
    reset: Any
    info: Any
    monitor_vars: Any
    get_attribute: Any
    set_attribute: Any
    state_dict: Any
    load_state_dict: Any


class collect_function(NamedTuple):
    forward: Any
    process_transition: Any
    get_train_sample: Any
    reset: Any
    get_attribute: Any
    set_attribute: Any
    state_dict: Any
    load_state_dict: Any


class eval_function(NamedTuple):
    forward: Any
    reset: Any
    get_attribute: Any
    set_attribute: Any
    state_dict: Any
    load_state_dict: Any


class command_function(NamedTuple):
    get_setting_learn: Any
    get_setting_collect: Any
    get_setting_eval: Any


class random_collect_function(NamedTuple):
    """A collect mode without state and settings."""

    forward: Any
    process_transition: Any
    get_train_sample: Any
    reset: Any
    get_attribute: Any
