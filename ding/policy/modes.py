"""The named tuples of bound methods through which workers use a policy. The field order is part of the interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet

F = TypeVar("F", bound=Callable[..., Any])

# Declarations of `plain_transition` by function: keys, or the policy attribute that lists them.
_PLAIN: WeakKeyDictionary[Callable[..., Any], tuple[str, ...] | str] = WeakKeyDictionary()
# Functions declared by `accepts_pieces`.
_ACCEPTS_PIECES: WeakSet[Callable[..., Any]] = WeakSet()


def plain_transition(*output_keys: str, attribute: str | None = None) -> Callable[[F], F]:
    """Declare that a `_process_transition` only collects `obs, next_obs, reward, done` and `output_keys`.

    `output_keys` are entries of what the policy returned for the env; if they depend on settings, `attribute` is
    the name of the policy's attribute that lists them. A collector may then build transitions from whole batches
    without calling the function for each env. The declaration holds for this function only: a function that wraps or
    overrides it is called for each env.
    """

    def declare(process_transition: F) -> F:
        _PLAIN[process_transition] = output_keys if attribute is None else attribute
        return process_transition

    return declare


def plain_output_keys(process_transition: Any) -> tuple[str, ...] | None:
    """Return the `output_keys` of a method whose function is declared as plain; None for any other callable."""
    keys = _PLAIN.get(process_transition.__func__) if type(process_transition) is MethodType else None
    return tuple(getattr(process_transition.__self__, keys)) if isinstance(keys, str) else keys


def accepts_pieces(get_train_sample: F) -> F:
    """Declare that a `_get_train_sample` takes several pieces of trajectories at once.

    Given a `Table` with `lengths`, it returns a `Table` that is the concatenation of what it returns for each piece
    alone; its `lengths` are the numbers of samples made of each piece, which may be zero. Given a list, it returns a
    list. All bits are equal, except that a network may round differently for batches of different sizes. The
    declaration holds for this function only: a function that wraps or overrides it is called for each piece.
    """
    _ACCEPTS_PIECES.add(get_train_sample)
    return get_train_sample


def takes_pieces(get_train_sample: Any) -> bool:
    """Return whether the function of a method is declared by `accepts_pieces`; False for any other callable."""
    return type(get_train_sample) is MethodType and get_train_sample.__func__ in _ACCEPTS_PIECES


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
