"""The process of a worker of parallel training, and the one that keeps it: what runs in them.

The caller's process starts a *keeper* for each worker, before it has any threads. The keeper has no threads either; it
forks the worker, tells of its end, and forks it again when it is asked to: from a process that is as it was at first.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from easydict import EasyDict

from ding.utils.child_helper import ProcessEvent, descriptor_of, die_with, settle_in
from ding.utils.default_helper import derive_seed, set_pkg_seed

# How long a worker may take to close: a learner saves a checkpoint.
CLOSE_S = 20.0
# How long it may take where nobody waits for it any more.
_FAREWELL_S = 5.0

Report = Callable[[int], Any]


@dataclass(frozen=True)
class WorkerPlan:
    """What a keeper knows.

    Attributes:
        run: `run_learner` or `run_collector`; or something else that takes the same.
        config: the worker's section of the system config.
        seed: of the package in that process; a worker that is started again gets another.
        is_quiet: whether servers and interaction log errors only.
    """

    name: str
    run: Callable[..., Any]
    config: EasyDict
    seed: int
    is_quiet: bool = True


class Ends(NamedTuple):
    """The keeper's ends of its connections: its news, the orders for it, and the two events of the worker."""

    news: Connection
    orders: Connection
    start_event: ProcessEvent
    close_event: ProcessEvent


def keep(plan: WorkerPlan, ends: Ends, parent_pid: int) -> None:
    """Be the keeper of a worker, until it is closed or the process `parent_pid` ends.

    The news are dicts: `{"port": ..., "pid": ...}` when the worker has started, `{"exitcode": ..., "failure": ...}`
    when it has ended without having been closed; `failure` is a traceback, or "".
    """
    settle_in()
    parent = descriptor_of(parent_pid)
    if parent is None:
        process = multiprocessing.parent_process()
        assert process is not None
        parent = process.sentinel
    life = 0
    while True:
        end = _see_through(plan, ends, life, parent)
        if end is None:
            return
        ends.news.send(end)
        ready = wait([ends.orders, ends.close_event.reader, parent])
        if ends.orders not in ready:
            return
        ends.orders.recv()
        life += 1


def _see_through(plan: WorkerPlan, ends: Ends, life: int, parent: int) -> dict[str, Any] | None:
    """Run the worker; returns how it ended, None if it was closed."""
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    reports, report = multiprocessing.Pipe(duplex=False)
    context: Any = multiprocessing.get_context(method)
    worker = context.Process(target=work, args=(plan, ends, life, report, os.getpid()), name=plan.name)
    worker.start()
    report.close()
    failure = ""
    waiting: list[Any] = [reports, worker.sentinel, ends.close_event.reader, parent]
    while True:
        ready = wait(waiting)
        if reports in ready:
            try:
                told = reports.recv()
            except EOFError:
                waiting.remove(reports)
                continue
            failure = told.get("failure", "")
            if not failure:
                ends.news.send(told)
        elif parent in ready or ends.close_event.is_set():
            _close(worker, ends.close_event)
            return None
        else:
            worker.join()
            return {"exitcode": worker.exitcode, "failure": failure}


def _close(worker: Any, close_event: ProcessEvent) -> None:
    close_event.set()
    worker.join(CLOSE_S)
    if worker.is_alive():
        worker.kill()
        worker.join()


def work(plan: WorkerPlan, ends: Ends, life: int, report: Connection, keeper_pid: int) -> None:
    """Be the process of a worker."""
    settle_in()
    die_with(keeper_pid, ends.close_event.set, _FAREWELL_S)
    if plan.is_quiet:
        for name in ("waitress", "werkzeug"):
            logging.getLogger(name).setLevel(logging.ERROR)

    def tell_port(port: int) -> None:
        report.send({"port": port, "pid": os.getpid()})

    try:
        config = EasyDict(plan.config)
        if config.get("seed") is not None:
            config.seed = later_seed(config.seed, life)
        plan.run(config, later_seed(plan.seed, life), ends.start_event, ends.close_event, tell_port)
    except BaseException as e:
        report.send({"failure": "".join(traceback.format_exception(e))})
        raise SystemExit(1) from None


def later_seed(seed: int, life: int) -> int:
    """The seed of a worker that was started again `life` times; the first time it is `seed` itself."""
    return seed if life == 0 else derive_seed(seed, 3, life)


def run_worker(
    create: Callable[[EasyDict], Any],
    config: Mapping[str, Any],
    seed: int,
    start_event: Any,
    close_event: Any,
    report: Report | None = None,
) -> None:
    """Serve tasks in this process until `close_event` is set.

    Args:
        create: makes the worker.
        config: its section of the system config. `nice` lowers its share of busy cores, `torch_threads` (1) is how many
            it computes with.
        seed: of the global generators.
        start_event: is set when the worker takes tasks.
        report: called then with its port.
    """
    import torch

    section = EasyDict(config)
    if section.get("nice") and hasattr(os, "nice"):
        os.nice(section.nice)
    torch.set_num_threads(section.get("torch_threads", 1))
    set_pkg_seed(seed)
    worker = create(section)
    try:
        worker.start()
        if report is not None:
            report(getattr(worker, "port", section.get("port", 0)))
        start_event.set()
        close_event.wait()
    finally:
        worker.close()
