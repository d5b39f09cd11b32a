"""Demonstrations on disk: data sets for torch's `DataLoader`, and how they are saved, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ding.utils.data.hdf5_dataset import HDF5Dataset, hdf5_save
from ding.utils.data.naive_dataset import NaiveRLDataset, naive_save
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import DATASET_REGISTRY

__all__ = [
    "HDF5Dataset",
    "NaiveRLDataset",
    "create_dataset",
    "hdf5_save",
    "naive_save",
    "offline_data_save_type",
]

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
