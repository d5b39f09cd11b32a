"""Create buffers from their configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding.data.buffer_interface import IBuffer
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import BUFFER_REGISTRY

__all__ = ["IBuffer", "create_buffer", "get_buffer_cls"]


def create_buffer(cfg: Mapping[str, Any], *args: Any, **kwargs: Any) -> IBuffer:
    """Build the buffer `cfg['type']` with `cfg` and the other arguments, after importing `cfg['import_names']`.

    A `naive` buffer does not get the keyword `tb_logger`: it makes a writer of its own.

    Raises:
        KeyError: no buffer of that type is registered.
    """
    buffer_cls: Any = get_buffer_cls(cfg)
    if cfg["type"] == "naive":
        kwargs.pop("tb_logger", None)
    buffer: IBuffer = buffer_cls(cfg, *args, **kwargs)
    return buffer


def get_buffer_cls(cfg: Mapping[str, Any]) -> type[IBuffer]:
    """The class registered for `cfg['type']`, after importing `cfg['import_names']`.

    Raises:
        KeyError: no buffer of that type is registered.
    """
    import_module(cfg.get("import_names", []))
    buffer_cls: type[IBuffer] = BUFFER_REGISTRY.get(cfg["type"])
    return buffer_cls
