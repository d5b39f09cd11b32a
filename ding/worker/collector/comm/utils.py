"""A stand-in for a collector, for trials of a coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ding.interaction import Slave
from ding.utils.file_helper import atomic_write
from ding.worker.transport.chunk import encode_chunk
from ding.worker.transport.tasks import (
    COLLECTOR_CLOSE,
    COLLECTOR_DATA,
    COLLECTOR_START,
    RESOURCE,
    dispatch,
)

_SAMPLES = 20  # until it is done


class NaiveCollector(Slave):
    """Sends 19 samples of random numbers, without any env, and reports that it is done.

    The n-th sample of a task, from 1, is the file `./<prefix>_<task id>_<n>`, an uncompressed chunk of one sample. A
    20th file is written, but its metadata is not sent.

    Args:
        prefix: of the files.
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
                RESOURCE: lambda task: {"cpu": "20", "gpu": "1"},
                COLLECTOR_START: self._start_task,
                COLLECTOR_DATA: lambda task: self._data(),
                COLLECTOR_CLOSE: lambda task: self._close(),
            },
        )

    def _start_task(self, task: dict[str, Any]) -> dict[str, Any]:
        self._task_info = task["task_info"]
        self._count = 0
        return {"message": "collector task has started"}

    def _data(self) -> dict[str, Any]:
        self._count += 1
        task_id = self._task_info["task_id"]
        path = f"./{self._prefix}_{task_id}_{self._count}"
        with atomic_write(path) as file:
            file.write(encode_chunk(self._get_timestep(), "none"))
        if self._count < _SAMPLES:
            of_sample = {"data_id": path, "buffer_id": self._task_info["buffer_id"], "unroll_split_begin": 0}
            return {**of_sample, "task_id": task_id}
        return {"task_id": task_id, "collector_done": True, **self._progress()}

    def _progress(self) -> dict[str, Any]:
        return {"cur_episode": 1, "cur_step": 314, "cur_sample": 314}

    def _close(self) -> dict[str, Any]:
        averages = {f"avg_{what}_per_{of}": 1.0 for what in ("time", "step") for of in ("episode", "step")}
        counts = {"train_iter": 0, "real_episode_count": 1, "step_count": 314, "sample_count": self._count}
        rewards = {"reward_mean": 0.0, "reward_std": 0.0, "reward_raw": [0.0]}
        return {"task_id": self._task_info.get("task_id"), "eval_flag": False, **counts, **averages, **rewards}

    def _get_timestep(self) -> list[dict[str, Any]]:
        """The steps of a sample; a subclass may return others."""
        sizes = {"obs": 4, "next_obs": 4, "reward": 3, "action": 1, "done": 1}
        return [{key: torch.rand(size) for key, size in sizes.items()}]
