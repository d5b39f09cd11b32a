"""What the protocols of master and slave have in common."""

from __future__ import annotations

from typing import NamedTuple

from ding.interaction.base.app import ResponsibleException


class ProtocolError(ResponsibleException):
    """A request that breaks the protocol, or comes at a wrong time; the reply has no data."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(code, message, None, status)
        self._data = None


class Codes(NamedTuple):
    """The codes of a server for what both kinds check."""

    shutting_down: int
    channel_missing: int
    channel_wrong: int
    self_token_missing: int
    self_token_wrong: int
