"""Nested data: mappings and sequences of values, down to the leaves.

What counts as a container is decided here alone: mappings, lists, tuples and other sequences, but not text, tensors and
arrays. Functions that treat values by their type beyond that have a table of such functions, `ByType`.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Handler = Callable[..., Any]
Matcher = type | tuple[type, ...] | Callable[[type], bool]


def is_namedtuple(kind: type) -> bool:
    """Return whether `kind` is a namedtuple class."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_treetensor(kind: type) -> bool:
    """Return whether `kind` is a tree of tensors (DI-treetensor), which `json()` turns into dicts."""
    return callable(getattr(kind, "json", None)) and not issubclass(kind, dict)


class ByType(dict[type, Handler]):
    """A dict of handlers by type: `handlers[type(value)]` is the handler of `value`.

    The lookup of a type that no rule matches raises a TypeError.

    Args:
        purpose: what the handlers do, for the error "cannot <purpose> a value of type ...".
        rules: pairs of types, or a predicate on types, and a handler. The first match of a new type is cached.

    Example:
        >>> length = ByType("measure", (str, len), (int, int.bit_length))
        >>> length[bool](True)
        1
    """

    def __init__(self, purpose: str, *rules: tuple[Matcher, Handler]) -> None:
        super().__init__()
        self._purpose = purpose
        self._rules = rules

    def __missing__(self, kind: type) -> Handler:
        for matcher, handler in self._rules:
            if issubclass(kind, matcher) if isinstance(matcher, (type, tuple)) else matcher(kind):
                self[kind] = handler
                return handler
        raise TypeError(f"cannot {self._purpose} a value of type {kind.__module__}.{kind.__qualname__}")


class _Forms(dict[type, type | None]):
    """Whether values of a type are mappings, sequences or (None) leaves: one lookup instead of tests for ABCs."""

    def __missing__(self, kind: type) -> type | None:
        is_text = issubclass(kind, (str, bytes, bytearray, memoryview, range))
        form = (
            Mapping if issubclass(kind, Mapping) else Sequence if issubclass(kind, Sequence) and not is_text else None
        )
        self[kind] = form
        return form


_FORMS = _Forms()


def is_mapping(value: Any) -> TypeIs[Mapping[Any, Any]]:
    """Return whether `value` is a mapping."""
    return _FORMS[type(value)] is Mapping


def is_container(value: Any) -> bool:
    """Return whether `value` is a mapping or a sequence, not a leaf."""
    return _FORMS[type(value)] is not None


def parts_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the pairs (key or index, part) of a mapping or sequence; () for a leaf."""
    form = _FORMS[type(value)]
    return () if form is None else value.items() if form is Mapping else enumerate(value)


def rebuilt(like: Any, parts: Iterable[Any]) -> Any:
    """Return a container like `like` with other parts: a dict, list, tuple or namedtuple."""
    kind = type(like)
    if _FORMS[kind] is Mapping:
        return dict(zip(like, parts, strict=True))
    if not issubclass(kind, tuple):
        return list(parts)
    return kind(*parts) if is_namedtuple(kind) else tuple(parts)


def map_leaves(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return a tree with `function` of each leaf of `tree` and the corresponding parts of `others`.

    Mappings become dicts, namedtuples and tuples stay what they are, other sequences become lists.

    Example:
        >>> map_leaves(max, {"a": 1, "b": (2, [3])}, {"a": 0, "b": (5, [0])})
        {'a': 1, 'b': (5, [3])}
    """
    form = _FORMS[type(tree)]
    if form is None:
        return function(tree, *others)
    if form is Mapping:
        if not others:
            return {key: map_leaves(function, part) for key, part in tree.items()}
        return {key: map_leaves(function, part, *(other[key] for other in others)) for key, part in tree.items()}
    return rebuilt(tree, [map_leaves(function, *parts) for parts in zip(tree, *others, strict=True)])


