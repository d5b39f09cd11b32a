import logging
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ding.config import save
from ding.config.save import claim_experiment, save_project_state


@pytest.fixture
def fixed_time(monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda fmt: "250102_030405")


def test_a_taken_name_gets_the_time_and_then_a_counter(fixed_time):
    names = [claim_experiment("x") for _ in range(4)]
    assert names == ["x", "x_250102_030405", "x_250102_030405_1", "x_250102_030405_2"]
    assert sorted(os.listdir()) == sorted(names)


def test_without_renewal_the_folder_is_used_again():
    os.mkdir("x")
    assert claim_experiment("x", renew=False) == "x"
    assert os.listdir() == ["x"]


@pytest.mark.differs(
    "gives runs that start in the same second one folder, and renames it on rank 0 only",
    "gives each its own folder, with one name on all ranks",
)
def test_runs_that_start_together_get_different_folders(fixed_time):
    with ThreadPoolExecutor(16) as pool:
        names = list(pool.map(claim_experiment, ["x"] * 64))
    assert len(set(names)) == 64


def test_a_file_in_the_way_is_named():
    open("x", "w").close()
    with pytest.raises(NotADirectoryError, match=r"cannot create the experiment folder .*x'.*choose another"):
        claim_experiment("x", renew=False)
    with pytest.raises(OSError, match="cannot create the experiment folder"):
        claim_experiment("x/y")


def test_a_read_only_folder_is_refused(monkeypatch):
    os.mkdir("x")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="read-only"):
        claim_experiment("x", renew=False)


def test_other_ranks_take_the_name_of_rank_0(monkeypatch):
    def broadcast(answer, src):
        answer[0] = "from_rank_0"

    monkeypatch.setattr(save, "get_rank", lambda: 1)
    monkeypatch.setattr(save, "get_world_size", lambda: 2)
    monkeypatch.setattr(save, "broadcast_object_list", broadcast)
    assert claim_experiment("x") == "from_rank_0"
    assert os.listdir() == []


def git(*arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def test_the_git_state_is_written_beside_the_experiment(monkeypatch):
    git("init")
    with open("a.txt", "w") as f:
        f.write("one\n")
    git("add", "a.txt")
    git("commit", "-m", "first commit")
    with open("a.txt", "w") as f:
        f.write("two\n")
    os.makedirs("deep/exp")
    monkeypatch.chdir("deep")
    save_project_state("exp")
    with open("exp/git_log.txt") as f:
        log = f.read()
    with open("exp/git_diff.txt") as f:
        diff = f.read()
    assert "first commit" in log and "a.txt | 1 +" in log
    assert "-one\n+two\n" in diff


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 1)])
def test_without_git_or_with_a_slow_one_the_run_goes_on(monkeypatch, caplog, error):
    def fail(*args, **kwargs):
        raise error

    os.mkdir(".git")
    monkeypatch.setattr(subprocess, "run", fail)
    os.mkdir("exp")
    with caplog.at_level(logging.WARNING, "ding"):
        save_project_state("exp")
    assert "git state is not saved" in caplog.text
    assert os.listdir("exp") == []
