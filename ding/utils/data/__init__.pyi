# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.utils.data.collate_fn import default_collate as default_collate
from ding.utils.data.collate_fn import default_decollate as default_decollate
from ding.utils.data.collate_fn import diff_shape_collate as diff_shape_collate
from ding.utils.data.collate_fn import timestep_collate as timestep_collate
from ding.utils.data.collate_fn import ttorch_collate as ttorch_collate
from ding.utils.data.dataloader import AsyncDataLoader as AsyncDataLoader
from ding.utils.data.dataloader import IDataLoader as IDataLoader
from ding.utils.data.dataset import HDF5Dataset as HDF5Dataset
from ding.utils.data.dataset import MinariDataset as MinariDataset
from ding.utils.data.dataset import NaiveRLDataset as NaiveRLDataset
from ding.utils.data.dataset import NpzDataset as NpzDataset
from ding.utils.data.dataset import create_dataset as create_dataset
from ding.utils.data.dataset import hdf5_save as hdf5_save
from ding.utils.data.dataset import naive_save as naive_save
from ding.utils.data.dataset import npz_save as npz_save
from ding.utils.data.dataset import offline_data_save_type as offline_data_save_type
