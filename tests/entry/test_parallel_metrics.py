"""The metrics of a parallel run: which rows the sinks get, in which process, and what a resumed run does with them."""

import json
import os

import pytest

from ding.entry.parallel_run import ParallelMetrics, run_parallel
from ding.utils import metric_sinks
from ding.utils.metric_sinks import METRIC_SINK_REGISTRY, MetricSink
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.registry_factory import Registry
from tests.entry.parallel_fakes import triple
from tests.worker.coordinator.fakes import finish_info

DEADLINE_S = 120


class SeenSink(MetricSink):
    """Writes what happens to it to the file `seen`, and fails as its settings say."""

    def __init__(self, run, settings):
        self._settings = settings
        self._note("open")

    def _note(self, what):
        with open("seen", "a") as file:
            file.write(f"{os.getpid()} {what}\n")

    def write(self, records):
        if self._settings.get("fails"):
            raise ZeroDivisionError("the sink was told to fail")
        self._note(f"write {len(records)}")

    def close(self):
        self._note("close")


@pytest.fixture(autouse=True)
def _own_sink(monkeypatch):
    own = Registry({**METRIC_SINK_REGISTRY, "seen_by_test": SeenSink})
    monkeypatch.setattr(metric_sinks, "METRIC_SINK_REGISTRY", own)


def records():
    with open("exp/metrics.jsonl") as file:
        return [json.loads(line) for line in file]


def seen():
    with open("seen") as file:
        return file.read().split("\n")[:-1]


@pytest.fixture
def make():
    made = []

    def make(**settings):
        logger = {"sinks": ["seen_by_test"], "seen_by_test": settings}
        made.append(ParallelMetrics({"exp_name": "exp", "logger": logger}))
        return made[-1]

    yield make
    for metrics in made:
        metrics.close()


def averages(*iterations):
    return [{"train_iter": n, "values": {"loss_avg": n / 2}} for n in iterations]


def test_each_row_has_its_worker_and_its_position(make):
    metrics = make()
    metrics.add_evaluation(finish_info(True, train_iter=[3, 5], reward_mean=1.5), env_step=40)
    metrics.add_averages(averages(0, 100), env_step=50)
    metrics.close()
    metrics.add_averages(averages(200), env_step=60)  # too late
    evaluation, *training = records()
    assert [evaluation.pop(key) for key in ("worker", "train_iter", "env_step")] == ["evaluator", 5, 40]
    assert evaluation == {
        "episode_count": 1,
        "step_count": 10,
        "reward_mean": 1.5,
        "reward_std": 0.0,
        **dict.fromkeys(("avg_step_per_episode", "avg_time_per_step", "avg_time_per_episode"), 1.0),
    }
    assert training == [
        {"worker": "learner", "train_iter": 0, "env_step": 50, "loss_avg": 0.0},
        {"worker": "learner", "train_iter": 100, "env_step": 50, "loss_avg": 50.0},
    ]


def test_iterations_that_a_restarted_learner_trains_again_are_not_written_again(make):
    metrics = make()
    for iterations in ((0, 100), (100, 200), (0, 300)):
        metrics.add_averages(averages(*iterations), env_step=1)
    metrics.close()
    assert [record["train_iter"] for record in records()] == [0, 100, 200, 300]


def test_a_resumed_run_removes_the_rows_after_its_state(make):
    first = make()
    first.add_averages(averages(0, 100), env_step=1)
    state = unpack(pack(first.state_dict()))
    first.add_averages(averages(200), env_step=2)
    first.close()
    assert len(records()) == 3
    second = make()
    second.load_state_dict(state)
    assert second.state_dict() == state
    second.add_averages(averages(100, 200), env_step=3)
    second.close()
    assert [(record["train_iter"], record["env_step"]) for record in records()] == [(0, 1), (100, 1), (200, 3)]


# Whole runs.


def configs(comm="flask_fs", **changes):
    main, create, system = triple(comm, policy__other__commander__eval_interval=0.01, **changes)
    main.logger = {"sinks": ["csv", "seen_by_test"], "seen_by_test": {"fails": changes.get("fails", False)}}
    main.policy.learn.learner = {"hook": {"log_show_after_iter": 10}}
    return main, create, system


@pytest.mark.parametrize("comm", ["flask_fs", "local"])
def test_the_sinks_get_the_evaluations_and_the_averages_of_the_learner(comm):
    run_parallel(configs(comm), seed=0, max_train_iter=35, max_seconds=DEADLINE_S)
    found = records()
    with open("exp/eval.jsonl") as file:
        evaluations = [json.loads(line) for line in file]
    assert [
        (row["train_iter"], row["env_step"], row["reward_mean"]) for row in found if row["worker"] == "evaluator"
    ] == [(row["train_iter"], row["env_step"], sum(row["returns"]) / 2) for row in evaluations]
    learned = [row for row in found if row["worker"] == "learner"]
    assert [row["train_iter"] for row in learned] == [0, 10, 20, 30]
    assert all(row["total_loss_avg"] > 0 and row["env_step"] > 0 for row in learned)
    me = os.getpid()
    opened, *written, closed = seen()
    assert (opened, closed) == (f"{me} open", f"{me} close")
    assert all(line.startswith(f"{me} write ") for line in written)
    assert sum(int(line.split()[-1]) for line in written) == len(found)
    with open("exp/metrics/learner.csv") as file:
        assert len(file.readlines()) == 1 + len(learned)


def test_the_sinks_close_when_the_run_fails():
    with pytest.raises(Exception, match="the policy was told to fail in learn"):
        run_parallel(configs("local", policy__fail_in="learn"), seed=0, max_seconds=DEADLINE_S)
    assert seen()[-1] == f"{os.getpid()} close" and seen().count(f"{os.getpid()} close") == 1
    assert records()[0]["worker"] in ("evaluator", "learner")


@pytest.mark.slow
def test_a_run_goes_on_without_a_sink_that_raises():
    main, create, system = configs("local")
    main.logger["seen_by_test"] = {"fails": True}
    run_parallel((main, create, system), seed=0, max_train_iter=20, max_seconds=DEADLINE_S)
    assert [row["train_iter"] for row in records() if row["worker"] == "learner"][:2] == [0, 10]
