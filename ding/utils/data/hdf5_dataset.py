"""Demonstrations in HDF5 files: one array for each key of the transitions."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from ding.utils.data.data_path import data_path_of
from ding.utils.file_helper import atomic_write
from ding.utils.registry_factory import DATASET_REGISTRY

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
