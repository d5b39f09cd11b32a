"""Demonstrations on disk, as msgpack (`naive`) or HDF5: data sets for torch's `DataLoader`, and how they are saved."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from ding.utils.file_helper import atomic_write
from ding.utils.import_helper import import_module
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.registry_factory import DATASET_REGISTRY

__all__ = [
    "HDF5Dataset",
    "NaiveRLDataset",
    "create_dataset",
    "hdf5_save",
    "naive_save",
    "offline_data_save_type",
]


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


_KEYS = ("obs", "action", "reward", "done", "next_obs")


def hdf5_save(exp_data: list[dict[str, Any]], expert_data_path: str) -> None:
    """Write `obs`, `action`, `reward`, `done` and `next_obs` of the transitions to `<path less '.pkl'>_demos.hdf5`.

    Each is one gzip-compressed data set of shape (number of transitions, *shape of one). The file appears whole; parent
    folders are created.

    Raises:
        ImportError: h5py is not installed.
        KeyError: a transition lacks a key.
        TypeError: an entry is a dict or a sequence of tensors, which has no array.
        ValueError: entries of one key differ in shape, or there is no transition.
    """
    h5py = _h5py()
    if not exp_data:
        raise ValueError("hdf5_save needs at least one transition")
    columns = {key: np.stack([_array(key, transition[key]) for transition in exp_data]) for key in _KEYS}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for key, column in columns.items():
            file.create_dataset(key, data=column, compression="gzip")
    with atomic_write(expert_data_path.removesuffix(".pkl") + "_demos.hdf5") as target:
        target.write(buffer.getbuffer())


def _array(key: str, value: Any) -> np.ndarray:
    array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{key!r} of type {type(value).__name__} does not make an array of numbers; use data_type naive"
        )
    return array


@DATASET_REGISTRY.register("hdf5")
class HDF5Dataset(Dataset[dict[str, np.ndarray]]):
    """The transitions of an HDF5 file, one for each row of its data sets; all are held in memory.

    Args:
        cfg: the path of the file, or a config whose `policy.collect.data_path` it is.

    Attributes:
        mean: float32, of `obs` over the transitions.
        std: float32, its standard deviation plus 1e-3.

    Raises:
        ImportError: h5py is not installed.
        TypeError: `cfg` is neither a path nor a config.
        ValueError: the config names no file, or the data sets of the file differ in length or lack `obs`.
    """

    def __init__(self, cfg: Any) -> None:
        path = data_path_of(cfg)
        with _h5py().File(path, "r") as file:
            self._data: dict[str, np.ndarray] = {key: file[key][:] for key in file}
        lengths = {key: len(column) for key, column in self._data.items()}
        if len(set(lengths.values())) != 1 or "obs" not in lengths:
            raise ValueError(f"{path} must hold data sets of one length, obs among them; it has {lengths or 'none'}")
        obs = self._data["obs"]
        self.mean: np.ndarray = obs.mean(0, dtype=np.float64).astype(np.float32)
        self.std: np.ndarray = (obs.std(0, dtype=np.float64) + 1e-3).astype(np.float32)

    def __len__(self) -> int:
        return len(self._data["obs"])

    def __getitem__(self, idx: int) -> dict[str, np.ndarray]:
        return {key: column[idx] for key, column in self._data.items()}


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError("HDF5 files need the package h5py: pip install h5py") from error
    return h5py


_SAVE: dict[str, Callable[[list[Any], str], None]] = {"naive_save": naive_save, "hdf5_save": hdf5_save}


def create_dataset(cfg: Any, **kwargs: Any) -> Any:
    """The data set registered as `cfg.policy.collect.data_type`; `kwargs` go to its constructor.

    `cfg.import_names` are imported first.

    Raises:
        KeyError: the type is unknown.
    """
    import_module(cfg.get("import_names", []))
    return DATASET_REGISTRY.build(cfg["policy"]["collect"]["data_type"], cfg=cfg, **kwargs)


def offline_data_save_type(exp_data: list[Any], expert_data_path: str, data_type: str = "naive") -> None:
    """Save demonstrations with `naive_save` or `hdf5_save`.

    Raises:
        KeyError: another `data_type`.
    """
    name = f"{data_type}_save"
    if name not in _SAVE:
        raise KeyError(f"{name!r} is unknown: data_type must be naive or hdf5, got {data_type!r}")
    _SAVE[name](exp_data, expert_data_path)
