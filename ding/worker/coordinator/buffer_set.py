"""The replay buffers of a coordinator, and which chunks of samples they still need."""

from __future__ import annotations

import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from easydict import EasyDict

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.utils.data.samples import Kind, columns_of, replaced, table_of
from ding.worker.coordinator.limiter import SampleLimiter
from ding.worker.replay_buffer.base_buffer import create_training_buffer
from ding.worker.transport.chunk import DATA_ID, chunks_of
from ding.worker.transport.stores import SampleStore

# The beginning of the names of chunks.
_CHUNK_PREFIX = "env_"


@dataclass(frozen=True, slots=True)
class BufferFill:
    """The level of a buffer.

    Attributes:
        capacity: 0 if it is unknown.
        fraction: share of the capacity that is used, in [0, 1].
        samples_per_insert: limit of drawn samples per inserted one; None for no limit.
        drawn_per_insert: drawn samples per inserted one so far.
    """

    buffer_id: str
    size: int
    capacity: int
    fraction: float
    samples_per_insert: float | None
    drawn_per_insert: float


class BufferSet:
    """Replay buffers by id, filled with the metadata of samples. This class is thread-safe.

    A chunk of samples is deleted when no stored sample and no batch on its way to a learner needs it. The content of
    the buffers can be saved, and restored in another set (`freeze`, `restore`).

    Args:
        exp_name: folder of the experiment, for the logs of the buffers.
        store: the store of the chunks; None leaves them alone.
        logger: a text logger.

    Attributes:
        buffers: the open buffers.
        create_limiter: returns the limiter of a new buffer; it may be set.
        is_deleting: whether chunks are deleted; otherwise they are left for another coordinator.
    """

    def __init__(self, exp_name: str, store: SampleStore | None, logger: Any) -> None:
        self.buffers: dict[str, Any] = {}
        self.create_limiter: Callable[[], SampleLimiter] = partial(SampleLimiter, None, 1)
        self._limiters: dict[str, SampleLimiter] = {}  # by buffer; they change under `_lock`
        self._exp_name, self._logger = exp_name, logger
        self._store = store
        self.is_deleting = True
        self._cfgs: dict[str, Mapping[str, Any]] = {}  # the configs by buffer
        self._uses: dict[str, int] = {}  # how often the samples of each chunk are in a buffer or a batch
        self._missed: dict[str, int] = {}  # `_pushes` when there was no batch, by task
        self._batches: dict[str, deque[list[str]]] = defaultdict(deque)  # chunks on their way, by task
        self._opening = threading.Lock()
        # A batch must be counted before another push, or its own draw, drops the samples in it. So the chunks
        # that buffers drop are collected while the lock is held, and released afterwards.
        self._lock = threading.Lock()
        self._dropped: list[str] = []  # chunks
        self._changed = threading.Condition(self._lock)
        self._pushes = 0
        self._is_awake = False
        self._has_warned = False

    def open(self, buffer_id: str, cfg: Mapping[str, Any]) -> Any:
        """Return the buffer; create it unless it exists.

        Raises:
            ConfigError: the buffer lacks what parallel training needs.
        """
        with self._opening:  # not the lock of the other methods, as a buffer may take seconds to start
            buffer = self.buffers.get(buffer_id)
            if buffer is None:
                limiter = self._limiters[buffer_id] = self.create_limiter()
                self._logger.info(
                    "the buffer %s: %s samples are drawn for each inserted one, within %d samples",
                    buffer_id,
                    "any number of" if limiter.ratio is None else limiter.ratio,
                    limiter.tolerance,
                )
                buffer = create_training_buffer(EasyDict(cfg), exp_name=self._exp_name)
                buffer.on_dropped = self._note_dropped
                self.buffers[buffer_id] = buffer
                self._cfgs[buffer_id] = cfg
        if self._is_awake:  # the set was closed meanwhile
            self.close_buffer(buffer_id)
        return buffer

    def _note_dropped(self, samples: list[Any]) -> None:
        self._dropped += chunks_of(samples)

    def _use(self, samples: Sequence[Any]) -> list[str]:
        """Count a use of the chunk of each of these samples, under the lock; return the chunks, for `_release`."""
        names = chunks_of(samples)
        for name in names:
            self._uses[name] = self._uses.get(name, 0) + 1
        return names

    def _release(self, names: Sequence[str] = ()) -> None:
        """Release a use for each occurrence of a chunk in `names`, and those that the buffers have dropped.

        A chunk without a use is deleted. Call it without holding the lock.
        """
        unused = []
        with self._lock:
            released, self._dropped = [*self._dropped, *names], []
            for name in released:
                left = self._uses.get(name, 0) - 1
                if left > 0:
                    self._uses[name] = left
                elif left == 0:
                    del self._uses[name]
                    unused.append(name)
        if unused:
            self._delete(unused)

    def push(self, buffer_id: str, samples: list[Any]) -> int | None:
        """Push the metadata of samples; columns are not inspected item by item.

        Returns:
            The number of samples that the buffer has accepted: all, or 0 if it limits the rate; None if the buffer is
            unknown.
        """
        _add_collect_iter(samples)
        chunks, is_accepted = [], False
        try:
            with self._lock:
                chunks, buffer = self._use(samples), self.buffers.get(buffer_id)
                is_accepted = buffer is not None and buffer.push(samples, -1) != 0  # users' buffers may return None
                if is_accepted:
                    self._limiters[buffer_id].insert(len(samples))
                self._pushes += 1
                self._changed.notify_all()
        finally:
            self._release(() if is_accepted else chunks)
        if buffer is None:
            return None
        return len(samples) if is_accepted else 0

    def sample(self, task_id: str, buffer_id: str, batch_size: int, cur_learner_iter: int) -> list[Any] | None:
        """Draw a batch, whose chunks are kept until `trained` reports it as used.

        Returns:
            The batch; None if the buffer has none, or the limiter does not allow one yet.
        """
        with self._lock:
            buffer, limiter = self.buffers.get(buffer_id), self._limiters.get(buffer_id)
            batch = None
            if buffer is not None and limiter is not None and limiter.may_draw:
                if not isinstance(buffer, DequeBufferWrapper) or buffer.count() >= batch_size:  # it would log a warning
                    batch = buffer.sample(batch_size, cur_learner_iter)
                limiter.draw(0 if batch is None else len(batch))
                if limiter.may_ask:
                    self._changed.notify_all()
            if batch is None:
                self._missed[task_id] = self._pushes
            else:
                self._batches[task_id].append(self._use(batch))
        self._release()
        return batch

    def ask(self, buffer_id: str, task_id: str, timeout_s: float) -> bool:
        """Wait until the limiter lets a collecting task be asked for a chunk, and count it as asked until `answered`.

        Returns:
            False if the task must not be asked after `timeout_s`.
        """
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._is_awake or (limiter := self._limiters.get(buffer_id)) is None or limiter.may_ask,
                timeout_s,
            ):
                return False
            if buffer_id in self._limiters:
                self._limiters[buffer_id].asked.add(task_id)
            return True

    def answered(self, buffer_id: str, task_id: str) -> None:
        """Note that a task has answered, or is lost; what it has sent is pushed."""
        with self._changed:
            limiter = self._limiters.get(buffer_id)
            if limiter is not None:
                limiter.asked.discard(task_id)
                if limiter.may_ask:
                    self._changed.notify_all()

    def is_limited(self, buffer_id: str) -> bool:
        """Return whether the buffer is open, and collectors and learner wait for each other."""
        limiter = self._limiters.get(buffer_id)
        return limiter is not None and limiter.ratio is not None

    def levels(self) -> list[BufferFill]:
        """Return the level of each open buffer."""
        with self._lock:
            opened = [(name, buffer, self._limiters[name]) for name, buffer in self.buffers.items()]
        return [
            BufferFill(
                name,
                size := int(buffer.count()),
                capacity := int(getattr(buffer, "replay_buffer_size", 0)),
                size / capacity if capacity else 0.0,
                limiter.ratio,
                limiter.drawn / limiter.inserted if limiter.inserted else 0.0,
            )
            for name, buffer, limiter in opened
        ]

    def batches_under_way(self) -> int:
        """Return the number of batches that learners have not read yet."""
        with self._lock:
            return sum(len(batches) for batches in self._batches.values())

    def wait_for_push(self, task_id: str, timeout_s: float) -> None:
        """Wait until samples were pushed since `sample` had no batch for this task, at most `timeout_s` seconds."""
        with self._changed:
            missed = self._missed.get(task_id, self._pushes)
            self._changed.wait_for(lambda: self._is_awake or self._pushes != missed, timeout_s)

    def wake(self) -> None:
        """End all waits, including later ones."""
        with self._changed:
            self._is_awake = True
            self._changed.notify_all()

    def trained(self, task_id: str, count: int) -> None:
        """Release the oldest `count` batches of this task, which the learner has read."""
        with self._lock:
            batches = self._batches.get(task_id, deque())
            chunks = [chunk for _ in range(min(count, len(batches))) for chunk in batches.popleft()]
        self._release(chunks)

    def forget_task(self, task_id: str) -> None:
        """Release all batches of this task."""
        with self._lock:
            chunks = [chunk for batch in self._batches.pop(task_id, ()) for chunk in batch]
            self._missed.pop(task_id, None)
        self._release(chunks)

    def update(self, buffer_id: str, priority_info: Mapping[str, Any]) -> bool:
        """Set priorities; return False if the buffer is unknown."""
        buffer = self.buffers.get(buffer_id)
        if buffer is None:
            return False
        if priority_info:
            buffer.update(dict(priority_info))
        return True

    def close_buffer(self, buffer_id: str) -> None:
        """Close and remove a buffer."""
        with self._lock:
            buffer = self.buffers.pop(buffer_id, None)
            self._limiters.pop(buffer_id, None)
            if buffer is not None:
                buffer.close()
            self._changed.notify_all()
        self._release()

    def close(self) -> None:
        """Close all buffers and delete all chunks. Further calls do nothing."""
        self.wake()
        for buffer_id in list(self.buffers):
            self.close_buffer(buffer_id)
        with self._lock:
            names = list(self._uses)
            self._uses.clear()
        if names:
            self._delete(names)

    # Buffers that outlive their coordinator.

    def freeze(self, buffer_id: str, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of `restore` for a buffer, besides its id, in plain values.

        The content is None if the buffer is not open, or has no `freeze` and `discard`. Functions in the config are
        left out.

        Args:
            cfg: the config of a buffer that is not open yet.
        """
        buffer, content = self.buffers.get(buffer_id), None
        if buffer is not None and hasattr(buffer, "freeze") and hasattr(buffer, "discard"):
            content = buffer.freeze()
        limiter = self._limiters.get(buffer_id)
        counts = None if content is None or limiter is None else limiter.state_dict()
        return {"cfg": _without_functions(self._cfgs.get(buffer_id, cfg)), "content": content, "counts": counts}

    def restore(
        self,
        buffer_id: str,
        cfg: Mapping[str, Any],
        content: dict[str, Any] | None,
        counts: Mapping[str, Any] | None = None,
    ) -> tuple[int, int]:
        """Open a buffer with saved content, except samples whose chunks no longer exist.

        If there are none left, the limiter begins anew, too.

        Returns:
            The number of samples that it holds, and the number that were dropped.

        Raises:
            ConfigError: see `open`.
        """
        buffer, held = self.open(buffer_id, cfg), []
        if content is None:
            return 0, 0
        existing = None if self._store is None else self._store.names()

        def is_unwanted(sample: Any) -> bool:
            held.append(sample)
            return existing is not None and isinstance(sample, Mapping) and _chunk_of(sample) not in existing

        with self._lock:
            buffer.load_state_dict(content)
            dropped: int = buffer.discard(is_unwanted)
            self._use(held)
            if counts is not None and dropped < len(held):
                self._limiters[buffer_id].load_state_dict(counts)
        self._release()
        return int(buffer.count()), dropped

    def delete_unneeded(self) -> int:
        """Delete unneeded chunks in the folder of the experiment, and return their number.

        They were written after the buffers were saved, or not reported by collectors that were lost. A folder elsewhere
        may have chunks of other runs.
        """
        folder = os.path.abspath(self._exp_name) + os.sep
        if self._store is None or not os.path.abspath(self._store.root).startswith(folder):
            return 0
        names = [n for n in self._store.names() if n.startswith(_CHUNK_PREFIX) and n not in self._uses]
        if names:
            self._delete(names)
        return len(names)

    def _delete(self, names: list[str]) -> None:
        if self._store is None or not self.is_deleting:
            return
        try:
            self._store.delete(*names)
        except (OSError, ValueError) as e:
            if not self._has_warned:  # the others are likely to fail for the same reason
                self._logger.warning("the samples %r, and others perhaps, are left where they are: %s", names[0], e)
            self._has_warned = True


def _add_collect_iter(samples: list[Any]) -> None:
    """Add `collect_iter`, from which the buffer knows the age; workers of others send only `policy_iter`."""
    table = table_of(samples)
    if table is not None:
        policy_iter = table.columns.get("policy_iter")
        if "collect_iter" in table.columns or policy_iter is None:
            return
        if not any(column.kind is Kind.OBJECT for column in columns_of(policy_iter)):  # otherwise some may be None
            replaced(samples, table.with_columns(collect_iter=policy_iter))
            return
    for sample in samples:
        if "collect_iter" not in sample and sample.get("policy_iter") is not None:
            sample["collect_iter"] = sample["policy_iter"]


def _chunk_of(sample: Mapping[str, Any]) -> str | None:
    """Return the plain name of the chunk that holds a sample."""
    return os.path.basename(sample[DATA_ID]) if DATA_ID in sample else None


def _without_functions(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without functions, which no file can hold."""
    return {
        key: _without_functions(value) if isinstance(value, Mapping) else value
        for key, value in cfg.items()
        if not callable(value)
    }
