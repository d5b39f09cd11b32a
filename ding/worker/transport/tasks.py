"""The tasks a coordinator gives, by name, and their way to the methods that run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ding.interaction.exception import TaskFail

RESOURCE = "resource"
COLLECTOR_START = "collector_start_task"
COLLECTOR_DATA = "collector_data_task"
COLLECTOR_CLOSE = "collector_close_task"
LEARNER_START = "learner_start_task"
LEARNER_GET_DATA = "learner_get_data_task"
LEARNER_LEARN = "learner_learn_task"
LEARNER_CLOSE = "learner_close_task"

Handler = Callable[[dict[str, Any]], Any]


def dispatch(task: dict[str, Any], handlers: Mapping[str, Handler]) -> Any:
    """The result of the handler for the task's name.

    Raises:
        TaskFail: the task has no name, or no handler goes by it.
    """
    handler = handlers.get(task.get("name", ""))
    if handler is None:
        raise TaskFail(result={"message": "task name error"}, message=f"task name {task.get('name')!r} error")
    return handler(task)
