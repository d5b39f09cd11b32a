"""Compiled configs as files that the roles of a parallel training are started with, one by one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from ding.utils.config_helper import ConfigError
from ding.utils.file_helper import atomic_write
from ding.utils.msgpack_helper import pack, unpack


def save_packed_config(cfg: Mapping[str, Any], path: str) -> None:
    """Write a compiled config to `path`, whole or not at all.

    Raises:
        TypeError: it holds something besides numbers, strings, containers, arrays and tensors.
    """
    data = pack(EasyDict(cfg))
    with atomic_write(path, "wb") as f:
        f.write(data)


def read_packed_config(path: str) -> EasyDict:
    """The compiled config in the file `path`; nothing in the file is executed.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: it was not written by `save_packed_config`; a pickle, perhaps.
    """
    with open(path, "rb") as f:
        data = f.read()
    try:
        cfg = unpack(data)
    except ValueError as e:
        cfg = e
    if not isinstance(cfg, dict) or not {"main", "system"} <= cfg.keys():
        raise ConfigError(
            f"{os.path.abspath(path)} is not a config that dist_prepare_config has written; pickles are not read: "
            "write it again"
        )
    return EasyDict(cfg)
