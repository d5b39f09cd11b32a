import json
import math
import os
import pickle
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from ding.entry.progress import ProgressLine
from ding.entry.run_folder import append_evaluation, read_evaluations, write_result


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


def test_the_result_holds_plain_python_types(tmp_path):
    info = {"eval_episode_return": [np.float32(1.0), np.float64(2.0)]}
    write_result(str(tmp_path), np.bool_(True), np.int64(10), 5, info)
    found = result(tmp_path)
    assert list(found) == ["stop", "env_step", "train_iter", "eval_value", "eval_value_raw", "finish_time"]
    finish_time = found.pop("finish_time")
    assert found == {"stop": True, "env_step": 10, "train_iter": 5, "eval_value": 1.5, "eval_value_raw": [1.0, 2.0]}
    assert [type(v) for v in found.values()] == [bool, int, int, float, list]
    assert isinstance(finish_time, str)


def test_off_a_terminal_there_are_a_table_for_each_evaluation_and_the_outcome(capsys):
    os.mkdir("a run")
    progress = ProgressLine(100)
    progress.begin("dqn", "CartPole-v1", 3, "a run")
    progress.evaluated(9.25, 0, 0)
    progress.advance(10, 2)
    progress.evaluated(7.0, 5, 1000, 123.456, {"cur_lr": 0.001, "q_value": -20.125, "steps": 3})
    progress.finish(True, 195, 6, 1100, 200.5, "a run")
    progress.close()
    out, err = capsys.readouterr()
    first, *tables, last = err.splitlines()
    assert out == "" and first == "Training dqn on CartPole-v1 with seed 3. Files: ./a run"
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in tables if line.startswith("|")]
    shown = [row for row in rows if row[0] not in ("steps_per_s", "seconds")]
    assert shown[:6] == [
        ["eval/", ""],
        ["ep_rew_mean", "9.25"],
        ["best", "9.25"],
        ["time/", ""],
        ["iteration", "0"],
        ["env_steps", "0"],
    ]
    assert [row for row in shown[6:] if row[1]] == [
        ["ep_len_mean", "123.5"], ["ep_rew_mean", "7"], ["best", "9.25"], ["iteration", "5"], ["env_steps", "1000"],
        ["cur_lr", "0.001"], ["q_value", "-20.1"], ["steps", "3"],
    ]  # fmt: skip
    assert last.startswith("Solved: mean return 200.5 (goal 195) after 1100 env steps, 6 iterations and ")


def test_a_nan_is_never_the_best_return(capsys):
    progress = ProgressLine()
    progress.evaluated(math.nan, 0, 0)
    progress.evaluated(-1.0, 1, 0)
    cells = [line.split("|")[1:3] for line in capsys.readouterr().err.splitlines() if line.startswith("| ")]
    found = [cell.strip() for name, cell in cells if name.strip() in ("ep_rew_mean", "best")]
    assert found == ["nan", "-", "-1", "-1"]
