"""Logged values with their recent history, on a clock of ticks or seconds."""

from ding.utils.autolog.model import (
    BaseTime,
    LoggedModel,
    LoggedValue,
    NaturalTime,
    RangedData,
    TickTime,
    TimeMode,
    TimeProxy,
    TimeRangedData,
)

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
