"""The tuples of bound methods through which workers use a policy. Field order is part of the interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def plain_transition(process_transition: F) -> F:
    """Declare that `process_transition` puts together `obs, next_obs, action, reward, done` and nothing else.

    A collector may then make these transitions itself, from whole batches. The mark is one of the function: a subclass
    that defines its own is asked for each transition.
    """
    return plain_transition_with()(process_transition)


def plain_transition_with(*output_keys: str) -> Callable[[F], F]:
    """As `plain_transition`, for transitions that also have these entries of what the policy returned for the env."""

    def mark(process_transition: F) -> F:
        process_transition.plain_output_keys = output_keys  # type: ignore[attr-defined]
        return process_transition

    return mark


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
    """A collect mode without state and without settings."""

    forward: Any
    process_transition: Any
    get_train_sample: Any
    reset: Any
    get_attribute: Any