def map_tensors(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Return a tree with `function` of each tensor of `tree`; other leaves stay."""
    return map_leaves(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves of a tree, in order."""
    form = _FORMS[type(tree)]
    if form is None:
        yield tree
    else:
        for part in tree.values() if form is Mapping else tree:
            yield from leaves(part)


def leaves_by_path(tree: Any, path: str = "", join: Callable[[str, Any], str] = "{}[{!r}]".format) -> Iterator[Any]:
    """Yield (path, leaf) for the leaves of a tree, in order; `join` appends a key to a path."""
    if is_container(tree):
        for key, part in parts_of(tree):
            yield from leaves_by_path(part, join(path, key), join)
    else:
        yield path, tree


def map_by_path(function: Callable[[str, Any], Any], tree: Any, path: str) -> Any:
    """Return a tree with `function` of the path and the value of each leaf; keys follow `path`, behind dots.

    Example:
        >>> map_by_path(lambda path, leaf: f"{path}={leaf}", {"a": 1, "b": (2,)}, "x")
        {'a': 'x.a=1', 'b': ('x.b.0=2',)}
    """
    if not is_container(tree):
        return function(path, tree)
    return rebuilt(tree, [map_by_path(function, part, f"{path}.{key}") for key, part in parts_of(tree)])


def has_nan(leaf: Any) -> bool:
    """Return whether a number, array or tensor is or holds a NaN."""
    return _HAS_NAN[type(leaf)](leaf)  # type: ignore[no-any-return]


def is_finite(leaf: Any) -> bool:
    """Return whether a number, or each number of an array or tensor, is finite in float32."""
    return _IS_FINITE[type(leaf)](leaf)  # type: ignore[no-any-return]


def all_finite(array: np.ndarray) -> bool:
    """Return whether each number of an array of floats is finite in float32."""
    are_finite = np.isfinite(array) if array.itemsize <= 4 else np.abs(array) <= FLOAT32_MAX
    return bool(np.count_nonzero(are_finite) == array.size)  # a third of the cost of `are_finite.all()`


def _tensor_has_nan(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and bool(tensor.isnan().any())


def _tensor_is_finite(tensor: torch.Tensor) -> bool:
    if tensor.is_complex():
        tensor = tensor.abs()
    return not tensor.is_floating_point() or bool(tensor.float().isfinite().all())


FLOAT32_MAX = float(np.finfo(np.float32).max)
_HAS_NAN: ByType = ByType(
    "search for NaN in",
    (torch.Tensor, _tensor_has_nan),
    (np.ndarray, lambda array: array.dtype.kind in "fc" and bool(np.isnan(array).any())),
    ((float, np.floating), lambda number: number != number),
    (object, lambda leaf: False),
)
_IS_FINITE: ByType = ByType(
    "search for infinities in",
    (torch.Tensor, _tensor_is_finite),
    (np.ndarray, lambda array: array.dtype.kind not in "fc" or all_finite(array)),
    ((float, np.floating), lambda number: abs(float(number)) <= FLOAT32_MAX),
    (object, lambda leaf: True),
)


def plain(value: Any) -> Any:
    """Return `value` with Python numbers, lists and dicts for arrays, tensors, sequences and mappings."""
    return _PLAIN[type(value)](value)


def _plain_list(value: Sequence[Any]) -> list[Any]:
    return list(value) if _AS_THEY_ARE.issuperset(map(type, value)) else [plain(part) for part in value]


_AS_THEY_ARE = frozenset((str, int, float, bool, type(None)))
_PLAIN: ByType = ByType(
    "simplify",
    (Mapping, lambda value: {key: plain(part) for key, part in value.items()}),
    ((list, tuple), _plain_list),
    (lambda kind: hasattr(kind, "tolist"), operator.methodcaller("tolist")),
    (object, lambda value: value),
)


def own_copy(item: Any) -> Any:
    """Return a copy of an observation, reward or action that shares no memory with it."""
    return item.copy() if type(item) is np.ndarray and not item.dtype.hasobject else copy.deepcopy(item)
