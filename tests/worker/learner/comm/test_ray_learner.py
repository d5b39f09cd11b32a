"""Several ranks that are one learner to the coordinator: what rank 0 makes of what they answer."""

from concurrent.futures import Future

import numpy as np
import psutil
import pytest
from easydict import EasyDict

from ding.interaction.exception import TaskFail, failure_of
from ding.utils.pytorch_ddp_dist_helper import BrokenCollective
from ding.worker.learner.comm.ray_learner import RayLearner
from ding.worker.transport.transport import TaskFailed, TaskName, WorkerLost
from tests.ranks import run_ranks
from tests.worker.transport.sites import DEADLINE_S

START = {"name": TaskName.LEARNER_START, "task_info": {"task_id": "t"}}
DATA = {"name": TaskName.LEARNER_GET_DATA}
DEMAND = {"batch_size": 2, "batch_num": 3, "cur_learner_iter": 0, "infos": []}


class Peer:
    """Another rank, which answers as it was told."""

    def __init__(self, number):
        self.name, self.answer, self.tasks, self.is_lost = f"learner0.rank{number}", DEMAND, [], False

    def run(self, task, timeout_s):
        self.tasks.append(task)
        future = Future()
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        elif self.answer is not None:
            future.set_result(self.answer)
        return future

    def close(self):
        self.is_lost = True


@pytest.fixture
def leading(monkeypatch, tmp_path):
    """Rank 0, whose own answer is `leading.own`, with its task begun on two others."""
    cfg = {"path_data": "data", "path_policy": str(tmp_path), "host": "127.0.0.1", "rank_timeout_s": DEADLINE_S}
    learner = RayLearner(EasyDict({**cfg, "multi_gpu": True, "gpu_num": 3}))
    learner.own, learner.own_tasks = DEMAND, []

    def serve(self, task):
        learner.own_tasks.append(task)
        if isinstance(learner.own, Exception):
            raise learner.own
        return learner.own

    monkeypatch.setattr("ding.worker.learner.comm.comm_learner.CommLearner.serve", serve)
    learner._peers = [Peer(1), Peer(2)]
    learner.peers = learner._peers
    assert learner.serve(START) == {"message": "learner task has started"}
    yield learner
    learner.close()


def failure(error):
    """What another rank answers that has failed."""
    return TaskFailed("learner0.rank1", "learner_get_data_task", failure_of(error))


BROKEN = BrokenCollective("all_reduce broke: Connection closed by peer")


def test_all_ranks_run_the_tasks_of_the_training(leading):
    assert leading.serve(DATA)["batch_size"] == 6
    leading.serve({"name": TaskName.LEARNER_CLOSE})
    names = [TaskName.LEARNER_START, TaskName.LEARNER_GET_DATA, TaskName.LEARNER_CLOSE]
    assert [[task["name"] for task in tasks] for tasks in (leading.own_tasks, leading.peers[0].tasks)] == [names] * 2
    leading.serve({"name": TaskName.RESOURCE})
    assert len(leading.peers[0].tasks) == 3


def test_an_error_of_one_rank_is_told_rather_than_what_follows_from_it(leading):
    leading.own, (first, second) = TaskFail(result=failure_of(BROKEN)), leading.peers
    first.answer, second.answer = failure(BROKEN), failure(ZeroDivisionError("it is mine"))
    with pytest.raises(TaskFail) as failed:
        leading.serve(DATA)
    assert "it is mine" in failed.value.result["message"]
    assert failed.value.result["exception"] == "ZeroDivisionError"


@pytest.mark.parametrize("answer", [failure(BROKEN), WorkerLost("its process has died")])
def test_a_rank_that_is_lost_or_has_lost_the_others_is_the_loss_of_the_learner(leading, answer):
    leading.own, leading.peers[1].answer = TaskFail(result=failure_of(BROKEN)), answer
    with pytest.raises(TaskFail) as failed:
        leading.serve(DATA)
    assert failed.value.result["exception"] == "WorkerLost"


def test_the_others_are_disconnected_when_the_coordinator_is_lost(leading):
    leading.deal_with_lost_coordinator()
    assert all(peer.is_lost for peer in leading.peers)


def test_ranks_on_one_machine_meet_at_its_loopback_address(leading):
    host, port = leading.peers[0].tasks[0]["task_info"]["meeting"]
    listening = [c.laddr for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert [address.ip for address in listening if address.port == port] == [host] == ["127.0.0.1"]


# Ranks that train one learner's task together.


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
