"""A stand-in for a learner, for trials of a coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding.interaction import Slave
from ding.utils.file_helper import atomic_write
from ding.worker.transport.tasks import (
    LEARNER_CLOSE,
    LEARNER_GET_DATA,
    LEARNER_LEARN,
    LEARNER_START,
    RESOURCE,
    dispatch,
    task_fail,
)

_BATCHES = 6  # until it is done


class NaiveLearner(Slave):
    """Takes six batches of two samples, without training, and reports that it is done.

    With the last batch it creates the file `<prefix>_final_model.pth`.

    Args:
        prefix: of the path of the file.
        args, kwargs: as for `Slave`.
    """

    def __init__(self, *args: Any, prefix: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._prefix = prefix
        self._task_info: Mapping[str, Any] = {}
        self._count = 0

    def _process_task(self, task: dict[str, Any]) -> Any:
        return dispatch(
            task,
            {
                RESOURCE: lambda task: {"gpu": "1", "cpu": "20"},
                LEARNER_START: self._start_task,
                LEARNER_GET_DATA: lambda task: {**self._ids(), "batch_size": 2, "cur_learner_iter": 1},
                LEARNER_LEARN: self._learn_task,
                LEARNER_CLOSE: lambda task: self._ids(),
            },
        )

    def _ids(self) -> dict[str, Any]:
        return {key: self._task_info.get(key) for key in ("task_id", "buffer_id")}

    def _start_task(self, task: dict[str, Any]) -> dict[str, Any]:
        self._task_info = task["task_info"]
        self._count = 0
        return {"message": "learner task has started"}

    def _learn_task(self, task: dict[str, Any]) -> dict[str, Any]:
        data = task.get("data")
        if data is None:
            raise task_fail({"message": "no data"})
        if any("data_id" not in row for row in data):
            raise task_fail({"message": "a sample has no data_id"})
        self._count += 1
        keys = ("replay_unique_id", "replay_buffer_idx")
        priority_info = {**{key: [row[key] for row in data] for key in keys}, "priority": [1.0] * len(data)}
        info: dict[str, Any] = {"learner_step": self._count, "priority_info": priority_info}
        if self._count >= _BATCHES:
            info["learner_done"] = True
            with atomic_write(f"{self._prefix}_final_model.pth"):
                pass  # nothing was learnt
        return {"info": info, **self._ids()}
