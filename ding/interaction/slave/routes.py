"""The routes of a slave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ding.interaction.base.app import Codes, ProtocolError
from ding.interaction.exception.slave import SlaveErrorCode
from ding.interaction.server.app import (
    SMALL_BODY,
    Route,
    Routes,
    check_channel,
    field,
    header_token,
    read_body,
    request_id,
    uuid_field,
)
from ding.interaction.server.messages import Request
from ding.interaction.slave.session import MasterSession

if TYPE_CHECKING:
    from ding.interaction.slave.service import SlaveService

_BAD_BODY = 1
SLAVE_CODES = Codes(
    shutting_down=SlaveErrorCode.SYSTEM_SHUTTING_DOWN,
    channel_missing=SlaveErrorCode.CHANNEL_NOT_FOUND,
    channel_wrong=SlaveErrorCode.CHANNEL_INVALID,
    self_token_missing=SlaveErrorCode.SELF_TOKEN_NOT_FOUND,
    self_token_wrong=SlaveErrorCode.SELF_TOKEN_INVALID,
)


def slave_routes(slave: SlaveService) -> Routes:
    """What `slave` serves to its master."""

    def token(request: Request) -> str:
        check_channel(request, slave.channel, SLAVE_CODES)
        return header_token(request, SlaveErrorCode.MASTER_TOKEN_NOT_FOUND)

    def session(request: Request) -> MasterSession:
        found = slave.link.matches(token(request))
        if found is None:
            raise ProtocolError(403, SlaveErrorCode.MASTER_TOKEN_INVALID, "The token is not that of the master.")
        return found

    def session_to_end(request: Request) -> MasterSession | None:
        """None where this request has come before."""
        return None if slave.has_disconnected(token(request), request_id(request)) else session(request)

    def connect(given: str, request: Request, body: bytes) -> None:
        told = read_body(body, _BAD_BODY)
        address = field(told, "master.address", str, _BAD_BODY)
        data = field(told, "data", object, _BAD_BODY)
        slave.connect(given, request_id(request), address, data, request.peer)

    def disconnect(current: MasterSession | None, request: Request, body: bytes) -> None:
        if current is not None:
            data = field(read_body(body, _BAD_BODY), "data", object, _BAD_BODY)
            slave.disconnect(current, request_id(request), data)

    def new_task(current: MasterSession, request: Request, body: bytes) -> None:
        told = read_body(body, _BAD_BODY)
        task_id = uuid_field(told, "task.id", _BAD_BODY)
        slave.accept(current, task_id, field(told, "data", object, _BAD_BODY))

    return {
        "/connect": {"POST": Route(token, connect, body_limit=SMALL_BODY)},
        "/disconnect": {"DELETE": Route(session_to_end, disconnect)},
        "/task/new": {"POST": Route(session, new_task)},
    }
