"""Values as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PLAIN = frozenset((str, int, float, bool, type(None)))


def plain(value: Any) -> Any:
    """`value` with Python's own numbers, lists and dicts in place of arrays, tensors, tuples and other mappings."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if _PLAIN.issuperset(map(type, value)):
            return list(value)
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
