"""Ranks that train one learner's task together."""

import numpy as np
import pytest

from tests.ranks import run_ranks
from tests.worker.learner.comm.rank_actors import DEADLINE_S

ACTORS = "tests.worker.learner.comm.rank_actors"


def results(actor, *args, folder, **options):
    return [rank.result for rank in run_ranks(actor, *args, folder=folder, module=ACTORS, check=True, **options)]


@pytest.mark.parametrize("how", ["leaves", "ends"])
def test_ranks_that_wait_for_one_that_has_failed_are_told_at_once(tmp_path, how):
    (reason, seconds), _ = (
        rank.result if rank.out else None
        for rank in run_ranks("fail_in_one", how, folder=tmp_path, module=ACTORS, check=True)
    )
    assert "all_reduce broke" in reason and "another rank has ended or left the group" in reason
    assert seconds < DEADLINE_S / 2


def test_each_task_has_a_group_of_its_own(tmp_path):
    assert results("meet_again", folder=tmp_path) == [[5, 5]] * 2


def test_ranks_have_equal_bits_and_train_as_one_learner_with_the_whole_batch(tmp_path):
    folders = [tmp_path / name for name in ("two", "one")]
    for folder in folders:
        folder.mkdir()
    first, second = results("train_a_dqn", 20, 2, folder=folders[0])
    (alone,) = results("train_a_dqn", 20, 1, folder=folders[1], n=1)
    assert first["hash"] == second["hash"] and first["weights"] == second["weights"]
    for name, value in alone["weights"].items():
        np.testing.assert_allclose(first["weights"][name], value, rtol=1e-4, atol=1e-6)
    assert first["steps"] == second["steps"] == alone["steps"] == list(range(21))
    assert first["written"] and first["files"] == alone["files"] and "iteration_20.pth.tar" in first["files"]
    assert not first["group"] and not second["group"]
