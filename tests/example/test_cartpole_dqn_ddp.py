"""The example for several ranks, as its users start it."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys

import pytest

from ding.example import cartpole_dqn_ddp
from tests.programs import environment

NAME = "ding.example.cartpole_dqn_ddp"


def run(*command, **variables):
    """Exit status and output of a command that ends, with all that it starts, within two minutes."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, env=environment(**variables), start_new_session=True, **streams)
    try:
        # The output ends when the last process that could write to it does.
        out, _ = process.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out


def torchrun(ranks, *command):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return run(*launcher, *command)


def check_solved(status, out):
    assert status == 0, out
    assert out.count("solved: mean return") == 1 and "results are in ./cartpole_dqn_ddp_seed0/" in out
    with open("cartpole_dqn_ddp_seed0/result.pkl", "rb") as file:
        result = pickle.load(file)
    assert result["stop"] and result["eval_value"] >= 195 and len(result["eval_value_raw"]) == 10


def test_without_a_launcher_it_runs_as_one_rank(capsys):
    assert cartpole_dqn_ddp.main(["--seed", "1", "--max-env-step", "64"]) == 1
    assert capsys.readouterr().out.startswith("NOT solved: mean return ")
    assert cartpole_dqn_ddp.main_config.policy.learn.batch_size == 64


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_under_torchrun_it_is_solved_with_exit_status_0(ranks):
    check_solved(*torchrun(ranks, "-m", NAME))


@pytest.mark.slow
def test_alone_it_is_solved_with_exit_status_0():
    check_solved(*run(sys.executable, "-m", NAME))


BROKEN = """
import os, signal
from ding.example import cartpole_dqn_ddp as example
from ding.worker.learner.base_learner import BaseLearner

train = BaseLearner.train

def break_at_30(self, *args, **kwargs):
    if self.rank == 1 and self.train_iter == 30:
        {end}
    return train(self, *args, **kwargs)

BaseLearner.train = break_at_30
raise SystemExit(example.main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("raise ValueError('it has broken')", "ValueError: it has broken"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "Signal 9 (SIGKILL)"),
    ],
)
def test_under_torchrun_a_rank_that_breaks_ends_the_run(end, cause):
    with open("broken.py", "w") as file:
        file.write(BROKEN.format(end=end))
    status, out = torchrun(2, "broken.py")
    assert status == 1 and cause in out and "rank      : 1 (local_rank: 1)" in out
