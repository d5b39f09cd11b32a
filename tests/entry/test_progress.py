import io
import itertools
import json
import logging
import math
import os
import pickle
import sys
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from ding.entry.progress import ParallelProgressLine, ProgressLine, _cell
from ding.entry.run_folder import append_evaluation, mean_return, read_evaluations, write_result
from ding.utils.time_helper import PULSE
from ding.worker.collector.base_serial_evaluator import ISerialEvaluator
from ding.worker.coordinator.run_monitor import Progress


@dataclass
class Last:
    train_iter: int = 3
    envstep: int = 40
    returns: tuple = (np.float32(1.5), 2.0)
    lengths: tuple = (np.int64(7), 8)
    seconds: float = 0.25
    success_rate: float | None = None


class Evaluator:
    last_eval = Last()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def result(path):
    with open(path / "result.pkl", "rb") as f:
        return pickle.load(f)


def test_each_evaluation_is_one_json_line(tmp_path):
    for train_iter in (0, 3):
        append_evaluation(str(tmp_path), 7, train_iter, 40, Evaluator(), {"eval_episode_return": [9.0]})
    expected = {"env_step": 40, "seed": 7, "returns": [1.5, 2.0], "lengths": [7, 8], "seconds": 0.25}
    assert lines(tmp_path / "eval.jsonl") == [{"train_iter": 0, **expected}, {"train_iter": 3, **expected}]


def test_a_return_that_is_nan_or_infinite_is_null_in_json_and_nan_again_when_it_is_read(tmp_path):
    info = {"eval_episode_return": [float("inf"), 1.0, float("nan")]}
    append_evaluation(str(tmp_path), 7, 3, 40, SimpleNamespace(last_eval=None), info)
    write_result(str(tmp_path), False, 10, 5, info)
    for file in ("eval.jsonl", "result.json"):
        json.loads((tmp_path / file).read_text(), parse_constant=pytest.fail)
    assert lines(tmp_path / "eval.jsonl")[0]["returns"] == [None, 1.0, None]
    assert np.array_equal(read_evaluations(tmp_path)[0]["returns"], [np.nan, 1.0, np.nan], equal_nan=True)


def test_an_evaluator_without_records_leaves_lengths_null(tmp_path):
    class Own(ISerialEvaluator):
        __init__ = reset = reset_env = reset_policy = close = should_eval = eval = lambda self: None

    append_evaluation(str(tmp_path), 7, 3, 40, Own(), {"eval_episode_return": [np.float32(1.5), np.array([2.0])]})
    assert lines(tmp_path / "eval.jsonl") == [
        {"train_iter": 3, "env_step": 40, "seed": 7, "returns": [1.5, [2.0]], "lengths": None, "seconds": None}
    ]


@pytest.mark.differs("`result.pkl` holds numpy types", "plain Python types")
def test_the_result_holds_plain_python_types(tmp_path):
    info = {"eval_episode_return": [np.float32(1.0), np.float64(2.0)]}
    write_result(str(tmp_path), np.bool_(True), np.int64(10), 5, info)
    found = result(tmp_path)
    assert list(found) == ["stop", "env_step", "train_iter", "eval_value", "eval_value_raw", "finish_time"]
    finish_time = found.pop("finish_time")
    assert found == {"stop": True, "env_step": 10, "train_iter": 5, "eval_value": 1.5, "eval_value_raw": [1.0, 2.0]}
    assert [type(v) for v in found.values()] == [bool, int, int, float, list]
    assert isinstance(finish_time, str)


@pytest.mark.parametrize("info", [None, {}, {"Acc": 1.0}])
def test_without_returns_the_result_is_nan(tmp_path, info):
    write_result(str(tmp_path), False, 0, 0, info)
    found = result(tmp_path)
    assert math.isnan(found["eval_value"]) and found["eval_value_raw"] == []
    assert math.isnan(mean_return(info))


def test_off_a_terminal_there_are_a_table_for_each_evaluation_and_the_outcome(capsys, monkeypatch):
    os.mkdir("a run")
    times = iter([0.0, 0.0, 1.0, 3.0, 4.0, 5.0])
    monkeypatch.setattr("ding.entry.progress.time.perf_counter", lambda: next(times))
    progress = ProgressLine(100)
    progress.begin("dqn", "CartPole-v1", 3, "a run")
    progress.evaluated(9.25, 0, 0)
    progress.advance(10, 2)
    progress.evaluated(7.0, 5, 1000, 123.456, {"cur_lr": 0.001, "q_value": -20.125, "steps": 3})
    progress.finish(True, 195, 6, 1100, 200.5, "a run")
    progress.close()
    assert capsys.readouterr() == (
        "",
        """\
Training dqn on CartPole-v1 with seed 3. Files: ./a run
-------------------------
| eval/          |      |
|    ep_rew_mean | 9.25 |
|    best        | 9.25 |
| time/          |      |
|    iteration   | 0    |
|    env_steps   | 0    |
|    steps_per_s | -    |
|    seconds     | 1    |
-------------------------
--------------------------
| eval/          |       |
|    ep_len_mean | 123.5 |
|    ep_rew_mean | 7     |
|    best        | 9.25  |
| time/          |       |
|    iteration   | 5     |
|    env_steps   | 1000  |
|    steps_per_s | 250   |
|    seconds     | 4     |
| train/         |       |
|    cur_lr      | 0.001 |
|    q_value     | -20.1 |
|    steps       | 3     |
--------------------------
Solved: mean return 200.5 (goal 195) after 1100 env steps, 6 iterations and 5.0 s. Files: ./a run. \
Learning curve: ding plot 'a run'
""",
    )


