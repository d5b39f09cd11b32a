"""Collectors that are driven by a coordinator."""

from typing import TYPE_CHECKING

from ding.utils.import_helper import lazy_names
from ding.worker.collector.comm.base_comm_collector import BaseCommCollector, create_comm_collector

if TYPE_CHECKING:
    from ding.worker.collector.comm.flask_fs_collector import FlaskFileSystemCollector, NaiveCollector

__all__ = ["BaseCommCollector", "FlaskFileSystemCollector", "NaiveCollector", "create_comm_collector"]

# The classes that use HTTP are imported on first access.
__getattr__ = lazy_names(
    __name__,
    {
        "FlaskFileSystemCollector": "ding.worker.collector.comm.flask_fs_collector",
        "NaiveCollector": "ding.worker.collector.comm.flask_fs_collector",
    },
)
