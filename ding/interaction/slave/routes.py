"""The views of a slave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flask

from ding.interaction.base.app import Codes, ProtocolError, success_response
from ding.interaction.exception.slave import SlaveErrorCode
from ding.interaction.server.app import (
    check_channel,
    field,
    header_token,
    make_app,
    read_body,
    request_id,
    uuid_field,
)
from ding.interaction.slave.session import MasterSession

if TYPE_CHECKING:
    from ding.interaction.slave.service import SlaveService

_BAD_BODY = 1
_CODES = Codes(
    shutting_down=SlaveErrorCode.SYSTEM_SHUTTING_DOWN,
    channel_missing=SlaveErrorCode.CHANNEL_NOT_FOUND,
    channel_wrong=SlaveErrorCode.CHANNEL_INVALID,
    self_token_missing=SlaveErrorCode.SELF_TOKEN_NOT_FOUND,
    self_token_wrong=SlaveErrorCode.SELF_TOKEN_INVALID,
)


def slave_app(slave: SlaveService) -> flask.Flask:
    """The app of `slave`."""
    app = make_app(slave, _CODES)

    def token() -> str:
        check_channel(slave.channel, _CODES)
        return header_token(SlaveErrorCode.MASTER_TOKEN_NOT_FOUND)

    def session() -> MasterSession:
        found = slave.link.matches(token())
        if found is None:
            raise ProtocolError(403, SlaveErrorCode.MASTER_TOKEN_INVALID, "The token is not that of the master.")
        return found

    @app.post("/connect")
    def connect() -> Any:
        given = token()
        body = read_body(_BAD_BODY)
        address = field(body, "master.address", str, _BAD_BODY)
        data = field(body, "data", object, _BAD_BODY)
        slave.connect(given, request_id(), address, data, flask.request.remote_addr or "")
        return success_response()

    @app.delete("/disconnect")
    def disconnect() -> Any:
        if slave.has_disconnected(token(), request_id()):
            return success_response()
        current = session()
        data = field(read_body(_BAD_BODY), "data", object, _BAD_BODY)
        slave.disconnect(current, request_id(), data)
        return success_response()

    @app.post("/task/new")
    def new_task() -> Any:
        current = session()
        body = read_body(_BAD_BODY)
        task_id = uuid_field(body, "task.id", _BAD_BODY)
        data = field(body, "data", object, _BAD_BODY)
        slave.accept(current, task_id, data)
        return success_response()

    return app
