"""Attributes that live on a part of an object."""

from __future__ import annotations

from operator import attrgetter
from typing import Any


class Forwarded:
    """Reads and writes of this attribute go to the dotted `path` below the object.

    Example:
        >>> class Wheel:
        ...     turns = 0
        >>> class Cart:
        ...     turns = Forwarded("wheel.turns")
        ...     def __init__(self):
        ...         self.wheel = Wheel()
        >>> cart = Cart()
        >>> cart.turns += 1
        >>> cart.wheel.turns
        1
    """

    def __init__(self, path: str) -> None:
        self._read = attrgetter(path)
        owner, _, self._name = path.rpartition(".")
        self._owner = attrgetter(owner)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else self._read(instance)

    def __set__(self, instance: Any, value: Any) -> None:
        setattr(self._owner(instance), self._name, value)
