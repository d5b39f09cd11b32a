"""Runs in processes of their own, which can be killed at a chosen moment, and what such a run leaves behind."""

import csv
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from ding.entry.serial_run import SerialRun
from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.envs.env_manager.subprocess_env_manager import AsyncSubprocessEnvManager
from ding.utils.data.samples import Samples
from ding.utils.msgpack_helper import pack, unpack
from tests.same_state import differences
from tests.utils.test_log_helper import events

# In tags of TensorBoard: what tells of durations.
_TIMES = ("time", "_per_sec", "_sec", "duration")
Job = Callable[[bool], Any]


class Moment(NamedTuple):
    """When a run is killed: before the n-th step of envs, after the n-th step of optimizers, or before the n-th file
    gets its name.
    """

    what: str
    number: int


def play(job: Job, folder: Path, resume: bool = False, moment: Moment | None = None) -> int:
    """Run `job(resume)` in another process, in `folder`; returns its exit status, negative for a signal.

    Raises:
        AssertionError: the job has failed; with its traceback.
    """
    folder.mkdir(exist_ok=True)
    pid = os.fork()
    if pid == 0:
        _be_child(job, folder, resume, moment)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 1:
        raise AssertionError((folder / "traceback").read_text())
    return code


def _be_child(job: Job, folder: Path, resume: bool, moment: Moment | None) -> None:
    status = 1
    try:
        os.chdir(folder)
        with open("output", "a") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        logging.getLogger("ding").addHandler(logging.FileHandler("warnings"))
        torch.set_num_threads(1)
        _note_outcome()
        if moment is not None:
            _count_down(moment)
        job(resume)
        status = 0
    except SystemExit as e:
        status = int(e.code or 0)
    except BaseException:
        Path("traceback").write_text(traceback.format_exc())
    finally:
        sys.stdout.flush()
        os._exit(status)


def _note_outcome() -> None:
    """Have a run that comes to its end write all that it holds, before its workers are closed."""
    save = SerialRun.save_result

    def noting(run: SerialRun) -> None:
        buffer = None if run.buffer is None else _items(run.buffer)
        state = {"policy": run.policy.state_dict(), "buffer": buffer, "iter": run.learner.train_iter}
        state["env_step"] = run.envstep
        Path("outcome").write_bytes(pack(state))
        Path("inexact").write_text(json.dumps(run.states.inexact))
        save(run)

    SerialRun.save_result = noting  # type: ignore[method-assign]


def _items(buffer: Any) -> Any:
    data = buffer.state_dict()["data"]
    if "samples" not in data:
        return data
    return [list(map(int, data["slots"])), *(_plain(item) for item in buffer._data if item is not None)]


def _plain(item: Any) -> Any:
    return {key: list(value) if isinstance(value, Samples) else value for key, value in dict(item).items()}


def _count_down(moment: Moment) -> None:
    left = moment.number

    def tick() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if moment.what == "update":
        register_optimizer_step_post_hook(lambda *args: tick())
    elif moment.what == "save":
        replace = os.replace

        def ticking(*args: Any) -> None:
            tick()
            replace(*args)

        os.replace = ticking  # type: ignore[assignment]
    else:
        for cls in (BaseEnvManager, AsyncSubprocessEnvManager):
            _tick_at_act(cls, tick)


def _tick_at_act(cls: Any, tick: Callable[[], None]) -> None:
    act = cls.act

    def ticking(self: Any, *args: Any) -> Any:
        tick()
        return act(self, *args)

    cls.act = ticking


class Outcome(NamedTuple):
    """What a run has left."""

    held: bytes
    evaluations: list[dict[str, Any]]
    scalars: list[tuple[str, int, float]]
    metrics: dict[str, list[dict[str, Any]]]
    best: dict[str, torch.Tensor]
    checkpoints: list[str]


def outcome(folder: Path, exp_name: str = "exp") -> Outcome:
    """What the run in `folder` has left, without durations."""
    exp = folder / exp_name
    lines = [json.loads(line) for line in (exp / "eval.jsonl").read_text().splitlines()]
    scalars = [event for event in events(exp / "log" / "serial") if not any(word in event[0] for word in _TIMES)]
    best = torch.load(exp / "ckpt" / "ckpt_best.pth.tar", weights_only=True)["model"]
    names = sorted(path.name for path in (exp / "ckpt").glob("[!.]*"))
    evaluations = [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
    return Outcome((folder / "outcome").read_bytes(), evaluations, scalars, metrics(exp), best, names)


def metrics(exp: Path) -> dict[str, list[dict[str, Any]]]:
    """The records in the files of metrics of a run, by file, without durations."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for path in [exp / "metrics.jsonl", *sorted((exp / "metrics").glob("*"))]:
        text = path.read_text()
        found = map(json.loads, text.splitlines()) if path.suffix == ".jsonl" else csv.DictReader(text.splitlines())
        rows[path.name] = [
            {name: value for name, value in row.items() if not any(word in name for word in _TIMES)} for row in found
        ]
    return rows


def assert_same(one: Outcome, other: Outcome) -> None:
    """Both runs have left the same, bit for bit."""
    assert one.evaluations == other.evaluations
    assert one.scalars == other.scalars
    assert one.metrics == other.metrics
    assert one.checkpoints == other.checkpoints
    assert one.best.keys() == other.best.keys()
    assert all(torch.equal(value, other.best[key]) for key, value in one.best.items())
    assert differences(unpack(one.held), unpack(other.held)) == []


def inexact(folder: Path) -> list[str]:
    """Why the run in `folder` says that it is not exact, except for an end in the middle of a round."""
    found: list[str] = json.loads((folder / "inexact").read_text())
    return [reason for reason in found if reason != "max_train_iter ended the run in the middle of a round"]
