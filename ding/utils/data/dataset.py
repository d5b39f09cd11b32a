"""Data sets of demonstrations: msgpack (`naive`), HDF5, npz and Minari."""

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

from ding.utils.data.nested import is_finite, leaves_by_path
from ding.utils.data.samples import Column, Kind, Samples, Table
from ding.utils.file_helper import atomic_write
from ding.utils.import_helper import import_module, missing_package
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
    """Return `cfg` if it is a path, else its entry `policy.collect.data_path`.

    Raises:
        TypeError: `cfg` is neither a path nor a config.
        ValueError: the entry is missing or None.
    """
    if isinstance(cfg, (str, os.PathLike)):
        return os.fspath(cfg)
    if not isinstance(cfg, Mapping):
        raise TypeError(f"cfg of type {type(cfg).__name__} is not allowed; it must be a path or a config")
    path: str | os.PathLike[str] | None = cfg["policy"]["collect"].get("data_path")
    if path is None:
        raise ValueError("policy.collect.data_path is missing; set it to the file of the demonstrations")
    return os.fspath(path)


_FORMAT = "ding-demonstrations"
_VERSION = 1


@DATASET_REGISTRY.register("naive")
class NaiveRLDataset(Dataset[Any]):
    """The transitions or episodes of a file that `naive_save` wrote, in memory.

    Files of DI-engine are pickles, which can run code when they are read. They are read only if `trusted` or the
    config's `policy.collect.trusted` is true.

    Args:
        cfg: the path of the file, or a config with `policy.collect.data_path`.
        trusted: whether to read pickles.

    Raises:
        TypeError: `cfg` is neither a path nor a config.
        ValueError: the config has no path, or the file is damaged or of another format.
        FloatingPointError: an observation, action or reward is NaN or infinite.
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
        for place, item in enumerate(self._data):
            for transition in item if isinstance(item, list) else [item]:
                if isinstance(transition, Mapping):
                    _check_finite(transition, f"{path}, item {place},")

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: int) -> Any:
        return self._data[idx]


# What has to be finite, except for minus infinity in an action mask.
_FINITE_KEYS = ("obs", "next_obs", "action", "reward")


def _check_finite(transition: Mapping[str, Any], where: str) -> None:
    for key in _FINITE_KEYS:
        for path, leaf in leaves_by_path(transition.get(key), key):
            if not is_finite(leaf) and not path.endswith("['action_mask']"):
                raise FloatingPointError(f"{where} has a NaN or an infinity in float32 in {path}: {leaf}")


def naive_save(exp_data: list[Any], expert_data_path: str | os.PathLike[str]) -> None:
    """Write transitions or episodes to exactly this path as msgpack, atomically.

    Raises:
        TypeError: the data contains anything but containers, strings, numbers, arrays and tensors.
    """
    packed = pack({"format": _FORMAT, "version": _VERSION, "items": list(exp_data)})
    with atomic_write(expert_data_path) as file:
        file.write(packed)


def _read(path: str, trusted: bool) -> list[Any]:
    content = Path(path).read_bytes()
    if content[:1] == b"\x80":  # the first byte of pickles since protocol 2, but never of our files
        if not trusted:
            raise pickle.UnpicklingError(
                f"{path} is a pickle, and reading it can run any code; if you trust its source, pass trusted=True or "
                "set policy.collect.trusted, and save it again with naive_save"
            )
        items = pickle.loads(content)
    else:
        try:
            data = unpack(content)
        except ValueError as error:
            raise ValueError(f"{path} does not hold demonstrations: {error}") from error
        if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (_FORMAT, _VERSION):
            raise ValueError(f"{path} does not hold demonstrations of version {_VERSION}; write it with naive_save")
        items = data["items"]
    if not isinstance(items, list):
        raise ValueError(f"{path} holds a {type(items).__name__}; it must hold a list of demonstrations")
    return items


_KEYS = ("obs", "action", "reward", "done", "next_obs")
# Saved if all transitions have them: how an episode ended, and the discount factor of an n-step transition.
_MORE_KEYS = ("terminated", "truncated", "value_gamma")


def hdf5_save(exp_data: list[dict[str, Any]], expert_data_path: str) -> None:
    """Write `obs`, `action`, `reward`, `done` and `next_obs` of the transitions to `<path without '.pkl'>_demos.hdf5`.

    Each key is one gzip-compressed data set of shape [number of transitions, *shape of one]. `terminated`, `truncated`
    and `value_gamma` are added if all transitions have them. The file is written atomically, with its parent folders.

    Raises:
        ImportError: h5py is not installed.
        KeyError: a transition lacks a key.
        TypeError: a value is not an array of numbers, such as a dict or a sequence of tensors.
        ValueError: values of one key differ in shape, or there is no transition.
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
    """Write what `hdf5_save` writes as compressed numpy arrays to `<path without '.pkl'>_demos.npz`, without h5py.

    Raises:
        KeyError, TypeError, ValueError: see `hdf5_save`.
    """
    columns: dict[str, Any] = _columns("npz_save", exp_data)
    with atomic_write(expert_data_path.removesuffix(".pkl") + "_demos.npz") as target:
        np.savez_compressed(target, **columns)


