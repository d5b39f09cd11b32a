"""The tasks a coordinator gives, by name, and their way to the methods that run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ding.interaction.exception import TaskFail

_PLAIN = frozenset((str, int, float, bool, type(None)))


def plain(value: Any) -> Any:
    """`value` with Python's own numbers, lists and dicts in place of arrays, tensors, tuples and other mappings."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if _PLAIN.issuperset(map(type, value)):
            return list(value)
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


# The key of a task where it says in which shards of a replay buffer samples lie.
REPLAY = "replay"
RESOURCE = "resource"
COLLECTOR_START = "collector_start_task"
COLLECTOR_DATA = "collector_data_task"
COLLECTOR_CLOSE = "collector_close_task"
LEARNER_START = "learner_start_task"
LEARNER_GET_DATA = "learner_get_data_task"
LEARNER_LEARN = "learner_learn_task"
LEARNER_CLOSE = "learner_close_task"

Handler = Callable[[dict[str, Any]], Any]


def task_fail(result: Mapping[str, Any]) -> TaskFail:
    """The exception that gives `result`, which has a `message`, to the coordinator."""
    return TaskFail(result=result, message=result["message"])


def dispatch(task: dict[str, Any], handlers: Mapping[str, Handler]) -> Any:
    """The result of the handler for the task's name.

    Raises:
        TaskFail: the task has no name, or no handler goes by it.
    """
    handler = handlers.get(task.get("name", ""))
    if handler is None:
        raise TaskFail(result={"message": "task name error"}, message=f"task name {task.get('name')!r} error")
    return handler(task)
