"""A worker of parallel training in a process of its own, seen from the process that started it."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import warnings
import weakref
from time import monotonic
from typing import Any

from ding.entry.keeper import CLOSE_S, Ends, WorkerPlan, keep
from ding.utils.child_helper import ProcessEvent

# How much longer than its worker a keeper may take to end.
_KEEPER_S = 2.0


class WorkerDied(RuntimeError):
    """The process of a worker has ended by itself.

    Attributes:
        worker: its name.
        exitcode: its exit code, negative for a signal.
    """

    def __init__(self, worker: str, exitcode: int | None, failure: str = "") -> None:
        self.worker, self.exitcode = worker, exitcode
        text = f"the process of {worker} {_how(exitcode)}"
        super().__init__(f"{text}:\n{failure}" if failure else text)


def _how(exitcode: int | None) -> str:
    if exitcode is None:
        return "is gone"
    if exitcode >= 0:
        return f"has ended with exit code {exitcode}"
    try:
        return f"was ended by {signal.Signals(-exitcode).name}"
    except ValueError:
        return f"was ended by signal {-exitcode}"


class WorkerProcess:
    """Starts the process of a worker, and again where it has ended by itself.

    Between the two stands a keeper, see `keep`. Nothing here needs a thread.

    Args:
        start_method: how the keeper starts: 'fork', 'spawn' or 'forkserver'. None: 'fork' where that is possible, that
            is if the system has it and CUDA is not in use in this process.

    Attributes:
        name: the worker's name.
        start_method: that of its keeper.
        news: readable when the keeper has said something, see `read`; for `multiprocessing.connection.wait`.
        pid: the process id of the worker; None before it has told.
        port: the port where it takes tasks; None before it has told.

    Example:
        >>> def run(config, seed, start_event, close_event, report):
        ...     report(7236)
        ...     start_event.set()
        ...     close_event.wait()
        >>> worker = WorkerProcess(WorkerPlan("collector0", run, EasyDict(), seed=0), "fork")
        >>> worker.start()
        >>> worker.read(timeout_s=60)
        >>> worker.port
        7236
        >>> worker.close()
    """

    def __init__(self, plan: WorkerPlan, start_method: str | None = None) -> None:
        self.name = plan.name
        self.start_event, self.close_event = ProcessEvent(), ProcessEvent()
        self.pid: int | None = None
        self.port: int | None = None
        self.start_method = start_method or default_start_method()
        context = multiprocessing.get_context(self.start_method)
        news, self._telling = context.Pipe(duplex=False)
        obeyed, self._orders = context.Pipe(duplex=False)
        self.news: Any = news
        self._obeyed = obeyed
        ends = Ends(self._telling, obeyed, self.start_event, self.close_event)
        self._keeper: Any = context.Process(  # type: ignore[attr-defined]
            target=keep, args=(plan, ends, os.getpid()), name=f"keeper_{plan.name}"
        )
        self._end: Any = None

    def start(self) -> None:
        """Start the process; it tells later that the worker takes tasks."""
        with warnings.catch_warnings():
            # What could harm a forked process is undone in `settle_in`; the keeper computes nothing.
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
            self._keeper.start()
        self._telling.close()
        self._obeyed.close()
        # Before that of multiprocessing at exit, which would wait for the process.
        self._end = weakref.finalize(self, _end, self._keeper, self.close_event)

    @property
    def is_started(self) -> bool:
        """Whether `start` was called."""
        return self._end is not None

    @property
    def sentinel(self) -> Any:
        """Becomes readable when the keeper has ended; for `multiprocessing.connection.wait`."""
        return self._keeper.sentinel

    @property
    def exitcode(self) -> int | None:
        """That of the keeper; None while it runs."""
        code: int | None = self._keeper.exitcode
        return code

    def is_alive(self) -> bool:
        """Whether the keeper runs."""
        return bool(self._keeper.is_alive())

    def join(self, timeout: float | None = None) -> None:
        """Wait for the keeper to end."""
        self._keeper.join(timeout)

    def terminate(self) -> None:
        """End keeper and worker at once."""
        self._keeper.terminate()

    def read(self, timeout_s: float = 0.0) -> None:
        """Take in what the keeper says next: `pid` and `port` are set when the worker has started.

        Raises:
            WorkerDied: the worker has ended, or even its keeper.
            TimeoutError: it says nothing.
        """
        try:
            if not self.news.poll(timeout_s):
                if self._keeper.is_alive():
                    raise TimeoutError(f"the process of {self.name} has not started within {timeout_s:g} s")
                raise WorkerDied(self.name, self._keeper.exitcode)
            told = self.news.recv()
        except (EOFError, OSError) as e:
            if isinstance(e, TimeoutError):
                raise
            self._keeper.join(_KEEPER_S)
            raise WorkerDied(self.name, self._keeper.exitcode) from None
        if "port" not in told:
            self.pid = self.port = None
            raise WorkerDied(self.name, told["exitcode"], told["failure"])
        self.pid, self.port = told["pid"], told["port"]

    def start_again(self) -> None:
        """Start the worker again, after it has died; it tells as at first."""
        self._orders.send("again")

    def close(self) -> None:
        """End the worker as it should end, or by force where it takes too long. Bounded in time; idempotent."""
        if self._end is not None:
            self._end()
        self.news.close()
        self._orders.close()


def _end(keeper: Any, close_event: ProcessEvent) -> None:
    close_event.set()
    keeper.join(CLOSE_S + _KEEPER_S)
    if keeper.is_alive():
        keeper.kill()
        keeper.join()
    keeper.close()


def close_all(workers: list[WorkerProcess]) -> None:
    """Close them at the same time."""
    for worker in workers:
        worker.close_event.set()
    for worker in workers:
        worker.close()


def default_start_method() -> str:
    """'fork' where that is possible, else 'spawn'."""
    import torch

    has_fork = "fork" in multiprocessing.get_all_start_methods()
    is_cuda_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return "fork" if has_fork and not is_cuda_used else "spawn"


def wait_until_up(workers: list[WorkerProcess], timeout_s: float) -> None:
    """Wait until all have started.

    Raises:
        WorkerDied: one of them has not.
        TimeoutError: they take too long; it names those.
    """
    deadline = monotonic() + timeout_s
    waiting = {worker.news: worker for worker in workers}
    waiting.update({worker.sentinel: worker for worker in workers})
    missing = {worker.name for worker in workers if worker.port is None}
    while missing:
        ready = multiprocessing.connection.wait(list(waiting), max(0.0, deadline - monotonic()))
        if not ready:
            raise TimeoutError(f"workers have not started within {timeout_s:g} s: {', '.join(sorted(missing))}")
        for worker in {waiting[key].name: waiting[key] for key in ready}.values():
            worker.read()
            missing.discard(worker.name)
