"""Training pipelines."""

from ding.entry.serial_entry import serial_pipeline
from ding.entry.serial_entry_onpolicy import serial_pipeline_onpolicy
from ding.entry.utils import mark_not_expert, mark_warm_up, random_collect

__all__ = ["mark_not_expert", "mark_warm_up", "random_collect", "serial_pipeline", "serial_pipeline_onpolicy"]
