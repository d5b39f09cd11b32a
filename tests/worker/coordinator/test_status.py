"""What is told of a run: the record, its JSON, and who gets it over HTTP."""

import json
import math
import os
from types import SimpleNamespace

import pytest
import requests

from ding.interaction.http_client import get_host_ip
from ding.worker.coordinator.buffer_set import BufferSet
from ding.worker.coordinator.limiter import SampleLimiter
from ding.worker.coordinator.run_monitor import RunMonitor
from ding.worker.coordinator.scheduler import TaskState
from ding.worker.coordinator.status import read_status
from ding.worker.coordinator.worker_table import Worker, WorkerTable
from ding.worker.transport.transport import TaskFailed, WorkerLost
from tests.interaction.fakes import configure_tls
from tests.worker.coordinator.fakes import (
    LOGGER,
    PATIENCE_S,
    collector_task,
    finish_info,
    learner_task,
    rows,
)

SECRET = "s3cret-" + "x" * 40


class ScriptedLink:
    def silence_s(self):
        return 1.5


class ScriptedComm:
    """Workers and running tasks as the test wants them."""

    def __init__(self):
        self.workers = WorkerTable()

    def join(self, kind, name, task=None):
        worker = Worker(kind, name, ScriptedLink(), {}, f"10.0.0.1:{len(name)}")
        self.workers.join(worker)
        if task is not None:
            assert self.workers.take(kind, task) is worker
        return worker


class ScriptedScheduler:
    def __init__(self):
        self.running = {}

    def waiting_counts(self):
        return {"learner": 1, "collector": 2}


