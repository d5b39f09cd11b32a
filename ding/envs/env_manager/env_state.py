"""The states an env of a manager goes through."""

from __future__ import annotations

from enum import IntEnum, unique


@unique
class EnvState(IntEnum):
    """State of one env of a manager.

    VOID -launch-> INIT -reset-> RESET -> RUN; an episode that ends leads back to RESET (auto reset), to NEED_RESET
    (without it) or to DONE (no episodes left); what fails leads to ERROR, `close` to VOID.
    """

    VOID = 0
    INIT = 1
    RUN = 2
    RESET = 3
    DONE = 4
    ERROR = 5
    NEED_RESET = 6
