"""Batches: collate functions, the asynchronous dataloader, per-env batches, and data sets of demonstrations."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {
        "collate_fn": "default_collate default_decollate diff_shape_collate timestep_collate ttorch_collate",
        "dataloader": "AsyncDataLoader IDataLoader",
        "dataset": (
            "HDF5Dataset MinariDataset NaiveRLDataset NpzDataset create_dataset hdf5_save naive_save npz_save "
            "offline_data_save_type"
        ),
    },
)
