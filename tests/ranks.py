"""Ranks as real processes: started together, watched with a deadline, and ended whatever happens.

They are forked from one server process that has imported torch already, so that a rank starts in milliseconds.
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import pathlib
import signal
import sys
import time
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ding.utils.system_helper import find_free_port
from tests.fork_server import start_fork_server

ACTORS = "tests.dist.actors"


@dataclass(frozen=True)
class Rank:
    """How a rank ended: exit status (minus the signal that killed it), seconds it took, result and output."""

    status: int
    seconds: float
    out: str
    err: str

    @property
    def result(self) -> Any:
        """What the actor returned."""
        return json.loads(self.out.splitlines()[-1])


def run_ranks(
    actor,
    *args,
    folder,
    n=2,
    deadline_s=60,
    env=None,
    own_store=False,
    folders=None,
    check=False,
    orphans=False,
    module=ACTORS,
):
    """Run `<module>.<actor>(*args)` as `n` ranks; return how each ended, in their order.

    Args:
        folder: where outputs go; also the current directory of the ranks, unless `folders` gives each its own.
        own_store: rank 0 hosts the store at MASTER_PORT, as where ranks are started by hand; else this process hosts
            it, as torchrun does.
        check: expect exit status 0 of all.
        orphans: whether a rank may leave processes behind, which are ended then.
    """
    variables = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": str(n), **(env or {})}
    store = None
    if own_store:
        variables["MASTER_PORT"] = str(find_free_port("127.0.0.1"))
    else:
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        variables |= {"MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    if not hasattr(os, "fork"):
        pytest.skip("ranks are forked here")
    processes = []
    try:
        for rank in range(n):
            place = str(folders[rank] if folders else folder)
            output = (str(folder / f"{rank}.out"), str(folder / f"{rank}.err"))
            processes.append(_start((module, actor), args, {**variables, "RANK": str(rank)}, place, output))
        seconds = _wait(processes, deadline_s)
        left_over = [] if orphans else _left_over([process.pid for process in processes])
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join(10)
    del store
    texts = [[(folder / f"{rank}.{kind}").read_text() for kind in ("out", "err")] for rank in range(n)]
    report = "\n".join(f"--- rank {rank}\n{out}{err}" for rank, (out, err) in enumerate(texts))
    assert None not in seconds, f"not all ranks ended within {deadline_s} s: {seconds}\n{report}"
    assert not left_over, f"processes {left_over} are left over\n{report}"
    ranks = [Rank(p.exitcode, s, *text) for p, s, text in zip(processes, seconds, texts, strict=True)]
    assert not check or all(rank.status == 0 for rank in ranks), report
    return ranks


def _start(actor, args, env, folder, output):
    start_fork_server()
    process = multiprocessing.get_context("forkserver").Process(
        target=_be_rank, args=(actor, args, env, folder, output)
    )
    process.start()
    return process


def _be_rank(actor, args, env, folder, output):
    os.setsid()  # whatever it starts can be found, and ended, with it
    for stream, path in zip((1, 2), output, strict=True):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), stream)
    os.environ.update(env)
    torch.set_num_threads(1)  # the variable for it has no effect once torch is imported
    os.chdir(folder)
    module, name = actor
    result = getattr(importlib.import_module(module), name)(*args)
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def _wait(processes, deadline_s):
    """The seconds after which each ended; None for those that did not."""
    start = time.monotonic()
    seconds = [None] * len(processes)
    while None in seconds and time.monotonic() - start < deadline_s:
        running = [process for process, end in zip(processes, seconds, strict=True) if end is None]
        connection.wait([process.sentinel for process in running], deadline_s - (time.monotonic() - start))
        for index, process in enumerate(processes):
            if seconds[index] is None and process.exitcode is not None:
                seconds[index] = time.monotonic() - start
    return seconds


def _left_over(sessions):
    """The processes that ranks have left behind; what notices the death of a rank has a few seconds to end."""
    end = time.monotonic() + 5
    while True:
        living = [pid for session in sessions for pid in _living(session)]
        if not living or time.monotonic() > end:
            return living
        time.sleep(0.05)  # nobody can wait for a process that is not its child


def _living(session):
    """The processes of a session that have not ended."""
    living = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError):
            if entry.isdigit():
                state, _, _, found = pathlib.Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[:4]
                if int(found) == session and state != "Z":
                    living.append(int(entry))
    return living