def _columns(caller: str, exp_data: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    if not exp_data:
        raise ValueError(f"exp_data = [] is not allowed; {caller} needs at least one transition")
    keys = (*_KEYS, *(key for key in _MORE_KEYS if all(key in transition for transition in exp_data)))
    return {key: np.stack([_array(key, transition[key]) for transition in exp_data]) for key in keys}


def _array(key: str, value: Any) -> np.ndarray:
    array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{key!r} of type {type(value).__name__} is not allowed; it must be an array of numbers, or use data_type "
            "naive"
        )
    return array


# The names of D4RL (https://arxiv.org/abs/2004.07219), and those of transitions.
_OF_D4RL = {
    "observations": "obs",
    "actions": "action",
    "rewards": "reward",
    "terminals": "terminated",
    "timeouts": "truncated",
    "next_observations": "next_obs",
}
_ENDS = ("terminated", "truncated")


def _from_d4rl(arrays: Mapping[str, np.ndarray], where: str) -> dict[str, np.ndarray]:
    """Return the transitions of arrays with the names of D4RL; others are left out.

    Rewards and discrete actions become [N, 1]. Without `next_observations`, the next observation is that of the next
    row, and a step that a time limit or the end of the data cuts off, whose next observation is unknown, is left out.

    Raises:
        ValueError: an array is missing, or arrays differ in length.
    """
    columns = {name: arrays[key] for key, name in _OF_D4RL.items() if key in arrays}
    needed = ["observations", "actions", "rewards", "terminals"]
    needed += [] if "next_obs" in columns else ["timeouts"]
    if missing := [key for key in needed if key not in arrays]:
        raise ValueError(
            f"{where} has observations, but lacks {', '.join(missing)}; a data set with the names of D4RL has "
            "observations, actions, rewards, terminals, and timeouts or next_observations"
        )
    check_lengths(columns, where)
    count = len(columns["obs"])
    ends = {name: columns[name].reshape(count).astype(np.bool_) for name in _ENDS if name in columns}
    columns |= {**ends, "done": np.logical_or.reduce(list(ends.values()))}
    columns |= {key: columns[key].reshape(count, -1) for key in ("action", "reward")}
    if "next_obs" in columns:
        return columns
    columns["next_obs"] = np.concatenate([columns["obs"][1:], columns["obs"][-1:]])
    is_known = ends["terminated"] | ~ends["truncated"]
    is_known[-1] &= ends["terminated"][-1]
    return {key: column[is_known] for key, column in columns.items()}


def check_lengths(columns: Mapping[str, Any], where: str) -> None:
    """Check that the columns have equal lengths, and `obs` is among them.

    Raises:
        ValueError: they have not.
    """
    lengths = {key: len(column) for key, column in columns.items()}
    if len(set(lengths.values())) != 1 or "obs" not in lengths:
        raise ValueError(
            f"{where} has data sets of the lengths {lengths or 'none'}; they must be equal and include obs"
        )


