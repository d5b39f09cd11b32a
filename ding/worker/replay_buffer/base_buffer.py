"""Create buffers from their configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding.data.buffer_interface import IBuffer
from ding.utils.config_helper import ConfigError
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import BUFFER_REGISTRY

__all__ = ["IBuffer", "check_prefetching", "create_buffer", "get_buffer_cls"]


def create_buffer(cfg: Mapping[str, Any], *args: Any, **kwargs: Any) -> IBuffer:
    """Import `cfg['import_names']`, then create the buffer `cfg['type']` with `cfg` and the other arguments.

    The keyword `tb_logger` is not passed to a `naive` buffer, which creates its own writer.

    Raises:
        KeyError: If no buffer of this type is registered.
    """
    buffer_cls: Any = get_buffer_cls(cfg)
    if cfg["type"] == "naive":
        kwargs.pop("tb_logger", None)
    buffer: IBuffer = buffer_cls(cfg, *args, **kwargs)
    return buffer


def get_buffer_cls(cfg: Mapping[str, Any]) -> type[IBuffer]:
    """Import `cfg['import_names']`, then return the class registered for `cfg['type']`.

    Raises:
        KeyError: If no buffer of this type is registered.
    """
    import_module(cfg.get("import_names", []))
    buffer_cls: type[IBuffer] = BUFFER_REGISTRY.get(cfg["type"])
    return buffer_cls


def check_prefetching(cfg: Mapping[str, Any]) -> None:
    """Refuse a buffer that does not fit a learner that prefetches batches, as in parallel training.

    Raises:
        ConfigError: it accepts priorities only for its newest batch.
    """
    if cfg.get("type") == "deque" and cfg.get("priority"):
        raise ConfigError(
            "replay_buffer: type = 'deque' with priority = True is not allowed here: it accepts priorities only "
            "for its newest batch, but the learner prefetches several; use type = 'advanced'"
        )
