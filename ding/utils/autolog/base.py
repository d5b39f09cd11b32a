"""What the parts of the automatic log share."""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class TimeMode(IntEnum):
    """How the times of recorded values are told.

    ABSOLUTE: as the clock told them. RELATIVE_LIFECYCLE: since the model was made. RELATIVE_CURRENT_TIME: relative to
    now, so never positive.
    """

    ABSOLUTE = 0
    RELATIVE_LIFECYCLE = 1
    RELATIVE_CURRENT_TIME = 2
