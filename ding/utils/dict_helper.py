"""Helpers that merge, transpose and flatten dicts."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from easydict import EasyDict


def deep_merge_dicts(original: dict[str, Any] | None, new_dict: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a deep copy of `original` updated by `new_dict`, which is not copied; None counts as empty.

    Values that are dicts in both are merged; any other value of `new_dict`, including None and lists, replaces that of
    `original`. New keys are allowed. An `EasyDict` stays an `EasyDict`.
    """
    merged: dict[str, Any] = copy.deepcopy(original or {})
    if new_dict:
        deep_update(merged, new_dict, new_keys_allowed=True)
    return merged


def deep_update(
    original: MutableMapping[str, Any],
    new_dict: Mapping[str, Any],
    new_keys_allowed: bool = False,
    whitelist: Sequence[str] | None = None,
    override_all_if_type_changes: Sequence[str] | None = None,
) -> MutableMapping[str, Any]:
    """Merge `new_dict` into `original` in place and return `original`.

    Args:
        original: the dict to update.
        new_dict: the new values.
        new_keys_allowed: whether new keys may be added.
        whitelist: top-level keys below which new keys may always be added.
        override_all_if_type_changes: top-level keys whose value is replaced as a whole if its `type` entry changes.

    Raises:
        RuntimeError: a key is unknown and may not be added.
    """
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise RuntimeError(f"unknown key {key!r}; known keys are {', '.join(map(str, original)) or 'none'}")
        current = original.get(key)
        if not (isinstance(current, MutableMapping) and isinstance(value, Mapping)):
            original[key] = value
            continue
        type_changes = "type" in value and value["type"] != current.get("type")
        if type_changes and key in (override_all_if_type_changes or ()):
            original[key] = value
        else:
            deep_update(current, value, new_keys_allowed or key in (whitelist or ()))
    return original


def flatten_dict(data: Mapping[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """Return a new dict without nesting, with keys joined by `delimiter`; empty dicts are dropped."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            flat.update((f"{key}{delimiter}{sub}", leaf) for sub, leaf in flatten_dict(value, delimiter).items())
        else:
            flat[key] = value
    return flat


def lists_to_dicts(data: Sequence[Any], recursive: bool = False) -> Any:
    """Turn a list of dicts into a dict of lists with the keys of the first, or namedtuples into one of tuples.

    With `recursive`, values that are dicts become dicts of lists too, one level down, except for `prev_state`.

    Raises:
        ValueError: `data` is empty.
        TypeError: the elements are neither dicts nor namedtuples.
        KeyError: a later dict lacks a key of the first.
    """
    if len(data) == 0:
        raise ValueError("data = [] is not allowed; it must have at least one element")
    first = data[0]
    if isinstance(first, Mapping):
        turned = {key: [element[key] for element in data] for key in first}
        if recursive:
            for key, value in first.items():
                if isinstance(value, Mapping) and key != "prev_state":
                    turned[key] = lists_to_dicts(turned[key])
        return turned
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*zip(*data, strict=True))
    raise TypeError(f"elements of type {type(first).__name__} are not allowed; they must be dicts or namedtuples")


def dicts_to_lists(data: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Turn a dict of lists into a list of dicts, of the length of the shortest list."""
    return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=False)]


def convert_easy_dict_to_dict(easy_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Return `easy_dict` as a plain dict; nested `EasyDict`s are converted, but not those in lists."""
    return {
        key: convert_easy_dict_to_dict(value) if isinstance(value, EasyDict) else value
        for key, value in easy_dict.items()
    }


def make_key_as_identifier(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new dict whose keys can be field names: `.` becomes `_`, and `_` precedes a leading digit."""

    def identifier(key: str) -> str:
        return ("_" + key if key[:1].isdigit() else key).replace(".", "_")

    return {identifier(key): value for key, value in data.items()}


def remove_illegal_item(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new dict without the entries whose value is a string."""
    return {key: value for key, value in data.items() if not isinstance(value, str)}
