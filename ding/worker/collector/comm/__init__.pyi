# Written by docs/generate.py: the exports of the table in __init__.py, for type checkers and editors.

from ding.worker.collector.comm.base_comm_collector import BaseCommCollector as BaseCommCollector
from ding.worker.collector.comm.base_comm_collector import create_comm_collector as create_comm_collector
from ding.worker.collector.comm.flask_fs_collector import FlaskFileSystemCollector as FlaskFileSystemCollector
from ding.worker.collector.comm.flask_fs_collector import NaiveCollector as NaiveCollector
