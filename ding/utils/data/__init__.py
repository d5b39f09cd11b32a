"""Batches: collate functions, the asynchronous dataloader, per-env batches."""

from ding.utils.data.base_dataloader import IDataLoader
from ding.utils.data.collate_fn import (
    default_collate,
    default_decollate,
    diff_shape_collate,
    timestep_collate,
    ttorch_collate,
)
from ding.utils.data.dataloader import AsyncDataLoader
from ding.utils.data.env_batch import EnvBatch

__all__ = [
    "AsyncDataLoader",
    "EnvBatch",
    "IDataLoader",
    "default_collate",
    "default_decollate",
    "diff_shape_collate",
    "timestep_collate",
    "ttorch_collate",
]