def test_steps_of_before_a_run_was_resumed_took_none_of_its_time(capsys, monkeypatch):
    os.mkdir("a run")
    times = iter([0.0, 0.0, 1.0, 2.0])
    monkeypatch.setattr("ding.entry.progress.time.perf_counter", lambda: next(times))
    progress = ProgressLine(100)
    progress.begin("dqn", "CartPole-v1", 3, "a run")
    progress.env_steps_before = 900
    progress.evaluated(7.0, 5, 900)
    progress.evaluated(7.0, 6, 1000)
    rates = [line.split("|")[2].strip() for line in capsys.readouterr().err.splitlines() if "steps_per_s" in line]
    assert rates == ["-", "50"]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (99.0, "99"),
        (99.96, "100"),
        (100.0, "100.0"),
        (-123.456, "-123.5"),
        (1e7, "1e+07"),
        (0.00123456, "0.00123"),
        (5, "5"),
    ],
)
def test_large_numbers_have_a_decimal_place_and_others_three_digits(value, cell):
    assert _cell(value) == cell


def test_a_table_stays_a_table_whatever_the_learner_logs(capsys):
    train = {"a\nb": -1e30, "c": math.nan, "d": -math.inf, "e": -12345.67}
    ProgressLine().evaluated(-math.inf, 1, 0, None, train)
    table = capsys.readouterr().err.partition("| train/")[2]
    assert [line.split() for line in table.splitlines()[1:-1]] == [
        ["|", "a", "b", "|", "-1e+30", "|"],
        ["|", "c", "|", "nan", "|"],
        ["|", "d", "|", "-inf", "|"],
        ["|", "e", "|", "-12345.7", "|"],
    ]


def test_a_folder_gets_a_readme_unless_it_has_one(tmp_path):
    line = ProgressLine()
    line.begin("dqn", "CartPole-v1", 3, str(tmp_path))
    readme = tmp_path / "README.md"
    assert f"ding plot {tmp_path.name} " in readme.read_text()
    rows = [row.split(" | ")[0] for row in readme.read_text().splitlines() if row.startswith("| `")]
    assert {"| `metrics.jsonl`, `metrics/`", "| `run_state/`"} <= set(rows)
    readme.write_text("mine")
    line.begin("dqn", "CartPole-v1", 3, str(tmp_path))
    assert readme.read_text() == "mine"


def test_an_unlimited_goal_is_not_told(capsys):
    ProgressLine().finish(False, 1e10, 6, 1100, 200.5, "/run")
    text = capsys.readouterr().err
    assert text.startswith("Over: mean return 200.5 after 1100 env steps") and "Files: /run." in text


