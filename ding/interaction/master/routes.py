"""The routes of a master."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ding.interaction.base.app import Codes, ProtocolError
from ding.interaction.exception.master import MasterErrorCode
from ding.interaction.master.session import SlaveSession
from ding.interaction.master.task import TaskResultType
from ding.interaction.server.app import Route, Routes, check_channel, field, header_token, read_body, uuid_field
from ding.interaction.server.messages import Request

if TYPE_CHECKING:
    from ding.interaction.master.service import MasterService

_BAD_BODY = MasterErrorCode.TASK_DATA_INVALID
MASTER_CODES = Codes(
    shutting_down=MasterErrorCode.SYSTEM_SHUTTING_DOWN,
    channel_missing=MasterErrorCode.CHANNEL_NOT_GIVEN,
    channel_wrong=MasterErrorCode.CHANNEL_INVALID,
    self_token_missing=MasterErrorCode.SELF_TOKEN_NOT_GIVEN,
    self_token_wrong=MasterErrorCode.SELF_TOKEN_INVALID,
)


def master_routes(master: MasterService) -> Routes:
    """What `master` serves to its slaves."""

    def session(request: Request) -> SlaveSession:
        check_channel(request, master.channel, MASTER_CODES)
        found = master.table.matches(header_token(request, MasterErrorCode.SLAVE_TOKEN_NOT_GIVEN))
        if found is None:
            raise ProtocolError(403, MasterErrorCode.SLAVE_TOKEN_INVALID, "The token is not that of a connected slave.")
        return found

    def heartbeat(current: SlaveSession, request: Request, body: bytes) -> None:
        master.table.seen(current)

    def finish(kind: TaskResultType, current: SlaveSession, request: Request, body: bytes) -> None:
        told = read_body(body, _BAD_BODY)
        task_id = uuid_field(told, "task.id", _BAD_BODY)
        master.finish(current, task_id, kind, field(told, "result", object, _BAD_BODY))

    return {
        "/slave/heartbeat": {"GET": Route(session, heartbeat, is_quick=True)},
        "/slave/task/complete": {"PUT": Route(session, partial(finish, TaskResultType.COMPLETED), is_quick=True)},
        "/slave/task/fail": {"PUT": Route(session, partial(finish, TaskResultType.FAILED), is_quick=True)},
    }
