"""Demonstrations on disk, as msgpack (`naive`), HDF5, npz or Minari: read for a `DataLoader`, and saved."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from ding.utils.data.samples import Column, Kind, Samples
from ding.utils.file_helper import atomic_write
from ding.utils.import_helper import import_module
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.registry_factory import DATASET_REGISTRY

__all__ = [
    "ColumnDataset",
    "HDF5Dataset",
    "MinariDataset",
    "NaiveRLDataset",
    "NpzDataset",
    "create_dataset",
    "hdf5_save",
    "naive_save",
    "npz_save",
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
# Saved where all transitions have them: how an episode ended, and the discount of what follows an n-step transition.
_MORE_KEYS = ("terminated", "truncated", "value_gamma")


def hdf5_save(exp_data: list[dict[str, Any]], expert_data_path: str) -> None:
    """Write `obs`, `action`, `reward`, `done` and `next_obs` of the transitions to `<path less '.pkl'>_demos.hdf5`.

    Each is one gzip-compressed data set of shape (number of transitions, *shape of one); `terminated`, `truncated` and
    `value_gamma` are more of them, where all transitions have these keys. The file appears whole; parent folders are
    created.

    Raises:
        ImportError: h5py is not installed.
        KeyError: a transition lacks a key.
        TypeError: an entry is a dict or a sequence of tensors, which has no array.
        ValueError: entries of one key differ in shape, or there is no transition.
    """
    h5py = _h5py()
    columns = _columns("hdf5_save", exp_data)
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for key, column in columns.items():
            file.create_dataset(key, data=column, compression="gzip")
    with atomic_write(expert_data_path.removesuffix(".pkl") + "_demos.hdf5") as target:
        target.write(buffer.getbuffer())


def npz_save(exp_data: list[dict[str, Any]], expert_data_path: str) -> None:
    """Write what `hdf5_save` writes as compressed numpy arrays to `<path less '.pkl'>_demos.npz`, without h5py.

    Raises:
        KeyError, TypeError, ValueError: as `hdf5_save`.
    """
    columns: dict[str, Any] = _columns("npz_save", exp_data)
    with atomic_write(expert_data_path.removesuffix(".pkl") + "_demos.npz") as target:
        np.savez_compressed(target, **columns)


def _columns(caller: str, exp_data: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    if not exp_data:
        raise ValueError(f"{caller} needs at least one transition")
    keys = (*_KEYS, *(key for key in _MORE_KEYS if all(key in transition for transition in exp_data)))
    return {key: np.stack([_array(key, transition[key]) for transition in exp_data]) for key in keys}


def _array(key: str, value: Any) -> np.ndarray:
    array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{key!r} of type {type(value).__name__} does not make an array of numbers; use data_type naive"
        )
    return array


class ColumnDataset(Dataset[dict[str, np.ndarray]]):
    """Transitions in arrays, one row each; all are held in memory.

    A loader that asks for a batch of rows gets `Samples`, which policies turn into tensors without touching a row.

    Args:
        columns: arrays [N, ...] by key. float64 becomes float32.
        where: what to call the source in errors.
        normalize_states: whether `obs` and `next_obs` are shifted and scaled with `mean` and `std`.

    Attributes:
        mean: float32, of `obs` over the transitions, before it was normalized.
        std: float32, its standard deviation plus 1e-3.

    Raises:
        ValueError: the arrays differ in length, or there is no `obs`.
    """

    def __init__(self, columns: Mapping[str, np.ndarray], where: str, normalize_states: bool = False) -> None:
        lengths = {key: len(column) for key, column in columns.items()}
        if len(set(lengths.values())) != 1 or "obs" not in lengths:
            raise ValueError(f"{where} must hold data sets of one length, obs among them; it has {lengths or 'none'}")
        obs = columns["obs"]
        self.mean: np.ndarray = obs.mean(0, dtype=np.float64).astype(np.float32)
        self.std: np.ndarray = (obs.std(0, dtype=np.float64) + 1e-3).astype(np.float32)
        self._data = {key: _single(column) for key, column in columns.items()}
        if normalize_states:
            for key in {"obs", "next_obs"} & self._data.keys():
                self._data[key] = ((self._data[key] - self.mean) / self.std).astype(np.float32)

    def __len__(self) -> int:
        return len(self._data["obs"])

    def __getitem__(self, idx: int) -> dict[str, np.ndarray]:
        return {key: column[idx] for key, column in self._data.items()}

    def __getitems__(self, indices: Sequence[int]) -> Samples:
        """The rows `indices` as one batch, for torch's `DataLoader`."""
        rows = np.asarray(indices, np.int64)
        return Samples(
            {
                key: Column(Kind.ARRAY if column.ndim > 1 else Kind.SCALAR, column, rows)
                for key, column in self._data.items()
            }
        )


def _single(column: np.ndarray) -> np.ndarray:
    return column.astype(np.float32) if column.dtype == np.float64 else column


def _collect_setting(cfg: Any, key: str) -> Any:
    """`policy.collect.<key>` of a config; None where `cfg` is a path, or does not have it."""
    return cfg["policy"]["collect"].get(key) if isinstance(cfg, Mapping) else None