def test_an_outcome_says_which_iteration_was_evaluated_if_it_is_not_the_last(capsys):
    for reached, evaluated in ((200.5, 6), (200.5, None), (200.5, 4), (math.nan, None)):
        ProgressLine().finish(False, 1e10, 6, 1100, reached, "/run", evaluated_iter=evaluated)
    told = [line.partition(" after")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == ["Over: mean return 200.5"] * 2 + ["Over: mean return 200.5 at iteration 4", "Over: mean return -"]


def test_its_logger_silences_the_report(capsys):
    logger = logging.getLogger("ding.progress")
    progress = ProgressLine()
    level = logger.level
    logger.setLevel(logging.WARNING)
    progress.say("a line")
    ProgressLine().say("a line")
    logger.setLevel(level)
    assert capsys.readouterr().err == ""


def test_a_nan_is_never_the_best_return(capsys):
    progress = ProgressLine()
    progress.evaluated(math.nan, 0, 0)
    progress.evaluated(-1.0, 1, 0)
    cells = [line.split("|")[1:3] for line in capsys.readouterr().err.splitlines() if line.startswith("| ")]
    found = [cell.strip() for name, cell in cells if name.strip() in ("ep_rew_mean", "best")]
    assert found == ["nan", "-", "-1", "-1"]


class Terminal:
    """Standard error as a terminal, and a clock that is set by hand."""

    def __init__(self, capsys, monkeypatch):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("ding.entry.progress.time.perf_counter", lambda: self.now_s)
        self.now_s = 0.0
        self._capsys = capsys

    def lines(self):
        """The states of the live line since the last call, one after the other, without what stands above it."""
        written = [line.strip() for line in self._capsys.readouterr().err.split("\r") if "iteration " in line]
        return [line for line, _ in itertools.groupby(written)]


def test_the_live_line_shows_counts_rate_returns_and_time_left(capsys, monkeypatch):
    terminal = Terminal(capsys, monkeypatch)
    threads = threading.active_count()
    progress = ProgressLine(1000, max_train_iter=500)
    shown = []
    moments = (0, 0, 0, 3.0), (1, 40, 4, None), (2, 100, 60, None), (4, 100, 60, 2)
    for second, env_steps, iteration, returned in moments:
        terminal.now_s = second
        if returned is None:
            progress.advance(env_steps, iteration)
        else:
            progress.evaluated(returned, iteration, env_steps)
        shown += terminal.lines()[-1:]
    progress.close()
    progress.close()
    assert shown == [
        "iteration 0/500, 0 iterations/s, return 3.0 (best 3.0)",
        "iteration 4/500, env step 40/1000, 40 steps/s, return 3.0 (best 3.0), 0:00:24 left",
        "iteration 60/500, env step 100/1000, 50 steps/s, return 3.0 (best 3.0), 0:00:14 left",
        "iteration 60/500, env step 100/1000, 25 steps/s, return 2.0 (best 3.0), 0:00:29 left",
    ]
    assert threading.active_count() <= threads


def test_a_run_without_a_budget_shows_no_time_left_and_one_without_envs_iterations_per_second(capsys, monkeypatch):
    terminal = Terminal(capsys, monkeypatch)
    shown = []
    for limits, env_steps in (({}, 50), ({"max_train_iter": 9000}, 0)):
        line = ProgressLine(**limits)
        line.advance(0, 0)
        terminal.now_s += 2.0
        line.advance(env_steps, 20)
        line.close()
        shown += terminal.lines()
    assert shown == [
        "iteration 0, 0 iterations/s, return - (best -)",
        "iteration 20, env step 50, 25 steps/s, return - (best -)",
        "iteration 0/9000, 0 iterations/s, return - (best -)",
        "iteration 20/9000, 10 iterations/s, return - (best -), 0:14:58 left",
    ]


def test_the_live_line_is_written_at_most_four_times_a_second(capsys, monkeypatch):
    terminal = Terminal(capsys, monkeypatch)
    progress = ProgressLine(100_000)
    for tick in range(1001):
        terminal.now_s = tick / 1000
        progress.advance(tick, tick)
    progress.close()
    assert [line.split(",")[0] for line in terminal.lines()] == [f"iteration {i}" for i in (0, 250, 500, 750, 1000)]


def test_rates_are_of_about_the_last_half_minute(capsys, monkeypatch):
    terminal = Terminal(capsys, monkeypatch)
    progress = ProgressLine()
    for second in range(0, 100, 5):
        terminal.now_s = second
        progress.advance(1000 if second < 50 else 1000 + 10 * (second - 50), second)
    progress.close()
    assert "env step 1450, 10 steps/s" in terminal.lines()[-1]


def test_a_rank_that_does_not_monitor_has_no_progress_line(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    progress = ProgressLine(100, enabled=False)
    progress.begin("dqn", "CartPole-v1", 3, "run")
    progress.evaluated(1.0, 1, 1)
    progress.advance(40, 5)
    progress.finish(False, 1.0, 5, 40, 1.0, "run")
    progress.close()
    assert capsys.readouterr().err == ""


class Clock:
    """Counts seconds for the progress and its pulse; no terminal."""

    def __init__(self, monkeypatch):
        self.now_s = 0.0
        monkeypatch.setattr("ding.entry.progress.time.perf_counter", lambda: self.now_s)
        monkeypatch.setattr("ding.utils.time_helper.perf_counter", lambda: self.now_s)


def test_off_a_terminal_a_line_is_printed_every_30_seconds(capsys, monkeypatch):
    clock = Clock(monkeypatch)
    line = ProgressLine(1000, max_train_iter=10_000)
    line.watch(lambda: (0, 0))
    for second in range(0, 91, 10):
        clock.now_s = float(second)
        line.advance(10 * second, 2 * second)
    line.close()
    assert capsys.readouterr().err.splitlines() == [
        "After 0:00:30: iteration 60/10000, env step 300/1000, 10 steps/s, return - (best -), 0:01:10 left",
        "After 0:01:00: iteration 120/10000, env step 600/1000, 10 steps/s, return - (best -), 0:00:40 left",
        "After 0:01:30: iteration 180/10000, env step 900/1000, 10 steps/s, return - (best -), 0:00:10 left",
    ]


def test_within_a_long_round_the_pulse_shows_what_is_done(capsys, monkeypatch):
    clock = Clock(monkeypatch)
    line = ProgressLine(1000)
    line.watch(lambda: (40, 7))
    assert PULSE.due == 30.0
    clock.now_s = 31.0
    PULSE.beat(512)
    assert PULSE.due == 61.0
    with line.evaluating():
        PULSE.beat(20)
    PULSE.beat()  # of an update
    line.close()
    assert PULSE.due == math.inf
    totals = "After 0:00:31: iteration 7, env step 40/1000, 0 steps/s, return - (best -)"
    assert capsys.readouterr().err.splitlines() == [
        f"{totals}; collecting, 512 steps so far", f"{totals}; evaluating, 20 steps so far", totals,
    ]  # fmt: skip


def test_a_silenced_rank_has_no_pulse(capsys):
    line = ProgressLine(enabled=False)
    line.watch(lambda: (0, 0))
    assert PULSE.due == math.inf
    line.close()


class Unready:
    """Has no `isatty`, and fails to write."""

    def write(self, text):
        raise OSError("gone")


@pytest.mark.parametrize("stream", [None, Unready(), io.StringIO()], ids=["none", "unready", "closed"])
def test_without_a_standard_error_a_run_goes_on(stream, monkeypatch):
    if isinstance(stream, io.StringIO):
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    for line in (ProgressLine(10), ParallelProgressLine(10)):
        line.say("text")
        line.close()


def test_after_a_run_within_a_run_the_pulse_is_that_of_the_outer_one(monkeypatch, capsys):
    clock = Clock(monkeypatch)
    outer, inner = ProgressLine(1000), ProgressLine(50)
    outer.watch(lambda: (40, 7))
    clock.now_s = 10.0
    inner.watch(lambda: (3, 1))
    inner.close()
    assert PULSE.due == 40.0
    clock.now_s = 41.0
    PULSE.beat()
    assert "env step 40/1000" in capsys.readouterr().err and PULSE.due == 71.0
    outer.close()
    assert PULSE.due == math.inf


def test_only_the_run_that_has_started_it_stops_the_pulse():
    first, second = ProgressLine(), ProgressLine()
    first.watch(lambda: (0, 0))
    second.watch(lambda: (0, 0))
    first.close()
    assert PULSE.due < math.inf
    second.close()
    assert PULSE.due == math.inf


def progress_of(samples, train_iter, last=None, best=None):
    return Progress(
        samples=samples, env_steps=2 * samples, train_iter=train_iter, policy_lag=3, last_return=last, best_return=best
    )


def test_the_line_of_a_parallel_run_shows_rates_lag_and_returns(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    times = iter([0.0, 10.0, 11.0, 12.0, 20.0])
    monkeypatch.setattr("ding.entry.progress.time.perf_counter", lambda: next(times))
    line = ParallelProgressLine()
    line.say("a line above")
    assert "a line above\n" in capsys.readouterr().err
    shown = []
    for progress in (progress_of(0, 0), progress_of(100, 10), progress_of(400, 30, 5.0, 7.25), progress_of(1200, 110)):
        line.show(progress)
        shown.append(capsys.readouterr().err.split("\r")[-1].strip())
    line.close()
    line.close()
    assert shown == [
        "0 steps, 0 samples/s, 0 iter, 0 updates/s, policy lag 3, return -, best -",
        "200 steps, 100 samples/s, 10 iter, 10 updates/s, policy lag 3, return -, best -",
        "800 steps, 200 samples/s, 30 iter, 15 updates/s, policy lag 3, return 5.0, best 7.2",
        "2400 steps, 100 samples/s, 110 iter, 10 updates/s, policy lag 3, return -, best -",
    ]


def test_off_a_terminal_the_line_of_a_parallel_run_is_printed_every_30_seconds(capsys, monkeypatch):
    clock = Clock(monkeypatch)
    line = ParallelProgressLine(max_env_step=2000)
    line.say("a line above")
    for second in range(0, 61, 10):
        clock.now_s = float(second)
        line.show(progress_of(10 * second, second))
    line.close()
    policy = "policy lag 3, return -, best -"
    assert capsys.readouterr() == (
        "",
        "a line above\n"
        f"After 0:00:30: 600 steps, 10 samples/s, 30 iter, 1 updates/s, {policy}, 0:01:10 left\n"
        f"After 0:01:00: 1200 steps, 10 samples/s, 60 iter, 1 updates/s, {policy}, 0:00:40 left\n",
    )
