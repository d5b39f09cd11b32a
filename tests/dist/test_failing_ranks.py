"""A rank that ends takes the others with it, soon."""

import os
import subprocess
import sys
import time

import pytest

from tests.fork_server import ROOT
from tests.ranks import run_ranks

SOON_S = 20
BROKEN = "ValueError: the env has broken"
# When the rank ends: before an operation in which the others wait, after one, or with operations of its own under way.
WHERE = ["before", "after", "pending"]


def check_ended(rank):
    assert rank.status == 1 and "broke: " in rank.err and "another rank has ended or left the group" in rank.err, rank


@pytest.mark.differs(
    "leaves the other ranks waiting, for up to 60000 s, if one fails or has no batch in its buffer",
    "ends them, or skips the update on all; `dist_init` waits 1800 s, or `timeout`",
)
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_rank_that_fails_or_is_killed_ends_the_other(tmp_path, where, victim, how):
    ranks = run_ranks("fail", how, where, victim, folder=tmp_path, deadline_s=SOON_S)
    assert ranks[victim].status == -9 if how == "kill" else ranks[victim].status == 1 and BROKEN in ranks[victim].err
    check_ended(ranks[1 - victim])


# Rank 0 comes to no operation; it handles SIGTERM, as the pipelines do.
COMPUTING_SCRIPT = """
import os, pathlib, signal, time

from ding.torch_utils.checkpoint_helper import guard_training
from ding.utils import DDPContext, allreduce_data, get_rank

with DDPContext("gloo"), guard_training(lambda name: pathlib.Path(name).touch()):
    allreduce_data(1, "sum")
    if get_rank() == 1:
        pathlib.Path("killed").write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(0.1)
"""


@pytest.mark.slow
def test_torchrun_ends_a_rank_that_computes_on_within_half_a_minute(tmp_path):
    (tmp_path / "script.py").write_text(COMPUTING_SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, cwd=tmp_path, env=environment, timeout=100, capture_output=True, text=True)
    assert time.time() - float((tmp_path / "killed").read_text()) < 30
    assert run.returncode == 1 and "rank      : 1 (local_rank: 1)" in run.stderr
    assert (tmp_path / "ckpt_interrupt.pth.tar").exists()


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_ranks_started_by_hand_end_with_the_one_that_hosts_their_store(tmp_path, how):
    ranks = run_ranks("fail", how, "before", 0, folder=tmp_path, deadline_s=SOON_S, own_store=True)
    check_ended(ranks[1])


@pytest.mark.slow
def test_a_rank_that_hangs_is_found_by_the_timeout(tmp_path):
    ranks = run_ranks("hang", str(tmp_path), folder=tmp_path, deadline_s=SOON_S)
    assert ranks[0].status == 1 and "a rank hangs, or takes longer than the timeout of dist_init" in ranks[0].err
    check_ended(ranks[1])


@pytest.mark.slow
def test_a_rank_whom_nobody_meets_says_where_it_waited(tmp_path):
    ranks = run_ranks("meet_nobody", folder=tmp_path, deadline_s=SOON_S, own_store=True)
    assert ranks[0].status == 1
    assert "rank 0 could not join the other ranks of 2 at 127.0.0.1:" in ranks[0].err and "within 1 s" in ranks[0].err


@pytest.mark.parametrize("own_store", [False, True])
def test_a_group_can_be_joined_again(tmp_path, own_store):
    ranks = run_ranks("join_twice", folder=tmp_path, own_store=own_store, check=True)
    assert [rank.result for rank in ranks] == [[[2, 2], 0, True]] * 2
