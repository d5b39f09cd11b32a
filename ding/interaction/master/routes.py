"""The views of a master."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flask

from ding.interaction.base.app import Codes, ProtocolError, success_response
from ding.interaction.exception.master import MasterErrorCode
from ding.interaction.master.session import SlaveSession
from ding.interaction.master.task import TaskResultType
from ding.interaction.server.app import (
    check_channel,
    field,
    header_token,
    make_app,
    read_body,
    uuid_field,
)

if TYPE_CHECKING:
    from ding.interaction.master.service import MasterService

_BAD_BODY = MasterErrorCode.TASK_DATA_INVALID
_CODES = Codes(
    shutting_down=MasterErrorCode.SYSTEM_SHUTTING_DOWN,
    channel_missing=MasterErrorCode.CHANNEL_NOT_GIVEN,
    channel_wrong=MasterErrorCode.CHANNEL_INVALID,
    self_token_missing=MasterErrorCode.SELF_TOKEN_NOT_GIVEN,
    self_token_wrong=MasterErrorCode.SELF_TOKEN_INVALID,
)


def master_app(master: MasterService) -> flask.Flask:
    """The app of `master`."""
    app = make_app(master, _CODES)

    def session() -> SlaveSession:
        check_channel(master.channel, _CODES)
        found = master.table.matches(header_token(MasterErrorCode.SLAVE_TOKEN_NOT_GIVEN))
        if found is None:
            raise ProtocolError(403, MasterErrorCode.SLAVE_TOKEN_INVALID, "The token is not that of a connected slave.")
        return found

    def finish(kind: TaskResultType) -> Any:
        current = session()
        body = read_body(_BAD_BODY)
        task_id = uuid_field(body, "task.id", _BAD_BODY)
        master.finish(current, task_id, kind, field(body, "result", object, _BAD_BODY))
        return success_response()

    @app.get("/slave/heartbeat")
    def heartbeat() -> Any:
        master.table.seen(session())
        return success_response()

    @app.put("/slave/task/complete")
    def complete() -> Any:
        return finish(TaskResultType.COMPLETED)

    @app.put("/slave/task/fail")
    def fail() -> Any:
        return finish(TaskResultType.FAILED)

    return app
