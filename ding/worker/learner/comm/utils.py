"""A stand-in for a learner, for trials of a coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ding.utils.file_helper import atomic_write
from ding.worker.learner.comm.flask_fs_learner import LearnerSlave
from ding.worker.transport.tasks import task_fail

_BATCHES = 6  # until it is done


class NaiveLearner(LearnerSlave):
    """Takes six batches of two samples, without training, and reports that it is done.

    With the last batch it creates the file `<prefix>_final_model.pth`.

    Args:
        prefix: of the path of the file.
        args, kwargs: as for `Slave`.
    """

    def __init__(self, *args: Any, prefix: str = "", **kwargs: Any) -> None:
        callback_fn: dict[str, Callable[..., Any]] = {
            "deal_with_resource": lambda: {"gpu": "1", "cpu": "20"},
            "deal_with_learner_start": self._begin,
            "deal_with_get_data": lambda: {"batch_size": 2, "cur_learner_iter": 1},
            "deal_with_learner_learn": self._learn,
            "deal_with_learner_close": lambda: None,
        }
        super().__init__(*args, callback_fn=callback_fn, **kwargs)
        self._prefix = prefix
        self._count = 0

    def _begin(self, task_info: dict[str, Any]) -> None:
        self._count = 0

    def _learn(self, data: list[dict[str, Any]] | None) -> dict[str, Any]:
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
        return info
