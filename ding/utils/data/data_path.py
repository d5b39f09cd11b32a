"""Where the demonstrations of a data set lie."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def data_path_of(cfg: Any) -> str:
    """`cfg` itself if it is a path, else its entry `policy.collect.data_path`.

    Raises:
        TypeError: `cfg` is neither a path nor a config.
        ValueError: the entry is missing or None.
    """
    if isinstance(cfg, (str, os.PathLike)):
        return os.fspath(cfg)
    if not isinstance(cfg, Mapping):
        raise TypeError(f"a data set needs a path or a config, got {type(cfg).__name__}")
    path: str | os.PathLike[str] | None = cfg["policy"]["collect"].get("data_path")
    if path is None:
        raise ValueError("policy.collect.data_path is missing; set it to the file of the demonstrations")
    return os.fspath(path)