@DATASET_REGISTRY.register("hdf5")
class HDF5Dataset(ColumnDataset):
    """The transitions of an HDF5 file, one for each row of its data sets; see `ColumnDataset`.

    Args:
        cfg: the path of the file, or a config whose `policy.collect.data_path` it is; `policy.collect.normalize_states`
            normalizes observations.

    Raises:
        ImportError: h5py is not installed.
        TypeError: `cfg` is neither a path nor a config.
        ValueError: the config names no file, or the data sets of the file differ in length or lack `obs`.
    """

    def __init__(self, cfg: Any) -> None:
        path = data_path_of(cfg)
        with _h5py().File(path, "r") as file:
            columns = {key: file[key][:] for key in file}
        super().__init__(columns, path, bool(_collect_setting(cfg, "normalize_states")))


@DATASET_REGISTRY.register("npz")
class NpzDataset(ColumnDataset):
    """The transitions of a file of numpy arrays, as `npz_save` writes it; see `HDF5Dataset`. No code is run.

    Raises:
        TypeError: `cfg` is neither a path nor a config.
        ValueError: the config names no file, or the file holds objects, or arrays that differ in length or lack `obs`.
    """

    def __init__(self, cfg: Any) -> None:
        path = data_path_of(cfg)
        try:
            with np.load(path, allow_pickle=False) as file:
                columns = {key: file[key] for key in file.files}
        except (TypeError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} does not hold demonstrations: {error}") from error
        super().__init__(columns, path, bool(_collect_setting(cfg, "normalize_states")))


@DATASET_REGISTRY.register("minari")
class MinariDataset(ColumnDataset):
    """The transitions of a data set of the package minari; see `ColumnDataset`.

    Rewards and discrete actions are [N, 1]. Actions of an env with `env.act_scale` are scaled into [-1, 1], as policies
    give them to such an env.

    Args:
        cfg: the id of a data set that is on this machine, or a config whose `policy.collect.data_path` it is;
            `policy.collect.download` fetches one that is not.

    Raises:
        ImportError: minari is not installed.
        TypeError: `cfg` is neither an id nor a config, or observations or actions are no arrays.
        ValueError: the config names no data set, or it has no episode.
    """

    def __init__(self, cfg: Any) -> None:
        name = data_path_of(cfg)
        try:
            import minari
        except ImportError as error:
            raise ImportError("Minari data sets need the package minari: pip install 'minari[hdf5]'") from error
        data = minari.load_dataset(name, download=bool(_collect_setting(cfg, "download")))
        episodes = [_columns_of_episode(name, episode) for episode in data.iterate_episodes()]
        if not episodes:
            raise ValueError(f"the Minari data set {name!r} has no episode")
        columns = {key: np.concatenate([episode[key] for episode in episodes]) for key in episodes[0]}
        if isinstance(cfg, Mapping) and (cfg.get("env") or {}).get("act_scale"):
            low, high = data.action_space.low, data.action_space.high
            columns["action"] = 2 * (columns["action"] - low) / (high - low) - 1
        super().__init__(columns, f"the Minari data set {name!r}", bool(_collect_setting(cfg, "normalize_states")))


def _columns_of_episode(name: str, episode: Any) -> dict[str, np.ndarray]:
    """Its T steps as transitions; `observations` has T + 1 of them."""
    obs, action = episode.observations, episode.actions
    if not isinstance(obs, np.ndarray) or not isinstance(action, np.ndarray):
        raise TypeError(f"the Minari data set {name!r} has observations or actions that are no arrays, but dicts")
    return {
        "obs": obs[:-1],
        "next_obs": obs[1:],
        "action": action.reshape(len(action), -1),
        "reward": np.asarray(episode.rewards, np.float32)[:, None],
        "done": episode.terminations | episode.truncations,
        "terminated": episode.terminations,
        "truncated": episode.truncations,
    }


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ImportError("HDF5 files need the package h5py: pip install h5py") from error
    return h5py


_SAVE: dict[str, Callable[[list[Any], str], None]] = {
    "naive_save": naive_save,
    "hdf5_save": hdf5_save,
    "npz_save": npz_save,
}


def create_dataset(cfg: Any, **kwargs: Any) -> Any:
    """The data set registered as `cfg.policy.collect.data_type`; `kwargs` go to its constructor.

    `cfg.import_names` are imported first.

    Raises:
        KeyError: the type is unknown.
    """
    import_module(cfg.get("import_names", []))
    return DATASET_REGISTRY.build(cfg["policy"]["collect"]["data_type"], cfg=cfg, **kwargs)


def offline_data_save_type(exp_data: list[Any], expert_data_path: str, data_type: str = "naive") -> None:
    """Save demonstrations with `naive_save`, `hdf5_save` or `npz_save`.

    Raises:
        KeyError: another `data_type`.
    """
    name = f"{data_type}_save"
    if name not in _SAVE:
        raise KeyError(f"{name!r} is unknown: data_type must be naive, hdf5 or npz, got {data_type!r}")
    _SAVE[name](exp_data, expert_data_path)
