"""A collecting task: it sends samples and infos, and fetches weights."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from ding.interaction.exception import failure_for
from ding.utils.data.nested import plain
from ding.utils.data.samples import Items, concatenate_items, rows_of, table_of
from ding.worker.collector.base_parallel_collector import BaseParallelCollector
from ding.worker.transport.chunk import DATA_ID, encode_chunk
from ding.worker.transport.comm_worker import WorkerQueue, WorkerTask, task_fail
from ding.worker.transport.stores import EVALUATED, PolicyStore, SampleStore

Row = dict[str, Any]

_OF_SAMPLE = frozenset((DATA_ID, "policy_iter"))
_OF_INFO = frozenset(("collector_done", "cur_episode", "cur_sample", "cur_step"))


class CollectorQueue(WorkerQueue):
    """A bounded queue of metadata of samples and infos for the coordinator. This class is thread-safe.

    An info without `collector_done` may be delayed until the next samples. See also `WorkerQueue`.

    Args:
        capacity: limit of the samples and infos in the queue; `put` waits while it is full.
        interval_s: least time between two calls of `take` that return samples, unless the last info has come or half of
            the capacity is used. Longer intervals make fewer messages, with more samples each.

    Example:
        >>> queue = CollectorQueue(capacity=2)
        >>> queue.put([{"data_id": "chunk"}], timeout_s=1), queue.put({"collector_done": True}, timeout_s=1)
        (True, True)
        >>> queue.take(timeout_s=1)
        ([{'data_id': 'chunk'}], [{'collector_done': True}])
    """

    kind = "collector"

    def __init__(self, capacity: int, interval_s: float = 0.0) -> None:
        super().__init__()
        self._capacity, self._interval_s = capacity, interval_s
        self._due_s = float("-inf")  # when samples may be taken again
        self._samples: deque[Items] = deque()
        self._infos: deque[Row] = deque()
        self._count = 0  # number of samples and infos
        self._is_urgent = self._is_last = False

    def put(self, content: Items | Row, timeout_s: float | None) -> bool:
        """Wait for capacity, then add the metadata of samples, or an info; after `close` return False instead.

        Args:
            timeout_s: None for no limit.

        Raises:
            TimeoutError: the coordinator has taken nothing within `timeout_s`.
        """
        with self._changed:
            if self._count >= self._capacity:
                self._is_urgent = True
                self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._is_closed or self._count < self._capacity, timeout_s):
                raise TimeoutError(
                    f"the coordinator has taken nothing for {timeout_s:g} s, and {self._count} samples and infos wait "
                    "for it"
                )
            if self._is_closed:
                return False
            if isinstance(content, dict):
                self._infos.append(content)
                self._count += 1
                self._is_last = self._is_last or bool(content.get("collector_done"))
            else:
                self._samples.append(content)
                self._count += len(content)
            self._is_urgent = self._is_urgent or self._is_last or not isinstance(content, dict)
            self._changed.notify_all()
        return True

    def take(self, timeout_s: float) -> tuple[Items, list[Row]]:
        """Wait for a sample or the last info, then return the metadata of all samples and all infos.

        Both are empty if none came in time. The interval between two calls may add to `timeout_s`.

        Raises:
            TaskFail: the collector has failed, was closed, or has ended and the queue is empty.
        """
        with self._changed:
            self._wait(lambda: self._is_urgent, timeout_s)
            if self._is_urgent:
                half = (self._capacity + 1) // 2
                self._wait(lambda: self._is_last or self._count >= half, self._due_s - monotonic())
                self._due_s = monotonic() + self._interval_s
            samples, infos = concatenate_items(list(self._samples)), list(self._infos)
            self._is_urgent = False
            self._drop_all()
        return samples, infos

    def take_one(self, timeout_s: float) -> Row:
        """Wait for the metadata of a sample, or an info, and return the oldest; samples come before infos.

        Raises:
            TaskFail: as for `take`, or there was none in time.
        """
        with self._changed:
            self._wait(lambda: self._count > 0, timeout_s)
            if not self._count:
                raise task_fail(failure_for(f"the collector has reported nothing for {timeout_s:g} s", "TimeoutError"))
            if self._samples:
                entry, *others = rows_of(self._samples.popleft())
                if others:
                    self._samples.appendleft(others)
            else:
                entry = self._infos.popleft()
            self._count -= 1
            self._changed.notify_all()
        return entry  # type: ignore[no-any-return]

    def _has_reports(self) -> bool:
        return self._count > 0

    def close(self) -> None:
        """End all waits, and drop what is in the queue."""
        with self._changed:
            self._is_closed = True
            self._drop_all()

    def _drop_all(self) -> None:
        self._samples.clear()
        self._infos.clear()
        self._count = 0
        self._changed.notify_all()


class CollectorTask(WorkerTask):
    """A collecting task, which fetches weights, and sends samples and infos, until it is closed.

    So data of an old task, whose collector hangs, cannot reach a new one.

    Args:
        send_timeout_s: how long sending may wait for the coordinator; None for any time.

    Attributes:
        collector: the collector, set before the thread starts.
    """

    collector: BaseParallelCollector

    def __init__(
        self,
        task_info: Mapping[str, Any],
        samples: SampleStore,
        policies: PolicyStore,
        queue: CollectorQueue,
        send_timeout_s: float | None,
    ) -> None:
        super().__init__(task_info)
        self.queue = queue
        self._samples, self._policies = samples, policies
        self._send_timeout_s = send_timeout_s
        # Whether to store a copy of the fetched weights as those under evaluation.
        self._is_evaluation = bool((task_info.get("collector_cfg") or {}).get("eval_flag", False))
        self._known: dict[str, Any] = {}  # tokens of the weights that were fetched last, by path

    def get_policy_update_info(self, path: str) -> dict[str, Any] | None:
        """Return the newest weights, `{'model': ..., 'iter': ...}`, once; None after that, or after `close`.

        Raises:
            FileNotFoundError: there are no weights yet.
            ValueError: `path` is outside the folder of the weights.
        """
        if self.queue.is_closed:
            return None
        version = self._policies.read(path, self._known.get(path))
        if version is None:
            return None
        self._known[path] = version.token
        if self._is_evaluation:
            self._policies.write(EVALUATED, version.state)
        return version.state

    def send_stepdata(self, path: str, stepdata: Any) -> None:
        """Write `stepdata`, an encoded chunk or a single sample, under the name `path`.

        Raises:
            ValueError: `path` is outside the folder of the samples.
            OSError: the data cannot be written.
        """
        if self.queue.is_closed:
            return
        data = stepdata if isinstance(stepdata, bytes) else encode_chunk([stepdata], "none")
        self._samples.write(path, data)

    def send_metadata(self, metadata: Row | Sequence[Row]) -> None:
        """Queue the metadata of the samples of a chunk, or an info, for the coordinator; wait while the queue is full.

        Raises:
            AssertionError: keys are missing: `data_id` and `policy_iter` for a sample; `collector_done`, `cur_episode`,
                `cur_sample` and `cur_step` for an info.
            TimeoutError: they are not taken in time.
        """
        content: Any = plain(metadata) if isinstance(metadata, dict) else metadata
        if isinstance(content, dict) and DATA_ID in content:
            content = [content]
        if isinstance(content, dict):
            entries, needed = [content], _OF_INFO
        else:
            table = table_of(content)
            entries, needed = content if table is None else [table.columns], _OF_SAMPLE
        for entry in entries:
            if not entry.keys() >= needed:
                raise AssertionError(
                    f"metadata needs the keys {sorted(_OF_SAMPLE)} of a sample or {sorted(_OF_INFO)} of an info; "
                    f"it has {sorted(entry)}"
                )
        if len(content):
            self.queue.put(content, self._send_timeout_s)

    def close(self) -> None:
        """End all waits; the coordinator deletes samples of which it was not told, when it ends."""
        self.queue.close()