class ColumnDataset(Dataset[dict[str, np.ndarray]]):
    """Transitions as rows of arrays in memory.

    Batches are `Samples`, which policies convert to tensors without creating rows.

    Args:
        columns: arrays [N, ...] by key, with the names of transitions or those of D4RL. float64 becomes float32, and
            single values, which describe the whole, are left out.
        where: name of the source, for errors.
        normalize_states: whether to normalize `obs` and `next_obs` by `mean` and `std`.

    Attributes:
        mean: float32, mean of `obs` over the transitions, before normalization.
        std: float32, its standard deviation + 1e-3.

    Raises:
        ValueError: the arrays differ in length or hold no numbers, or one is missing.
        FloatingPointError: an observation, action or reward is NaN or infinite.
    """

    def __init__(self, columns: Mapping[str, np.ndarray], where: str, normalize_states: bool = False) -> None:
        columns = {key: column for key, column in columns.items() if column.ndim}
        if "observations" in columns and "obs" not in columns:
            columns = _from_d4rl(columns, where)
        check_lengths(columns, where)
        for key, column in columns.items():
            if column.dtype.kind not in "biuf":
                raise ValueError(f"{where} has {key} of the dtype {column.dtype}; it must hold numbers")
        for key in _FINITE_KEYS:
            if key in columns and not is_finite(columns[key]):
                row = next(row for row, item in enumerate(columns[key]) if not is_finite(item))
                _check_finite({key: columns[key][row]}, f"{where}, transition {row},")
        obs = columns["obs"]
        self.mean: np.ndarray = obs.mean(0, dtype=np.float64).astype(np.float32)
        self.std: np.ndarray = (obs.std(0, dtype=np.float64) + 1e-3).astype(np.float32)
        self._data = {
            key: column.astype(np.float32) if column.dtype == np.float64 else column for key, column in columns.items()
        }
        if normalize_states:
            for key in {"obs", "next_obs"} & self._data.keys():
                self._data[key] = ((self._data[key] - self.mean) / self.std).astype(np.float32)

    def __len__(self) -> int:
        return len(self._data["obs"])

    def __getitem__(self, idx: int) -> dict[str, np.ndarray]:
        return {key: column[idx] for key, column in self._data.items()}

    def __getitems__(self, indices: Sequence[int]) -> Samples:
        """Return the rows `indices` as one batch, for torch's `DataLoader`."""
        rows = np.asarray(indices, np.int64)
        columns = {
            key: Column(Kind.ARRAY if column.ndim > 1 else Kind.SCALAR, column, rows)
            for key, column in self._data.items()
        }
        return Samples(Table(columns))


def _collect_setting(cfg: Any, key: str) -> Any:
    """Return `policy.collect.<key>` of a config, None if it is missing or `cfg` is a path."""
    return cfg["policy"]["collect"].get(key) if isinstance(cfg, Mapping) else None


@DATASET_REGISTRY.register("hdf5")
class HDF5Dataset(ColumnDataset):
    """The transitions of an HDF5 file, one per row of its data sets; see `ColumnDataset`.

    Groups in the file are left out.

    Args:
        cfg: the path of the file, or a config with `policy.collect.data_path`. `policy.collect.normalize_states`
            normalizes observations.

    Raises:
        ImportError: h5py is not installed.
        TypeError: `cfg` is neither a path nor a config.
        ValueError: the config has no path, or the data sets differ in length or lack `obs`.
    """

    def __init__(self, cfg: Any) -> None:
        path, h5py = data_path_of(cfg), _h5py()
        with h5py.File(path, "r") as file:
            columns = {key: item[()] for key, item in file.items() if isinstance(item, h5py.Dataset) and item.shape}
        super().__init__(columns, path, bool(_collect_setting(cfg, "normalize_states")))


