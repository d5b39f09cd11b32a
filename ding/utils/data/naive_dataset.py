"""Demonstrations in files of this package: msgpack, which runs no code."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from ding.utils.data.data_path import data_path_of
from ding.utils.file_helper import atomic_write
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.registry_factory import DATASET_REGISTRY

_FORMAT = "ding-demonstrations"
_VERSION = 1


@DATASET_REGISTRY.register("naive")
class NaiveRLDataset(Dataset[Any]):
    """The transitions, or episodes, of a file that `naive_save` wrote; all are held in memory.

    Files of DI-engine are pickles, which can run any code while they are read. They are read only if `trusted` or the
    config's `policy.collect.trusted` is true.

    Args:
        cfg: the path of the file, or a config whose `policy.collect.data_path` it is.
        trusted: whether to read a pickle.

    Raises:
        TypeError: `cfg` is neither a path nor a config.
        ValueError: the config names no file, or the file is damaged or of another format.
        pickle.UnpicklingError: the file is a pickle and not trusted.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     naive_save([{"obs": 1}, {"obs": 2}], f"{folder}/expert.pkl")
        ...     data = NaiveRLDataset(f"{folder}/expert.pkl")
        >>> len(data), data[1]
        (2, {'obs': 2})
    """

    def __init__(self, cfg: Any, trusted: bool = False) -> None:
        path = data_path_of(cfg)
        if isinstance(cfg, Mapping):
            trusted = trusted or bool(cfg["policy"]["collect"].get("trusted", False))
        self._data = _read(path, trusted)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: int) -> Any:
        return self._data[idx]


def naive_save(exp_data: list[Any], expert_data_path: str | os.PathLike[str]) -> None:
    """Write transitions, or episodes, to exactly that path, as msgpack; the file appears whole.

    Raises:
        TypeError: the data hold something else than containers, text, numbers, arrays and tensors.
    """
    packed = pack({"format": _FORMAT, "version": _VERSION, "items": list(exp_data)})
    with atomic_write(expert_data_path) as file:
        file.write(packed)


def _read(path: str, trusted: bool) -> list[Any]:
    content = Path(path).read_bytes()
    if content[:1] == b"\x80":  # so begins every pickle since protocol 2; what `pack` writes here never does
        if not trusted:
            raise pickle.UnpicklingError(
                f"{path} is a pickle, and reading it can run any code; if you trust where it comes from, pass "
                "trusted=True or set policy.collect.trusted, and save it again with naive_save"
            )
        items = pickle.loads(content)
    else:
        items = _unpack_items(path, content)
    if not isinstance(items, list):
        raise ValueError(f"{path} holds a {type(items).__name__}; demonstrations are a list")
    return items


def _unpack_items(path: str, content: bytes) -> Any:
    try:
        data = unpack(content)
    except ValueError as error:
        raise ValueError(f"{path} does not hold demonstrations: {error}") from error
    if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (_FORMAT, _VERSION):
        raise ValueError(f"{path} does not hold demonstrations of version {_VERSION}; write it with naive_save")
    return data["items"]
