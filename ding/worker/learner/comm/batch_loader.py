"""Reads whole batches of samples from their chunks, and handles files that cannot be read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from ding.utils.data.dataloader import WorkerPool
from ding.utils.data.samples import Items, Samples, Table, node_items, rows_of, table_of
from ding.worker.transport.chunk_reader import ChunkReader, pick_sample
from ding.worker.transport.ledger import DATA_ID, chunks_of

T = TypeVar("T")

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.2


def read_patiently(
    read: Callable[[], T], what: str, timeout_s: float, wait: Callable[[float], bool], since: float | None = None
) -> T:
    """Call `read`, repeatedly while the file is missing or damaged, and return its result.

    Args:
        what: name of the file for the error.
        timeout_s: limit of the time.
        wait: waits for a number of seconds; returns True if the caller should give up.
        since: beginning of the time, on the clock `time.monotonic`; by default the call.

    Raises:
        FileNotFoundError: the file is still missing.
        ValueError: the file is still damaged, or has invalid content.
    """
    deadline, wait_s = (monotonic() if since is None else since) + timeout_s, _FIRST_WAIT_S
    while True:
        try:
            return read()
        except (FileNotFoundError, ValueError) as e:
            if monotonic() + wait_s > deadline or wait(wait_s):
                reason = f"the samples {what} could not be read within {timeout_s:g} s: {e}"
                raise (FileNotFoundError if isinstance(e, FileNotFoundError) else ValueError)(reason) from e
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


Rows = list[dict[str, Any]]
# Errors of a file or of its metadata. Any other error is one of this program.
_BAD_FILE = (OSError, ValueError, KeyError, MemoryError)
# Least patience for late files, however many were missing before.
_LEAST_PATIENCE_S = 0.1


class BatchLoader:
    """Reads batches. The readable samples of incomplete batches are collected until they make up a whole batch.

    So every batch has the requested size, and each readable sample is trained as often as it was drawn. For use by one
    thread; other threads may read the counts.

    Args:
        timeout_s: how long to wait for late files, for each batch. A file that was unreadable once gets no more time,
            and each batch with a new one halves the time for the next batches, until a late file arrives.
        wait: waits for a number of seconds; returns True if the loader should give up.
        threads: number of threads that read the files of a batch; one file at a time if it is at most 1.

    Attributes:
        bad_files: names of the chunks that could not be read, or lacked a sample.
        error: the error of the last of them.
        warn: called once for each.
    """

    def __init__(self, reader: ChunkReader, timeout_s: float, wait: Callable[[float], bool], threads: int = 0) -> None:
        self.bad_files: set[str] = set()
        self.error: Exception | None = None
        self.warn: Callable[[str], Any] = lambda text: None
        self._reader, self._wait = reader, wait
        self._timeout_s = self._patience_s = timeout_s
        self._has_late = False  # whether one has come that was late
        self._left_over: list[Any] = []
        self._pool = WorkerPool(threads, "learner_reader") if threads > 1 else None

    def load(self, rows: Rows) -> tuple[list[Any] | None, int]:
        """Read the samples of a batch.

        Args:
            rows: metadata of the samples, with `data_id`.

        Returns:
            a batch of the same size, or None if there is none now; and how many of the samples were readable.
        """
        meta = Table.of(rows)
        names = _names_of(rows if meta is None else meta)
        begin_s = monotonic()
        jobs = [partial(self._read, name, compressor, begin_s) for name, compressor in names.items()]
        try:
            read = [job() for job in jobs] if self._pool is None else self._pool.run(jobs)
        except CancelledError:  # closed meanwhile
            return None, 0
        if self._wait(0.0):  # closed: files may be readable although they were not read
            return None, 0
        known = len(self.bad_files)
        whole = None if meta is None or any(error is not None for error in read) else self._reader.batch(meta)
        samples = self._pick(rows, dict(zip(names, read, strict=True))) if whole is None else Samples(whole)
        self._reader.trim()
        self._set_patience(has_new_bad=len(self.bad_files) > known)
        if len(samples) == len(rows):
            return samples, len(rows)
        self._left_over += samples
        if len(self._left_over) < len(rows):
            return None, len(samples)
        batch, self._left_over = self._left_over[: len(rows)], self._left_over[len(rows) :]
        return batch, len(samples)

    def _pick(self, rows: Rows, errors: Mapping[str, Exception | None]) -> list[Any]:
        """The readable samples, picked one by one."""
        chunks: dict[str, list[Any]] = {}
        samples = []
        for row in rows:
            name = row[DATA_ID]
            try:
                error = errors[name]
                if error is not None:
                    raise error
                if name not in chunks:
                    chunks[name] = self._reader.samples(name, str(row.get("compressor", "none")))
                samples.append(pick_sample(chunks[name], row))
            except _BAD_FILE as e:
                self._note(name, e)
        return samples

    def _read(self, name: str, compressor: str, begin_s: float) -> Exception | None:
        """Have the reader keep a chunk in memory; returns the error if it cannot."""
        is_bad = name in self.bad_files
        tries = 0

        def read() -> None:
            nonlocal tries
            tries += 1
            self._reader.keep(name, compressor)

        try:
            read_patiently(read, repr(name), 0.0 if is_bad else self._patience_s, self._wait, begin_s)
        except _BAD_FILE as e:
            return e
        if is_bad or tries > 1:
            self._has_late = True
        return None

    def _set_patience(self, has_new_bad: bool) -> None:
        if self._has_late:
            self._patience_s = self._timeout_s
        elif has_new_bad:
            self._patience_s = max(self._patience_s / 2, min(self._timeout_s, _LEAST_PATIENCE_S))
        self._has_late = False

    def _note(self, name: str, error: Exception) -> None:
        self.error = error
        if name not in self.bad_files:
            self.bad_files.add(name)
            self.warn(f"the chunk {name!r} is bad, its samples are skipped: {error}")

    def close(self) -> None:
        """Release the samples, and end the threads. Idempotent."""
        self._left_over.clear()
        self._reader.clear()
        if self._pool is not None:
            self._pool.close()


def _names_of(rows: Items) -> dict[str, str]:
    """The names of the chunks of these samples, with their compressors."""
    table = table_of(rows)
    if table is None:
        return {row[DATA_ID]: str(row.get("compressor", "none")) for row in rows_of(rows)}
    columns = table.columns
    compressors = map(str, node_items(columns["compressor"])) if "compressor" in columns else itertools.repeat("none")
    return dict(zip(chunks_of(rows), compressors, strict=False))
