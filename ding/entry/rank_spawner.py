"""The ranks of a learner as processes of this machine."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from time import monotonic

from ding.torch_utils.training_guard import guard_training
from ding.utils.child_helper import set_death_signal

# How long a rank may take to end on request, in which it may save a checkpoint.
_END_S = 20.0
# Variables that would override RANK and WORLD_SIZE.
_OTHER_PLACES = ("SLURM_LOCALID", "SLURM_NTASKS")


def spawn_ranks(options: Sequence[str], command: Sequence[str] = (sys.executable, "-m", "ding.entry.cli")) -> None:
    """Run `command` with `options` for each rank of this machine, and wait until all ranks have ended.

    The failure of a rank ends the others, and so does a signal that ends this process. If this process is killed, the
    ranks receive SIGTERM, on systems with a parent death signal.

    Raises:
        RuntimeError: a rank has failed.
        ValueError: an environment variable is not a number.
    """
    count, first = _number_in("LOCAL_WORLD_SIZE", 1), _number_in("START_RANK", 0)
    world_size = _number_in("WORLD_SIZE", first + count)
    environment = {name: value for name, value in os.environ.items() if name not in _OTHER_PLACES}
    ranks: dict[int, subprocess.Popen[bytes]] = {}
    with ExitStack() as stack:
        stack.enter_context(guard_training(None))
        stack.callback(_end, ranks)
        for local_rank in range(count):
            places = {"RANK": first + local_rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": world_size}
            child_environment = {**environment, **{name: str(value) for name, value in places.items()}}
            ranks[first + local_rank] = subprocess.Popen(
                [*command, *options],
                env=child_environment,
                preexec_fn=partial(set_death_signal, signal.SIGTERM),  # this process has no other thread yet
            )
        _wait(ranks)


def _number_in(variable: str, default: int) -> int:
    text = os.environ.get(variable, str(default))
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"the environment variable {variable} = {text!r} is not a number") from None


def _wait(ranks: dict[int, subprocess.Popen[bytes]]) -> None:
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    def watch(rank: int, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        ended.put(rank)

    for item in ranks.items():
        threading.Thread(target=watch, args=item, name=f"rank_{item[0]}", daemon=True).start()
    for _ in ranks:
        rank = ended.get()
        status = ranks[rank].returncode
        if status:
            how = f"exit code {status}" if status > 0 else f"signal {-status}"
            raise RuntimeError(f"rank {rank} has ended with {how}; see its output above")


def _end(ranks: dict[int, subprocess.Popen[bytes]]) -> None:
    for process in ranks.values():
        process.terminate()
    deadline = monotonic() + _END_S
    for process in ranks.values():
        try:
            process.wait(max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
