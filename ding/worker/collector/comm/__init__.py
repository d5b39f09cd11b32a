"""Collectors that are driven by a coordinator."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {"base_comm_collector": "BaseCommCollector create_comm_collector"},
    lazy={"flask_fs_collector": "FlaskFileSystemCollector NaiveCollector"},  # which uses HTTP
)
