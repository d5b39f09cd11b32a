"""Whole batches of samples out of their chunks, and what becomes of those that cannot be read."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from ding.utils.data.samples import Samples, node_items
from ding.utils.data.worker_pool import WorkerPool
from ding.worker.transport.chunk_reader import ChunkReader, pick_sample
from ding.worker.transport.ledger import DATA_ID, chunks_of

T = TypeVar("T")

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.2


def read_patiently(
    read: Callable[[], T], what: str, timeout_s: float, wait: Callable[[float], bool], since: float | None = None
) -> T:
    """What `read` returns, tried again while it finds no file or a damaged one.

    Args:
        what: names the file in the error.
        timeout_s: when to give up.
        wait: waits so many seconds; True if there is no use in waiting on.
        since: from when the time counts, on the clock `time.monotonic`; from now on by default.

    Raises:
        FileNotFoundError: the file has not come.
        ValueError: it stayed damaged, or is not what it should be.
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
# What is wrong with a file, or with what is said about it. Anything else is an error of this program.
_BAD_FILE = (OSError, ValueError, KeyError, MemoryError)
# However many files have not come: how long the next one may be late, if that much was allowed at first.
_LEAST_PATIENCE_S = 0.1


class BatchLoader:
    """Reads batches; of those with samples that cannot be read, the others are kept and make up a batch together.

    So every batch is as large as was asked for, and each sample is trained as often as it was drawn. Used by one
    thread; the counts may be read by others.

    Args:
        timeout_s: how long files may be late, counted for each batch. One that was not readable once gets no more time,
            and each batch with such a file halves the time for the next ones, until a file comes that was late.
        wait: waits so many seconds; True if there is no use in waiting on.
        threads: read the files of a batch, where they are more than one.

    Attributes:
        bad_files: names of the chunks that could not be read, or lacked a sample.
        error: what was wrong with the last of them.
        warn: told once of each.
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
        """A batch as large as `rows`, if there is one now, and how many of these samples could be read.

        After the end of all waits there is none.

        Args:
            rows: metadata, `data_id` among it.
        """
        meta = Samples.of(rows)
        names = _names_of(rows if meta is None else meta)
        begin_s = monotonic()
        jobs = [partial(self._read, name, compressor, begin_s) for name, compressor in names.items()]
        try:
            read = [job() for job in jobs] if self._pool is None else self._pool.run(jobs)
        except CancelledError:  # closed meanwhile
            return None, 0
        if self._wait(0.0):  # then a file may only seem to be bad
            return None, 0
        known = len(self.bad_files)
        whole = None if meta is None or any(error is not None for error in read) else self._reader.batch(meta)
        samples = self._pick(rows, dict(zip(names, read, strict=True))) if whole is None else whole
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
        """The samples one by one, without those that cannot be read."""
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
        """Have the reader keep a chunk; what is wrong where it cannot."""
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
            self.warn(f"the chunk {name!r} is bad, its samples are passed over: {error}")

    def close(self) -> None:
        """Let go of the samples, and end the threads. Idempotent."""
        self._left_over.clear()
        self._reader.clear()
        if self._pool is not None:
            self._pool.close()


def _names_of(rows: Sequence[Any]) -> dict[str, str]:
    """The chunks of these samples, each with its compressor."""
    columns = rows.columns if isinstance(rows, Samples) else None
    if columns is None:
        return {row[DATA_ID]: str(row.get("compressor", "none")) for row in rows}
    compressors = map(str, node_items(columns["compressor"])) if "compressor" in columns else itertools.repeat("none")
    return dict(zip(chunks_of(rows), compressors, strict=False))
