"""Collectors that are driven by a coordinator."""

from ding.worker.collector.comm.base_comm_collector import BaseCommCollector, create_comm_collector
from ding.worker.collector.comm.flask_fs_collector import FlaskFileSystemCollector
from ding.worker.collector.comm.local_collector import LocalCollector
from ding.worker.collector.comm.utils import NaiveCollector

__all__ = ["BaseCommCollector", "FlaskFileSystemCollector", "LocalCollector", "NaiveCollector", "create_comm_collector"]
