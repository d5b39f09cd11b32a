"""Logged values with their recent history, on a clock of ticks or seconds."""

from ding.utils.autolog.data import RangedData, TimeRangedData
from ding.utils.autolog.model import LoggedModel, TimeMode
from ding.utils.autolog.time_ctl import BaseTime, NaturalTime, TickTime, TimeProxy
from ding.utils.autolog.value import LoggedValue

__all__ = [
    "BaseTime",
    "LoggedModel",
    "LoggedValue",
    "NaturalTime",
    "RangedData",
    "TickTime",
    "TimeMode",
    "TimeProxy",
    "TimeRangedData",
]
