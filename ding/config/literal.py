"""Python source text for configuration trees."""

from __future__ import annotations

import keyword
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

INDENT = "    "
MAX_INLINE = 100  # characters of a sequence that still goes on one line
_PLAIN = (str, bytes, bool, int, type(None), type(Ellipsis))


def to_source(value: Any, depth: int = 0) -> str:
    """An expression, over several lines where it nests, that evaluates to `value` in a module without imports.

    Literals come back exactly: infinities and NaN as `float('inf')`, `float('nan')`, numpy scalars as Python numbers,
    any mapping as a `dict`, an array as nested lists. What has no literal form (a class, a function, an `nn.Module`)
    becomes its repr in quotes, with a comment beside it.

    Args:
        depth: how many levels the first line is already indented.

    Example:
        >>> to_source((1, float("inf"), "it's"))
        '(1, float(\\'inf\\'), "it\\'s")'
    """
    return _render(value, depth)[0]


def is_literal(value: Any) -> bool:
    """Whether `to_source(value)` evaluates to an equal value, rather than to the repr of something in it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return all(is_literal(k) and is_literal(v) for k, v in value.items())
    if type(value) in (list, tuple, set, frozenset):
        return all(map(is_literal, value))
    return type(value) in (*_PLAIN, float, complex)


def _render(value: Any, depth: int) -> tuple[str, str]:
    """The expression and the comment that belongs behind it."""
    kind = type(value)
    if isinstance(value, np.generic):
        return _render(value.item(), depth) if type(value.item()) is not kind else _quoted(value)
    if kind in _PLAIN:
        return repr(value), ""
    if kind is float:
        return _float(value), ""
    if kind is complex:
        return f"complex({_float(value.real)}, {_float(value.imag)})", ""
    if isinstance(value, Mapping):
        return _mapping(value, depth), ""
    if kind in (list, tuple):
        return _sequence(list(value), "[]" if kind is list else "()", depth), ""
    if kind in (set, frozenset):
        items = sorted(value, key=repr)
        return (f"{kind.__name__}({_sequence(items, '[]', depth)})" if items else f"{kind.__name__}()"), ""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return _render(value.tolist(), depth)[0], f"was a numpy array of {value.dtype}"
    return _quoted(value)


def _float(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"float({str(value)!r})"


def _quoted(value: Any) -> tuple[str, str]:
    kind = "class" if isinstance(value, type) else type(value).__name__
    return repr(repr(value)), f"was a {kind}; put the real one here"


def _mapping(value: Mapping[Any, Any], depth: int) -> str:
    if not value:
        return "{}"
    if all(map(_is_argument_name, value)):
        opening, closing = "dict(", ")"
        entries = [(f"{key}=", item) for key, item in value.items()]
    else:
        opening, closing = "{", "}"
        entries = [(f"{_key(key)}: ", item) for key, item in value.items()]
    return _block(opening, closing, entries, depth)


def _key(key: Any) -> str:
    text = to_source(key)
    return text if "\n" not in text else repr(repr(key))


def _sequence(items: list[Any], brackets: str, depth: int) -> str:
    opening, closing = brackets[0], brackets[1]
    rendered = [_render(item, depth + 1) for item in items]
    comma = "," if brackets == "()" and len(items) == 1 else ""
    inline = opening + ", ".join(text for text, _ in rendered) + comma + closing
    if len(inline) <= MAX_INLINE and "\n" not in inline and not any(comment for _, comment in rendered):
        return inline
    return _block(opening, closing, [("", item) for item in items], depth)


def _block(opening: str, closing: str, entries: list[tuple[str, Any]], depth: int) -> str:
    lines = [opening]
    for head, item in entries:
        text, comment = _render(item, depth + 1)
        lines.append(f"{INDENT * (depth + 1)}{head}{text},{f'  # {comment}' if comment else ''}")
    lines.append(INDENT * depth + closing)
    return "\n".join(lines)


def _is_argument_name(key: Any) -> bool:
    # Python normalises non-ASCII identifiers, which would change such a key.
    return type(key) is str and key.isascii() and key.isidentifier() and not keyword.iskeyword(key)
