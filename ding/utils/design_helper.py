"""Design patterns as metaclasses."""

from __future__ import annotations

import threading
from abc import ABCMeta
from typing import Any


class SingletonMetaclass(ABCMeta):
    """Gives each class one instance, made by the first call and kept as `cls.instance`; later arguments are ignored.

    A subclass has an instance of its own. The first call is thread-safe.

    Example:
        >>> class Config(metaclass=SingletonMetaclass):
        ...     pass
        >>> Config() is Config()
        True
    """

    instances: dict[type, Any] = {}
    _lock = threading.RLock()

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        with SingletonMetaclass._lock:
            if cls not in SingletonMetaclass.instances:
                SingletonMetaclass.instances[cls] = super().__call__(*args, **kwargs)
                cls.instance = SingletonMetaclass.instances[cls]
            return SingletonMetaclass.instances[cls]
