"""The named tuples of bound methods through which workers use a policy. The field order is part of the interface."""

from __future__ import annotations

from typing import Any, NamedTuple


def takes_env_id(policy: Any) -> bool:
    """Return whether `process_transition` of a mode takes the id of the env as a fourth argument.

    As in DI-engine, the type of its config tells.
    """
    return bool(policy.get_attribute("cfg").get("type") == "ngu_command")


def takes_state(policy: Any) -> bool:
    """Return whether `forward` of a mode takes latent states.

    It then gets `state`, what it returned as `state` last for each of these envs (None if for none), and `reset`, a
    bool array [E] that is true where an episode begins. As in DI-engine, the type of its config tells.
    """
    return bool(policy.get_attribute("cfg").get("type") == "dreamer_command")


def follows_progress(policy: Any) -> bool:
    """Return whether training steps of a mode need the attribute `progress_remaining`."""
    try:
        return bool(policy.get_attribute("follows_progress"))
    except (AttributeError, LookupError, NotImplementedError):  # no mode of a `Policy`
        return False


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
