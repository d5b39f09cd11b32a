"""The HTTP end of a worker: tasks become calls of functions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from ding.interaction import Slave
from ding.worker.transport.tasks import RESOURCE, Handler, dispatch


class WorkerSlave(Slave):
    """Answers a coordinator's tasks by calling functions.

    Args:
        callback_fn: `serve`, which is given every task; or one function for each kind of task, as subclasses say.
            `deal_with_lost_coordinator`, if it is there, is called when the coordinator disconnects or is lost.
        args, kwargs: as for `Slave`.
    """

    def __init__(self, *args: Any, callback_fn: Mapping[str, Callable[..., Any]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._callback_fn = callback_fn
        self._current_task_info: dict[str, Any] = {}

    def _process_task(self, task: dict[str, Any]) -> Any:
        """Run a task.

        Raises:
            TaskFail: there is no task of that name, or it failed.
        """
        if "serve" in self._callback_fn:
            return self._callback_fn["serve"](task)
        resource = {RESOURCE: lambda task: self._callback_fn["deal_with_resource"]()}
        return dispatch(task, {**resource, **self._handlers()})

    @abstractmethod
    def _handlers(self) -> dict[str, Handler]:
        """What runs the tasks of each name."""

    def _ids(self, *keys: str) -> dict[str, Any]:
        return {key: self._current_task_info.get(key) for key in keys}

    def _before_disconnection(self, data: Any) -> None:
        self._tell_loss()

    def _lost_connection(self, master_address: str, err: Exception) -> None:
        self._tell_loss()

    def _tell_loss(self) -> None:
        tell = self._callback_fn.get("deal_with_lost_coordinator")
        if tell is not None:
            tell()
