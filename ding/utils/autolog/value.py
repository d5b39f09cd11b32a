"""The declaration of a recorded value in the body of a `LoggedModel`."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

if TYPE_CHECKING:
    from ding.utils.autolog.model import LoggedModel

_T = TypeVar("_T")


class LoggedValue(Generic[_T]):
    """A value of a `LoggedModel`: assignment records it, reading returns the newest.

    Values must be instances of `type_`. If it is float or int, any number and any tensor, array or list with one
    element is converted; a bool is a number, and int accepts only whole numbers.

    Raises:
        TypeError: on assignment of a value of another type.
        ValueError: on reading before the first assignment.
    """

    def __init__(self, type_: type[_T] = object) -> None:  # type: ignore[assignment]
        self.type_ = type_
        self._convert: Callable[[Any], Any] | None = {float: _to_float, int: _to_int}.get(type_)
        self._name = "value"

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def check(self, value: Any) -> _T:
        """Returns `value`, converted to the type if it is a number.

        Raises:
            TypeError: `value` has another type.
        """
        if self._convert is not None:
            try:
                return cast(_T, self._convert(value))
            except (TypeError, ValueError) as error:
                raise TypeError(f"{self._name} takes {self.type_.__name__} values: {error}") from error
        if not isinstance(value, self.type_):
            raise TypeError(f"{self._name} takes {self.type_.__name__} values, got {type(value).__name__} {value!r}")
        return value

    def __get__(self, instance: LoggedModel | None, owner: type) -> Any:
        return self if instance is None else instance._get_value(self._name)

    def __set__(self, instance: LoggedModel, value: Any) -> None:
        setattr(instance, self._name, value)  # __setattr__ of the model records it


def _single(value: Any) -> numbers.Real:
    """Returns the number in `value`."""
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    item = getattr(value, "item", None)
    if callable(item):
        size = value.numel() if callable(getattr(value, "numel", None)) else value.size
        if size != 1:
            raise ValueError(f"expected one number, got {size} in a {type(value).__name__}")
        value = item()
    if not isinstance(value, numbers.Real):
        raise TypeError(f"got {type(value).__name__} {value!r}")
    return value


def _to_float(value: Any) -> float:
    return float(_single(value))


def _to_int(value: Any) -> int:
    number: Any = _single(value)
    if not isinstance(number, int) and not float(number).is_integer():
        raise ValueError(f"got {number}, which is not whole")
    return int(number)
