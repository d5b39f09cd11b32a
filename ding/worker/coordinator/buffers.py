"""The replay buffers of a coordinator, and which chunks of samples are still needed for them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from easydict import EasyDict

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.utils.config_helper import ConfigError
from ding.utils.data.samples import Kind, Samples, columns_of
from ding.worker.replay_buffer.base_buffer import create_buffer
from ding.worker.transport.ledger import DATA_ID, ChunkLedger, chunks_of
from ding.worker.transport.stores import SampleStore

Rows = list[dict[str, Any]]


class BufferRoom:
    """Buffers by id, filled with the metadata of samples. Thread-safe.

    A chunk of samples is deleted when no stored sample and no batch on its way to a learner needs it.

    Args:
        exp_name: folder of the experiment, for the logs of the buffers.
        store: where the chunks lie; None to leave them alone.
        logger: a text logger.

    Attributes:
        buffers: the open buffers.
        is_deleting: whether chunks are deleted; else they are left for another coordinator.
    """

    def __init__(self, exp_name: str, store: SampleStore | None, logger: Any) -> None:
        self.buffers: dict[str, Any] = {}
        self._exp_name, self._logger = exp_name, logger
        self._store = store
        self.is_deleting = True
        self._cfgs: dict[str, EasyDict] = {}  # by buffer
        self._ledger = ChunkLedger(self._delete)
        self._batches: dict[str, deque[list[str]]] = defaultdict(deque)  # by task: chunks on their way
        # A batch must be in the ledger before another push, or its own draw, lets go of the samples in it. So what the
        # buffers drop is put aside while the lock is held, and let go afterwards.
        self._lock = threading.Lock()
        self._dropped: list[str] = []  # chunks
        self._changed = threading.Condition()
        self._pushes = 0
        self._missed: dict[str, int] = {}  # by task: `_pushes` when there was no batch for it
        self._is_awake = False
        self._has_warned = False

    def open(self, buffer_id: str, cfg: Mapping[str, Any]) -> None:
        """Make the buffer, unless it is there.

        Raises:
            ConfigError: the buffer cannot do what parallel training asks of it.
        """
        with self._lock:
            if buffer_id not in self.buffers:
                self._cfgs[buffer_id] = EasyDict(cfg)
                self.buffers[buffer_id] = self._make_buffer(EasyDict(cfg))

    def _make_buffer(self, cfg: EasyDict) -> Any:
        if cfg.get("type") == "deque" and cfg.get("priority"):
            raise ConfigError(
                "replay_buffer: type = 'deque' with priority = True is not allowed here: it takes priorities for its "
                "newest batch only, but several are on their way to the learner; use type = 'advanced'"
            )
        if cfg.get("enable_track_used_data"):
            cfg.enable_track_used_data = False  # it would delete whole chunks, of which other samples are stored
        buffer: Any = create_buffer(cfg, exp_name=self._exp_name)
        buffer.on_dropped = self._note_dropped
        buffer.start()
        return buffer

    def _note_dropped(self, rows: Rows) -> None:
        self._dropped += chunks_of(rows)

    def push(self, buffer_id: str, rows: Rows) -> int | None:
        """Push the metadata of samples; those in columns are not looked at one by one.

        Returns:
            how many the buffer has taken in: all, or none if it limits the rate; None where the buffer is unknown.
        """
        _tell_collect_iter(rows)
        chunks = self._ledger.add(rows)
        try:
            with self._dropping():
                buffer = self.buffers.get(buffer_id)
                is_taken = buffer is not None and _push(buffer, rows)
        except BaseException:
            self._ledger.release_chunks(chunks)
            raise
        if not is_taken:
            self._ledger.release_chunks(chunks)
        with self._changed:
            self._pushes += 1
            self._changed.notify_all()
        if buffer is None:
            return None
        return len(rows) if is_taken else 0

    def sample(self, task_id: str, buffer_id: str, batch_size: int, cur_learner_iter: int) -> Rows | None:
        """A batch, whose chunks stay until `trained` says that it is done with; None where there is none to have."""
        with self._dropping():
            buffer = self.buffers.get(buffer_id)
            batch = None if buffer is None else _sample(buffer, batch_size, cur_learner_iter)
            if batch is None:
                self._missed[task_id] = self._pushes
            else:
                self._batches[task_id].append(self._ledger.add(batch))
        return batch

    @contextlib.contextmanager
    def _dropping(self) -> Iterator[None]:
        """Hold the lock; then let go of what the buffers have dropped meanwhile."""
        dropped: list[str] = []
        try:
            with self._lock:
                try:
                    yield
                finally:
                    dropped, self._dropped[:] = self._dropped.copy(), []
        finally:
            self._ledger.release_chunks(dropped)

    def where(self, buffer_id: str) -> dict[str, Any] | None:
        """Where workers find the samples of a buffer themselves, in plain values; None where they come by `push` and go
        by `sample`, or the buffer is unknown.
        """
        return None

    def note_level(self, buffer_id: str, level: int) -> None:
        """A learner that draws its batches itself has found so many items in the buffer."""

    def levels(self) -> list[tuple[str, int, int]]:
        """Of each open buffer: id, number of items, capacity."""
        with self._lock:
            return [(name, int(b.count()), int(b.replay_buffer_size)) for name, b in self.buffers.items()]

    def batches_under_way(self) -> int:
        """How many batches learners have not read yet."""
        with self._lock:
            return sum(len(batches) for batches in self._batches.values())

    def wait_for_push(self, task_id: str, timeout_s: float) -> None:
        """Wait until there was a push since `sample` had nothing for this task; at most `timeout_s`."""
        with self._changed:
            missed = self._missed.get(task_id, self._pushes)
            self._changed.wait_for(lambda: self._is_awake or self._pushes != missed, timeout_s)

    def wake(self) -> None:
        """End all waits, from now on."""
        with self._changed:
            self._is_awake = True
            self._changed.notify_all()

    def trained(self, task_id: str, count: int) -> None:
        """The oldest `count` batches of this task are done with."""
        with self._lock:
            batches = self._batches.get(task_id, deque())
            chunks = [chunk for _ in range(min(count, len(batches))) for chunk in batches.popleft()]
        self._ledger.release_chunks(chunks)

    def forget_task(self, task_id: str) -> None:
        """None of the batches of this task is needed any more."""
        with self._lock:
            chunks = [chunk for batch in self._batches.pop(task_id, ()) for chunk in batch]
            self._missed.pop(task_id, None)
        self._ledger.release_chunks(chunks)

    def update(self, buffer_id: str, priority_info: Mapping[str, Any]) -> bool:
        """Set priorities; False where the buffer is unknown."""
        buffer = self.buffers.get(buffer_id)
        if buffer is None:
            return False
        if priority_info:
            buffer.update(dict(priority_info))
        return True

    def close_buffer(self, buffer_id: str) -> None:
        """Close a buffer and forget it."""
        with self._dropping():
            buffer = self.buffers.pop(buffer_id, None)
            if buffer is not None:
                buffer.close()

    def close(self) -> None:
        """Close all buffers and delete all chunks. Idempotent."""
        self.wake()
        for buffer_id in list(self.buffers):
            self.close_buffer(buffer_id)
        self._ledger.clear()
        if self._store is not None and self.is_deleting:
            self._store.sweep()

    def _delete(self, name: str) -> None:
        if self._store is None or not self.is_deleting:
            return
        try:
            self._store.delete(name)
        except (OSError, ValueError) as e:
            if not self._has_warned:  # what holds for one will hold for all of them
                self._logger.warning("the samples %r, and others perhaps, are left where they are: %s", name, e)
            self._has_warned = True


def _push(buffer: Any, rows: Rows) -> bool:
    """Push; returns whether the buffer took them in, which it does with all or none."""
    before = getattr(buffer, "push_count", None)
    buffer.push(rows, -1)
    return before is None or buffer.push_count != before


def _sample(buffer: Any, batch_size: int, cur_learner_iter: int) -> Rows | None:
    if isinstance(buffer, DequeBufferWrapper) and buffer.count() < batch_size:
        return None  # it would warn of it, each time
    batch: Rows | None = buffer.sample(batch_size, cur_learner_iter)
    return batch


def _tell_collect_iter(rows: Rows) -> None:
    """Let the buffer know how old the samples are; workers of other makes tell it as `policy_iter` only."""
    columns = rows.columns if isinstance(rows, Samples) else None
    if isinstance(rows, Samples) and columns is not None:
        told = columns.get("policy_iter")
        if "collect_iter" in columns or told is None:
            return
        if not any(column.kind is Kind.OBJECT for column in columns_of(told)):  # else some may be None
            rows.set_column("collect_iter", told)
            return
    for row in rows:
        if "collect_iter" not in row and row.get("policy_iter") is not None:
            row["collect_iter"] = row["policy_iter"]


# What the names of chunks begin with that our collectors write; then comes that of the collector, and a number.
_CHUNK_PREFIX = "env_"


class KeptBufferRoom(BufferRoom):
    """A room whose buffers another room can have, with their content. See `BufferRoom`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._collectors: set[str] = set()  # those of the samples that were restored, and those that were lost

    def freeze(self, buffer_id: str, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """What `restore` needs for a buffer, besides its id.

        The content is None where the buffer is not open, and for types of buffers that cannot be kept, which have no
        `freeze` and `discard`. Functions in the config are left out.

        Args:
            cfg: of a buffer that is not open yet.
        """
        buffer, content = self.buffers.get(buffer_id), None
        if buffer is not None and hasattr(buffer, "freeze") and hasattr(buffer, "discard"):
            content = buffer.freeze()
        return {"cfg": without_functions(self._cfgs.get(buffer_id, cfg)), "content": content}

    def restore(self, buffer_id: str, cfg: Mapping[str, Any], content: dict[str, Any] | None) -> tuple[int, int]:
        """Open a buffer with what it had in it, but for samples whose chunks are not there any more.

        Returns:
            how many samples it holds, and how many were dropped.

        Raises:
            ConfigError: see `open`.
        """
        self.open(buffer_id, cfg)
        if content is None:
            return 0, 0
        buffer, held = self.buffers[buffer_id], []
        there = None if self._store is None else self._store.names()

        def is_unwanted(row: Any) -> bool:
            held.append(row)
            return there is not None and isinstance(row, Mapping) and _chunk_of(row) not in there

        with self._dropping():
            buffer.load_state_dict(content)
            dropped: int = buffer.discard(is_unwanted)
            self._ledger.add(held)
        self._collectors.update(_collector_of(str(name)) for name in _chunks_of(held))
        return len(held) - dropped, dropped

    def delete_unneeded(self) -> int:
        """Delete the chunks that nobody needs: those that came after the content of the buffers was kept, and those
        that lost collectors had not told of.

        In a folder outside that of the experiment, where other runs may have theirs, these are only the chunks of
        collectors which are known from samples that were restored, or that they had told of before they were lost.

        Returns:
            how many.
        """
        if self._store is None:
            return 0
        is_own = _lies_in(self._store.root, self._exp_name)
        return self._delete_unused(lambda collector: is_own or collector in self._collectors)

    def abandon(self, chunk: Any) -> None:
        """The collector that has told of this chunk is lost: those that it has not told of go.

        As the name is one that a worker has told, it may be anything.
        """
        lost = _collector_of(os.path.basename(chunk)) if isinstance(chunk, str) else ""
        if self._store is None or not lost.startswith(_CHUNK_PREFIX):
            return
        self._collectors.add(lost)  # it may still be writing
        try:
            self._delete_unused(lambda collector: collector == lost)
        except OSError as e:  # they are looked for once more at the end
            self._logger.warning("chunks of the lost collector %s are left where they are: %s", lost, e)

    def _delete_unused(self, is_meant: Callable[[str], bool]) -> int:
        assert self._store is not None
        names = [
            name
            for name in self._store.names()
            if name.startswith(_CHUNK_PREFIX) and name not in self._ledger and is_meant(_collector_of(name))
        ]
        for name in names:
            self._delete(name)
        return len(names)


def _chunk_of(row: Mapping[str, Any]) -> str | None:
    """The plain name of the chunk that a sample lies in."""
    return os.path.basename(row[DATA_ID]) if DATA_ID in row else None


def _chunks_of(rows: Rows) -> set[str | None]:
    return {_chunk_of(row) for row in rows if isinstance(row, Mapping)} - {None}


def _collector_of(name: str) -> str:
    return name.rpartition("_")[0]


def _lies_in(path: str, folder: str) -> bool:
    return os.path.abspath(path).startswith(os.path.abspath(folder) + os.sep)


def without_functions(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """A config without what no file can hold."""
    return {
        key: without_functions(value) if isinstance(value, Mapping) else value
        for key, value in cfg.items()
        if not callable(value)
    }
