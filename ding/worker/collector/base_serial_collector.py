"""The interface of serial collectors, their factories, and helpers for collectors of other packages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from easydict import EasyDict

from ding.utils.config_helper import Configurable
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import SERIAL_COLLECTOR_REGISTRY
from ding.worker.collector.trajectory import INF, CachePool, TrajBuffer, to_tensor_transitions

__all__ = [
    "INF",
    "CachePool",
    "ISerialCollector",
    "TrajBuffer",
    "create_serial_collector",
    "get_serial_collector_cls",
    "to_tensor_transitions",
]


class ISerialCollector(Configurable, ABC):
    """The interface of collectors that gather data in this process: a policy acts in the envs of a manager."""

    @abstractmethod
    def reset_env(self, _env: Any = None) -> None:
        """Take over and launch a new env manager; with None reset the present one."""
        raise NotImplementedError

    @abstractmethod
    def reset_policy(self, _policy: Any = None) -> None:
        """Take over a new policy (the collect mode); with None reset the present one."""
        raise NotImplementedError

    @abstractmethod
    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Reset env and policy, or take over new ones, and start counting from zero."""
        raise NotImplementedError

    @abstractmethod
    def collect(self, per_collect_target: Any) -> Any:
        """Gather the given amount of data and return it."""
        raise NotImplementedError

    @property
    @abstractmethod
    def envstep(self) -> int:
        """Env steps taken so far."""
        raise NotImplementedError


def create_serial_collector(cfg: EasyDict, **kwargs: Any) -> ISerialCollector:
    """Import the modules in `cfg.import_names`, then build the collector registered as `cfg.type`.

    Raises:
        AttributeError: `cfg` has no `type`.
        KeyError: nothing is registered under that type.
    """
    import_module(cfg.get("import_names", []))
    collector: ISerialCollector = SERIAL_COLLECTOR_REGISTRY.build(cfg.type, cfg=cfg, **kwargs)
    return collector


def get_serial_collector_cls(cfg: EasyDict) -> type[ISerialCollector]:
    """Import the modules in `cfg.import_names`, then look up the collector class registered as `cfg.type`.

    Raises:
        AssertionError: `cfg` has no `type`.
        KeyError: nothing is registered under that type.
    """
    import_module(cfg.get("import_names", []))
    if "type" not in cfg:
        raise AssertionError(f"the collector config needs a 'type', one of {sorted(SERIAL_COLLECTOR_REGISTRY)}: {cfg}")
    collector_cls: type[ISerialCollector] = SERIAL_COLLECTOR_REGISTRY.get(cfg.type)
    return collector_cls
