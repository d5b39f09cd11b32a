"""The serial half of the package on a Python without what macOS and Windows lack, see `bare_platform`."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = """
import copy, os, pathlib, sys

def train(exp_name, manager="base", iterations=4, resume=False):
    from ding.entry import serial_pipeline
    from ding.example.cartpole_dqn import cartpole_dqn_config, cartpole_dqn_create_config

    main, create = copy.deepcopy(cartpole_dqn_config), copy.deepcopy(cartpole_dqn_create_config)
    main.exp_name, create.env_manager.type = exp_name, manager
    main.env.update(collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1)
    main.policy.learn.update(update_per_collect=2, batch_size=8)
    main.policy.collect.n_sample, main.policy.model.encoder_hidden_size_list = 16, [16]
    return serial_pipeline([main, create], seed=0, max_train_iter=iterations, resume=resume)

def files(exp_name):
    return sorted(path.name for path in pathlib.Path(exp_name, "ckpt").iterdir())

if __name__ == "__main__":
"""


def run(code: str, folder: pathlib.Path) -> str:
    """What a program that ends with `code` prints, in a process of its own."""
    script = folder / "program.py"
    script.write_text(PROGRAM + "".join(f"    {line}\n" for line in code.strip().splitlines()), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests' / 'bare_platform'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_shim_takes_away_what_it_says(tmp_path):
    told = run(
        """
import multiprocessing, signal
print([hasattr(os, name) for name in ("fork", "pidfd_open")], hasattr(signal, "SIGKILL"))
print(multiprocessing.get_all_start_methods())
for deed in (lambda: __import__("fcntl"), lambda: open("/proc/stat"), lambda: os.listdir("/dev/shm")):
    try:
        deed()
    except (ImportError, FileNotFoundError) as e:
        print(type(e).__name__)
        """,
        tmp_path,
    )
    assert told.splitlines() == [
        "[False, False] False",
        "['spawn']",
        "ModuleNotFoundError",
        "FileNotFoundError",
        "FileNotFoundError",
    ]


def test_a_serial_run_trains_saves_and_resumes(tmp_path):
    told = run(
        """
import ding.worker
train("exp", resume=True)
train("exp", iterations=8, resume=True)
print(files("exp"))
from ding.utils import read_file
print(sorted(read_file("exp/ckpt/iteration_8.pth.tar")))
        """,
        tmp_path,
    )
    lines, checkpoints = told.splitlines(), [f"iteration_{k}.pth.tar" for k in (0, 4, 8)]
    assert f"['ckpt_best.pth.tar', {', '.join(f'{name!r}' for name in checkpoints)}]" in lines
    assert "['last_iter', 'last_step', 'model', 'optimizer', 'target_model', 'target_update_count']" in lines
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("exp")] == ["exp"]


def test_the_command_lists_what_is_registered(tmp_path):
    told = run("from ding.entry.cli import cli\ncli(['list', 'env_manager'], standalone_mode=False)", tmp_path)
    assert {"base", "subprocess", "gym_vector", "env_pool"} <= set(re.findall(r"\w+", told))


@pytest.mark.differs("cannot run envs in processes on Windows", "runs them")
@pytest.mark.slow
@pytest.mark.parametrize("manager", ["subprocess", "async_subprocess"])
def test_a_serial_run_trains_with_envs_in_processes_that_import_everything_anew(manager, tmp_path):
    told = run(f"train('exp', manager={manager!r})\nprint(files('exp'))", tmp_path)
    assert "'ckpt_best.pth.tar', 'iteration_0.pth.tar', 'iteration_4.pth.tar']" in told
