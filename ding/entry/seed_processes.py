"""Several seeds of a training at the same time: `ding train ... --jobs`."""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from time import monotonic
from typing import Any

import click

from ding.torch_utils.training_guard import guard_training
from ding.utils.child_helper import set_death_signal
from ding.utils.config_helper import ConfigError

# How long a training may take to end on request: it saves its state between two rounds, or after 15 seconds.
_END_S = 20.0
# How long the last lines of a training that has ended may take.
_LAST_LINES_S = 2.0
_writing = threading.Lock()  # so that lines of two seeds are not mixed
# Starts the command as its script does: the current folder hides no installed module.
_COMMAND = (sys.executable, "-c", "import sys; sys.path.remove(''); from ding.entry.cli import cli; cli()")


def train_seeds(
    arguments: Sequence[str],
    settings: Sequence[str],
    options: Mapping[str, Any],
    folders: Mapping[int, str | None],
    jobs: int,
) -> None:
    """Run `ding train` for each seed in a process of its own, at most `jobs` at the same time.

    Their output goes to standard error, each line behind its seed. A training that fails leaves the others alone. A
    signal ends all of them, and each saves its state as a single one does; if this process is killed, they receive
    SIGTERM, on systems with a parent death signal.

    Args:
        settings: `key=value`.
        options: further options by name.
        folders: that of each seed, None for the one that follows from the arguments.

    Raises:
        ConfigError: trainings have failed; the message names their seeds.
    """
    words = [*arguments, *(f"--set={setting}" for setting in settings), *_flags(options)]
    waiting, failed = list(folders), []
    running: dict[int, subprocess.Popen[str]] = {}
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    with ExitStack() as stack:
        stack.enter_context(guard_training(None))
        stack.callback(_end, running, ended)
        while waiting or running:
            while waiting and len(running) < jobs:
                seed = waiting.pop(0)
                own = [f"--seed={seed}", *_flags({"exp_name": folders[seed]})]
                running[seed] = _start([*_COMMAND, "train", *words, *own], seed, ended)
            seed = ended.get()
            if running.pop(seed).wait():
                failed.append(seed)
    if failed:
        raise ConfigError(f"of the seeds {list(folders)}, {sorted(failed)} have failed; their output is above")


def _flags(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "strict_config":
            yield flag if value else "--no-strict-config"
        elif value is not None and value is not False:
            yield flag if value is True else f"{flag}={value}"


def _start(command: Sequence[str], seed: int, ended: queue.SimpleQueue[int]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches this process alone, which tells them once
        preexec_fn=partial(set_death_signal, signal.SIGTERM),
    )

    def pass_on() -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                with _writing:
                    click.echo(f"seed {seed} | {line.rstrip()}", err=True)
        ended.put(seed)

    threading.Thread(target=pass_on, name=f"seed_{seed}", daemon=True).start()
    return process


def _end(running: Mapping[int, subprocess.Popen[str]], ended: queue.SimpleQueue[int]) -> None:
    for process in running.values():
        process.terminate()
    deadline = monotonic() + _END_S
    for process in running.values():
        try:
            process.wait(max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for _ in running:
        with contextlib.suppress(queue.Empty):  # what a training has started may still hold its output
            ended.get(timeout=_LAST_LINES_S)
