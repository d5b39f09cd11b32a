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
    process_transition.is_plain_transition = True  # type: ignore[attr-defined]
    return process_transition


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
