"""`ding train` with several seeds: in turn, and in processes of their own by `--jobs`."""

import signal
import subprocess
import sys

import pytest

from ding.entry import cli_modes
from ding.entry.run_folder import RunFolder
from tests.programs import ding

CONFIG = """
main_config = dict(
    exp_name="own",
    env=dict(env_id="CartPole-v1", collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1),
    policy=dict(nstep=1, learn=dict(update_per_collect=1, batch_size=8), collect=dict(n_sample=8)),
)
create_config = dict(env=dict(type="gymnasium"), env_manager=dict(type="base"), policy=dict(type="dqn"))
"""
QUICK = ["--set", "batch_size=8", "--set", "env.n_evaluator_episode=1", "--recipe", "none"]


@pytest.fixture(autouse=True)
def config_file(tmp_path):
    (tmp_path / "config.py").write_text(CONFIG)


@pytest.mark.parametrize(
    ("words", "folders"),
    [
        (["--seed", "0", "2", "1"], {0: "own_seed0", 2: "own_seed2", 1: "own_seed1"}),
        (["-s", "3", "-s", "5", "4"], {3: "own_seed3", 5: "own_seed5", 4: "own_seed4"}),
        (["--seed", "1", "2", "--exp-name", "mine"], {1: "mine_seed1", 2: "mine_seed2"}),
        (["--seed", "7"], {7: None}),
        (["--seed", "7", "--exp-name", "mine"], {7: "mine"}),
    ],
)
def test_each_of_several_seeds_has_a_folder_of_its_own(monkeypatch, words, folders):
    trained = {}
    monkeypatch.setattr(
        cli_modes, "train_config", lambda config, seed, *_, exp_name, **__: trained.update({seed: exp_name})
    )
    ding("train", "config.py", *words)
    assert trained == folders and list(trained) == list(folders)


@pytest.mark.slow
def test_several_seeds_train_at_the_same_time():
    words = ["dqn", "CartPole-v1", "--env-step", "16", "--exp-name", "run", "--no-strict-config", *QUICK]
    output = ding("train", *words, "--seed", "0", "1", "2", "--jobs", "2")
    for seed in range(3):
        run = RunFolder(f"run_seed{seed}")
        assert (run.seed, run.result()["env_step"], run.compiled.policy.learn.batch_size) == (seed, 16, 8)
        assert f"seed {seed} | Training dqn on CartPole-v1 with seed {seed}. Files: ./run_seed{seed}" in output


def test_seeds_that_fail_are_named_and_leave_the_others_alone(monkeypatch):
    script = "import sys; sys.exit('no luck' if sys.argv[-1] == '--seed=1' else 0)"
    monkeypatch.setattr(cli_modes, "_COMMAND", (sys.executable, "-c", script))
    words = ["dqn", "CartPole-v1", "--env-step", "16", "--seed", "0", "1", "2", "--jobs", "2"]
    output = ding("train", *words, status=1)
    assert "seed 1 | no luck" in output
    assert output.splitlines()[-1] == "Error: of the seeds [0, 1, 2], [1] have failed; their output is above"


@pytest.mark.guarantees("signals")
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_seeds_which_then_resume(number):
    command = [sys.executable, "-m", "ding.entry.cli", "train", "config.py", "--seed", "0", "1", "--jobs", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as training:
        has_begun = set()
        lines = iter(training.stderr.readline, "")
        while len(has_begun) < 2:  # an evaluation of each
            line = next(lines)
            if "ep_rew_mean" in line:
                has_begun.add(line.split()[1])
        training.send_signal(number)
        output = training.stderr.read()
        assert training.wait(60) == 130, output
    for seed in (0, 1):
        assert f"seed {seed} | received SIGTERM: saving a checkpoint, then leaving" in output
        assert RunFolder(f"own_seed{seed}").checkpoint("interrupt")
    again = ding("train", "config.py", "--seed", "0", "1", "--jobs", "2", "--resume", "--train-iter", "1")
    assert "seed 1 | Over: " in again