class Scripted:
    """A run whose parts the test sets."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr("ding.worker.coordinator.status.monotonic", lambda: self.now)
        self.state, self.comm, self.scheduler = RunMonitor(1000, lambda: self.now), ScriptedComm(), ScriptedScheduler()
        self.state._started_at = "2030-01-02T03:04:05+00:00"
        self.buffer_set = BufferSet("exp", None, LOGGER)

    def json(self, is_closed=False):
        told = read_status("my run", self.state, self.buffer_set, self.comm, self.scheduler, is_closed).to_json()
        assert json.loads(json.dumps(told, allow_nan=False)) == told
        return told


@pytest.fixture
def run(monkeypatch):
    run = Scripted(monkeypatch)
    yield run
    run.buffer_set.close()


def test_the_status_of_a_run_in_full(run):
    run.comm.join("collector", "c0", collector_task("collect"))
    run.comm.join("collector", "c1", collector_task("evaluate", is_eval=True))
    run.comm.join("collector", "c2", collector_task("at its end"))  # the coordinator knows it no more
    run.comm.workers.leave(run.comm.join("collector", "c3"))
    run.comm.workers.leave(run.comm.join("learner", "l0"))
    run.comm.join("learner", "l0", learner_task("train"))  # it came back
    run.scheduler.running.update(
        train=TaskState("train", 100.0), evaluate=TaskState("evaluate", 102.0), collect=TaskState("collect", 101.0)
    )
    run.buffer_set.open("buffer", {"type": "advanced", "replay_buffer_size": 8})
    run.buffer_set.push("buffer", rows("chunk", 6))
    run.buffer_set.sample("train", "buffer", 2, 0)
    run.buffer_set.create_limiter = lambda: SampleLimiter(2.0, 8)
    run.buffer_set.open("own", {"type": "advanced", "replay_buffer_size": 8})
    run.buffer_set.buffers["own"] = SimpleNamespace(count=lambda: 5, close=list)  # without a capacity
    run.now = 104.0
    run.state.take_samples("collect", 6, {"policy_iter": 3, "cur_step": 9})
    run.state.take_learner_info({"learner_step": 0})
    run.state.take_learner_info({"learner_step": 9})
    run.state.take_collector_end("evaluate", finish_info(True, reward_mean=2.5, train_iter=3))
    run.state.count_stalled_task()
    run.state.add_error("broken")
    assert run.json() == {
        "name": "my run",
        "started_at": "2030-01-02T03:04:05+00:00",
        "seconds": 4.0,
        "is_over": False,
        "is_failed": False,
        "reason": None,
        "progress": {
            "samples": 6, "env_steps": 9, "train_iter": 10, "policy_lag": 7, "last_return": 2.5, "best_return": 2.5,
        },
        "samples_per_s": 1.5,
        "updates_per_s": 2.5,
        "workers": [
            {
                "kind": kind, "name": name, "address": "10.0.0.1:2", "state": state, "task_id": task,
                "silence_s": 1.5, "restarts": restarts,
            }
            for kind, name, state, task, restarts in (
                ("learner", "l0", "busy", "train", 1),
                ("collector", "c0", "busy", "collect", 0),
                ("collector", "c1", "busy", "evaluate", 0),
                ("collector", "c2", "busy", "at its end", 0),
                ("collector", "c3", "lost", None, 0),
            )
        ],
        "tasks": [
            {"task_id": "train", "kind": "learner", "worker": "l0", "is_eval": False, "seconds": 4.0},
            {"task_id": "collect", "kind": "collector", "worker": "c0", "is_eval": False, "seconds": 3.0},
            {"task_id": "evaluate", "kind": "collector", "worker": "c1", "is_eval": True, "seconds": 2.0},
        ],
        "queues": {"learner_tasks": 1, "collector_tasks": 2, "batches": 1},
        "buffers": [
            {
                "buffer_id": "buffer", "size": 6, "capacity": 8, "fraction": 0.75,
                "samples_per_insert": None, "drawn_per_insert": 2 / 6,
            },
            {
                "buffer_id": "own", "size": 5, "capacity": 0, "fraction": 0.0,
                "samples_per_insert": 2.0, "drawn_per_insert": 0.0,
            },
        ],
        "stalled_tasks": 1,
        "evaluations": [{"env_step": 9, "train_iter": 3, "mean_return": 2.5, "seconds": 4.0}],
        "errors": [{"text": "broken", "seconds": 4.0}],
    }  # fmt: skip


def test_numbers_that_json_has_not_are_null(run):
    run.state.take_collector_end("evaluate", finish_info(True, reward_mean=math.nan))
    told = run.json()
    assert told["evaluations"][0]["mean_return"] is None and told["progress"]["last_return"] is None


@pytest.mark.parametrize(
    ("end", "is_over", "is_failed", "reason"),
    [
        (lambda state: state.end(reason="solved"), True, False, "solved"),
        (lambda state: state.end(WorkerLost("c0 is gone")), True, True, "c0 is gone"),
        (
            lambda state: state.end(TaskFailed("c0", "collect", {"traceback": "Traceback: its own"})),
            True,
            True,
            "worker c0 failed the task collect: Traceback: its own",
        ),
        (lambda state: state.end(ValueError("no")), True, True, "ValueError: no\n"),
        (lambda state: None, False, False, None),
    ],
)
def test_whether_and_why_a_run_is_over(run, end, is_over, is_failed, reason):
    end(run.state)
    run.now += 5
    told = run.json()
    assert (told["is_over"], told["is_failed"], told["reason"]) == (is_over, is_failed, reason)
    assert told["seconds"] == (0.0 if is_over else 5.0)
    assert run.json(is_closed=True)["is_over"]
    assert run.json(is_closed=True)["reason"] == (reason or "it was closed")


# Over HTTP.


def get(url, **headers):
    return requests.get(url, headers=headers, timeout=PATIENCE_S)


@pytest.mark.differs(
    "shows the state of a parallel run only in the logs of each process",
    "reports it by `status()`, as JSON at `/status`, and on a page",
)
def test_over_http_the_status_is_served_as_json(make):
    coordinator = make(transport="flask_fs", host="127.0.0.1")
    assert coordinator.url is None
    coordinator.start()
    reply = get(f"{coordinator.url}status")
    assert (reply.status_code, reply.headers["Content-Type"]) == (200, "application/json")
    told, own = reply.json(), coordinator.status().to_json()
    assert own.pop("seconds") >= told.pop("seconds") >= 0
    assert told == own


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_with_a_token_strangers_get_a_401_whose_page_asks_for_it(make, monkeypatch, set_env, tmp_path, host):
    set_env(DING_TOKEN=SECRET)
    if host != "127.0.0.1":
        configure_tls(monkeypatch, tmp_path, f"IP:{get_host_ip()}")
        set_env(REQUESTS_CA_BUNDLE=os.environ["DING_TLS_CA"])
    coordinator = make(transport="flask_fs", host=host)
    coordinator.start()
    page = get(coordinator.url)
    assert page.status_code == 401 and page.text.startswith("<!doctype html>")
    assert get(coordinator.url, Authorization=f"Bearer {SECRET}").status_code == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"token={SECRET}"}):
        reply = get(f"{coordinator.url}status", **headers)
        assert (reply.status_code, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert get(f"{coordinator.url}status?token={SECRET}").status_code == 401
    reply = get(f"{coordinator.url}status", Authorization=f"Bearer {SECRET}")
    assert reply.json()["name"] == "exp" and SECRET not in reply.text + page.text
