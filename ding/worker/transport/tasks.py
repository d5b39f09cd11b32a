"""The names of the tasks that a coordinator sends, and their dispatch to methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ding.interaction.exception import TaskFail

_PLAIN = frozenset((str, int, float, bool, type(None)))


def plain(value: Any) -> Any:
    """Return `value` with plain numbers, lists and dicts instead of arrays, tensors, tuples and other mappings."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if _PLAIN.issuperset(map(type, value)):
            return list(value)
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


# The key of a task under which it names the shards of the replay buffer with its samples.
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
    """Return an exception that sends `result`, which has a `message`, to the coordinator."""
    return TaskFail(result=result, message=result["message"])


def dispatch(task: dict[str, Any], handlers: Mapping[str, Handler]) -> Any:
    """Call the handler for the name of the task, and return its result.

    Raises:
        TaskFail: the task has no name, or there is no handler for it.
    """
    handler = handlers.get(task.get("name", ""))
    if handler is None:
        raise TaskFail(result={"message": "task name error"}, message=f"task name {task.get('name')!r} error")
    return handler(task)
