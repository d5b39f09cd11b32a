"""Batches: collate functions, the asynchronous dataloader, per-env batches, and data sets of demonstrations."""

from ding.utils.data.collate_fn import (
    default_collate,
    default_decollate,
    diff_shape_collate,
    timestep_collate,
    ttorch_collate,
)
from ding.utils.data.dataloader import AsyncDataLoader, IDataLoader
from ding.utils.data.dataset import (
    HDF5Dataset,
    MinariDataset,
    NaiveRLDataset,
    NpzDataset,
    create_dataset,
    hdf5_save,
    naive_save,
    npz_save,
    offline_data_save_type,
)

__all__ = [
    "AsyncDataLoader",
    "HDF5Dataset",
    "IDataLoader",
    "MinariDataset",
    "NaiveRLDataset",
    "NpzDataset",
    "create_dataset",
    "default_collate",
    "default_decollate",
    "diff_shape_collate",
    "hdf5_save",
    "naive_save",
    "npz_save",
    "offline_data_save_type",
    "timestep_collate",
    "ttorch_collate",
]
