"""The parallel examples, run as users run them."""

import os

import pytest

from ding.example import cartpole_dqn_parallel
from tests.programs import printed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole_dqn_parallel", "goofspiel_parallel"])
def test_an_example_reaches_its_stop_value_and_says_where_its_files_are(name, tmp_path):
    output = printed("-m", f"ding.example.{name}", "--seed", "0")
    assert output.startswith("solved: mean return") and f"results are in ./{name}_seed0/" in output
    assert {"ckpt", "eval.jsonl", "result.pkl", "total_config.py"} < set(os.listdir(tmp_path / f"{name}_seed0"))


def test_a_run_that_is_not_solved_in_time_has_another_status(capsys):
    assert cartpole_dqn_parallel.main(["--max-seconds", "0.001"]) == 1
    assert capsys.readouterr().out.startswith("NOT solved: mean return - (stop value 195); results are in .")
