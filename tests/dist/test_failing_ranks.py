"""A rank that ends takes the others with it, soon, and they say which one it was and why."""

import os
import subprocess
import sys

import pytest

from ding.utils.system_helper import find_free_port
from tests.ranks import ROOT, run_ranks

SOON_S = 20
BROKEN = "ValueError: the env has broken"
KILLED = "it ended without leaving the group: a signal killed it"
SHORT_GRACE = {"DING_RANK_GRACE": "0.3"}
# When the rank ends: before an operation in which the other waits, in one to which the other never comes, or after one.
WHERE = ["before", pytest.param("in", marks=pytest.mark.slow), "after"]


def check_named(rank, failed, cause):
    assert rank.status not in (0, -9), rank
    assert f"rank {failed} (process " in rank.err and cause in rank.err, rank.err


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("victim", [0, 1])
def test_an_exception_on_one_rank_ends_the_other_with_its_cause(tmp_path, where, victim):
    ranks = run_ranks("fail", "raise", where, victim, True, folder=tmp_path, deadline_s=SOON_S, env=SHORT_GRACE)
    assert ranks[victim].status == 1 and BROKEN in ranks[victim].err
    check_named(ranks[1 - victim], victim, BROKEN)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_the_other_which_names_it(tmp_path, where, victim):
    ranks = run_ranks("fail", "kill", where, victim, True, folder=tmp_path, deadline_s=SOON_S, env=SHORT_GRACE)
    assert ranks[victim].status == -9
    check_named(ranks[1 - victim], victim, KILLED)


def test_a_killed_rank_that_had_no_context_is_named_too(tmp_path):
    ranks = run_ranks("fail", "kill", "after", 1, False, folder=tmp_path, deadline_s=SOON_S)
    check_named(ranks[0], 1, KILLED)


BARE_SCRIPT = """
from ding.utils import allreduce_data, dist_init

rank, _ = dist_init("gloo")
while True:
    if rank == 1 and allreduce_data(1, "sum") == 2:
        raise ValueError("the env has broken")
    allreduce_data(1, "sum")
"""


@pytest.mark.slow
def test_a_script_that_ends_by_an_exception_is_named_with_it(tmp_path):
    (tmp_path / "script.py").write_text(BARE_SCRIPT)
    port = str(find_free_port("127.0.0.1"))
    variables = {"PYTHONPATH": str(ROOT), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            env={**os.environ, **variables, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=60)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [1, 1]
    assert "rank 1 (process " in errors[0] and BROKEN in errors[0]


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_ranks_started_by_hand_end_with_the_one_that_hosts_their_store(tmp_path, how):
    ranks = run_ranks("fail", how, "before", 0, True, folder=tmp_path, deadline_s=SOON_S, own_store=True)
    check_named(ranks[1], 0, BROKEN if how == "raise" else KILLED)


@pytest.mark.parametrize("victim", [0, 1])
def test_env_workers_that_a_killed_rank_has_forked_do_not_keep_the_others_waiting(tmp_path, victim):
    # They hold copies of its sockets, so that the operations of gloo do not break.
    ranks = run_ranks("fail", "kill", "forked", victim, True, folder=tmp_path, deadline_s=SOON_S, orphans=True)
    check_named(ranks[1 - victim], victim, KILLED)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_of_three_ranks_both_others_name_the_one_that_failed_first(tmp_path, how):
    ranks = run_ranks("fail", how, "before", 1, True, folder=tmp_path, n=3, deadline_s=SOON_S)
    for other in (0, 2):
        check_named(ranks[other], 1, BROKEN if how == "raise" else KILLED)
        assert "RankFailedError: rank 1" in ranks[other].err


@pytest.mark.parametrize("handles_sigterm", [False, True])
def test_a_rank_that_computes_on_is_signalled_and_at_last_ended(tmp_path, handles_sigterm):
    ranks = run_ranks("fail_alone_in_python", handles_sigterm, folder=tmp_path, deadline_s=SOON_S, env=SHORT_GRACE)
    check_named(ranks[0], 1, BROKEN)
    assert ranks[0].status == (130 if handles_sigterm else 1)
    assert ("its process is ended now" in ranks[0].err) is not handles_sigterm


@pytest.mark.slow
def test_a_rank_that_hangs_is_found_by_the_timeout(tmp_path):
    ranks = run_ranks("hang", folder=tmp_path, deadline_s=SOON_S, env=SHORT_GRACE)
    assert ranks[0].status == 1 and "a rank hangs, or takes longer than the timeout of dist_init" in ranks[0].err
    check_named(ranks[1], 0, "all_reduce broke")


def test_a_rank_that_comes_late_is_waited_for(tmp_path):
    assert [rank.result for rank in run_ranks("come_late", folder=tmp_path, check=True)] == [2, 2]


@pytest.mark.slow
def test_a_spawned_rank_that_had_no_context_and_raises_is_known_to_have_left(tmp_path):
    ranks = run_ranks("fail", "raise", "after", 1, False, folder=tmp_path, deadline_s=SOON_S)
    check_named(ranks[0], 1, "has left the group already")


@pytest.mark.slow
@pytest.mark.parametrize("context", [False, True])
def test_a_rank_that_leaves_while_it_is_needed_ends_the_other(tmp_path, context):
    ranks = run_ranks("leave_early", context, folder=tmp_path, deadline_s=SOON_S)
    check_named(ranks[0], 1, "has left the group already")


def test_a_script_that_never_leaves_the_group_ends_well_and_is_waited_for(tmp_path):
    ranks = run_ranks("end_without_leaving", 0.4, folder=tmp_path, deadline_s=SOON_S, check=True)
    assert [rank.result for rank in ranks] == [2, 2]
    assert all(rank.seconds >= 0.4 for rank in ranks)


def test_a_failure_after_the_others_are_done_is_theirs_too(tmp_path):
    ranks = run_ranks("fail_after_the_others_are_done", folder=tmp_path, deadline_s=SOON_S)
    check_named(ranks[0], 1, "ValueError: could not save")


def test_an_operation_of_torch_itself_breaks_and_the_cause_is_logged(tmp_path):
    ranks = run_ranks("raw_operation", folder=tmp_path, deadline_s=SOON_S)
    check_named(ranks[0], 1, BROKEN)


@pytest.mark.slow
def test_a_rank_whom_nobody_meets_says_where_it_waited(tmp_path):
    ranks = run_ranks("meet_nobody", folder=tmp_path, deadline_s=SOON_S, own_store=True)
    assert ranks[0].status == 1
    assert "rank 0 did not meet the other ranks of 2 at 127.0.0.1:" in ranks[0].err and "within 1 s" in ranks[0].err


@pytest.mark.parametrize("own_store", [False, True])
def test_a_group_can_be_joined_again(tmp_path, own_store):
    ranks = run_ranks("join_twice", folder=tmp_path, own_store=own_store, check=True)
    assert [rank.result for rank in ranks] == [[[2, 2], 0, True]] * 2
