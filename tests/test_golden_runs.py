"""The tool that records runs as hashes, and tells which of them a change has altered."""

import json

import numpy as np
import pytest
import torch

from tests.benchmarks.golden import differences, digest, main, runs


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array([1.0]), np.array([1.0], np.float32)),
        (np.zeros((2, 1)), np.zeros((1, 2))),
        (torch.tensor([0.0]), torch.tensor([-0.0])),
        ({"a": 1}, {"a": 1.0}),
        ([1, [2]], [[1], 2]),
        ([[1], 2], [[1, 2]]),
        ([1, 23], [12, 3]),
        ([{"a": 1}, {"b": 2}], [{"a": 1, "b": 2}]),
        (torch.zeros(2), np.zeros(2, np.float32)),
        ([True], [1]),
    ],
)
def test_a_hash_tells_values_types_and_shapes_apart(one, other):
    assert digest(one) != digest(other)


@pytest.mark.guarantees("equal-bits")
def test_runs_are_recorded_and_repeat_bit_for_bit(tmp_path, capsys):
    files = [str(tmp_path / name) for name in ("before.json", "after.json")]
    for file in files:
        assert main(["record", file, "battle", "episodes"]) == 0
    before = json.loads((tmp_path / "before.json").read_text())
    assert list(before) == ["battle/samples", "battle/episodes", "episodes", "episodes/samples"]
    assert main(["compare", *files]) == 0
    assert capsys.readouterr().out.endswith("all runs are equal\n")


def test_each_run_that_differs_is_named(tmp_path, capsys):
    before = {"a": {"weights": "0", "buffers": ["1"]}, "b": {"weights": "2"}}
    after = {"a": {"weights": "0", "buffers": ["3"]}, "c": {"weights": "2"}}
    lines = ["a: buffers differ", "b: only in the first record", "c: only in the second record"]
    assert differences(before, after) == lines
    files = [tmp_path / name for name in ("before.json", "after.json")]
    for file, record in zip(files, (before, after), strict=True):
        file.write_text(json.dumps(record))
    assert main(["compare", *map(str, files)]) == 1
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.guarantees("equal-bits")
def test_at_least_ten_policies_and_two_env_managers_are_covered():
    names = [name.split("/") for name in runs()]
    assert len({name for name, *_ in names}) >= 20
    assert {manager for _, *rest in names for manager in rest} >= {"base", "subprocess"}