@DATASET_REGISTRY.register("npz")
class NpzDataset(ColumnDataset):
    """The transitions of a file that `npz_save` wrote; see `HDF5Dataset`. Reading it never runs code.

    Raises:
        TypeError: `cfg` is neither a path nor a config.
        ValueError: the config has no path, the file holds objects or an array without a name, or its arrays differ
            in length or lack `obs`.
    """

    def __init__(self, cfg: Any) -> None:
        path = data_path_of(cfg)
        try:
            loaded = np.load(path, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("it holds one array instead of named ones")
            with loaded as file:
                columns = {key: file[key] for key in file.files}
        except (TypeError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} does not hold demonstrations: {error}") from error
        super().__init__(columns, path, bool(_collect_setting(cfg, "normalize_states")))


@DATASET_REGISTRY.register("minari")
class MinariDataset(ColumnDataset):
    """The transitions of a Minari data set; see `ColumnDataset`.

    Rewards and discrete actions are [N, 1]. With `env.act_scale`, actions are scaled to [-1, 1], as those of policies.

    Args:
        cfg: the id of a local data set, or a config with `policy.collect.data_path`. With `policy.collect.download`, a
            missing data set is downloaded.

    Raises:
        ImportError: minari is not installed.
        TypeError: `cfg` is neither an id nor a config, or observations or actions are not arrays.
        ValueError: the config has no id, the data set has no episode, or its lengths contradict each other.
    """

    def __init__(self, cfg: Any) -> None:
        name = data_path_of(cfg)
        try:
            import minari
        except ImportError as error:
            raise missing_package("a Minari data set", "'minari[hdf5]'", "minari") from error
        data = minari.load_dataset(name, download=bool(_collect_setting(cfg, "download")))
        episodes = [_columns_of_episode(name, episode) for episode in data.iterate_episodes()]
        if not episodes:
            raise ValueError(f"the Minari data set {name!r} has no episodes; choose another one")
        columns = {key: np.concatenate([episode[key] for episode in episodes]) for key in episodes[0]}
        if len(columns["obs"]) != data.total_steps:
            raise ValueError(
                f"the Minari data set {name!r} should have {data.total_steps} steps, but its episodes have "
                f"{len(columns['obs'])}; download it again"
            )
        if isinstance(cfg, Mapping) and (cfg.get("env") or {}).get("act_scale"):
            low, high = data.action_space.low, data.action_space.high
            columns["action"] = 2 * (columns["action"] - low) / (high - low) - 1
        else:  # policies count choices from 0
            columns["action"] = columns["action"] - getattr(data.action_space, "start", 0)
        super().__init__(columns, f"the Minari data set {name!r}", bool(_collect_setting(cfg, "normalize_states")))


def _columns_of_episode(name: str, episode: Any) -> dict[str, np.ndarray]:
    """Return the T steps of an episode as transitions; it has T + 1 observations."""
    obs, action = episode.observations, episode.actions
    if not isinstance(obs, np.ndarray) or not isinstance(action, np.ndarray):
        raise TypeError(f"the Minari data set {name!r} has observations or actions that are not arrays; they must be")
    steps = (action, episode.rewards, episode.terminations, episode.truncations)
    lengths = [len(obs) - 1, *map(len, steps)]
    if len(set(lengths)) != 1:
        raise ValueError(
            f"episode {episode.id} of the Minari data set {name!r} has {len(obs)} observations, and "
            f"{', '.join(map(str, lengths[1:]))} actions, rewards, terminations and truncations; an episode of T steps "
            "has T of each and T + 1 observations"
        )
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
        raise missing_package("an HDF5 file", "h5py", "hdf5") from error
    return h5py


_SAVE: dict[str, Callable[[list[Any], str], None]] = {
    "naive_save": naive_save,
    "hdf5_save": hdf5_save,
    "npz_save": npz_save,
}


def create_dataset(cfg: Any, **kwargs: Any) -> Any:
    """Import `cfg.import_names`, then create the data set `policy.collect.data_type` ('naive') with `cfg` and `kwargs`.

    Raises:
        KeyError: the type is unknown.
    """
    import_module(cfg.get("import_names", []))
    return DATASET_REGISTRY.build(cfg["policy"]["collect"].get("data_type", "naive"), cfg=cfg, **kwargs)


def offline_data_save_type(exp_data: list[Any], expert_data_path: str, data_type: str = "naive") -> None:
    """Save demonstrations with `naive_save`, `hdf5_save` or `npz_save`.

    Raises:
        KeyError: `data_type` is unknown.
    """
    check_save_type(data_type)
    _SAVE[f"{data_type}_save"](exp_data, expert_data_path)


def check_save_type(data_type: str) -> None:
    """Check that demonstrations can be saved in a format.

    Raises:
        KeyError: `data_type` is unknown.
        ImportError: it is 'hdf5', but h5py is not installed.
    """
    if f"{data_type}_save" not in _SAVE:
        raise KeyError(f"data_type = {data_type!r} is not allowed; it must be naive, hdf5 or npz")
    if data_type == "hdf5":
        _h5py()
