"""Several ranks that are one learner to the coordinator: what rank 0 makes of what they answer."""

from concurrent.futures import Future

import psutil
import pytest
from easydict import EasyDict

from ding.interaction.exception import TaskFail, failure_of
from ding.utils.pytorch_ddp_dist_helper import BrokenCollective
from ding.worker.learner.comm.ray_learner import RayLearner
from ding.worker.transport.chunk import pack_batches, unpack_batches
from ding.worker.transport.comm_worker import task_fail
from ding.worker.transport.transport import (
    LEARNER_CLOSE,
    LEARNER_GET_DATA,
    LEARNER_LEARN,
    LEARNER_START,
    RESOURCE,
    TaskFailed,
    WorkerLost,
)
from tests.worker.transport.sites import DEADLINE_S


class Peer:
    """Another rank, which answers as it was told."""

    def __init__(self, answer):
        self.answer, self.tasks, self.is_closed = answer, [], False

    def run(self, task, timeout_s):
        self.tasks.append(task["name"])
        self.task = task
        future = Future()
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        elif self.answer is not None:
            future.set_result(self.answer)
        return future

    def close(self):
        self.is_closed = True


@pytest.fixture
def leading(monkeypatch, tmp_path):
    """Rank 0 of as many as there are answers, its own first."""
    made = []

    def leading(own, *others, rank_timeout_s=DEADLINE_S):
        paths = {"path_data": "data", "path_policy": str(tmp_path)}
        cfg = {**paths, "multi_gpu": True, "gpu_num": 1 + len(others), "rank_timeout_s": rank_timeout_s}
        learner = RayLearner(EasyDict(cfg))
        made.append(learner)
        learner._done, learner._priorities = [0] * (1 + len(others)), []
        leading.peers = learner._peers = [Peer(answer) for answer in others]

        def serve(self, task):
            learner.own_task = task
            if isinstance(own, Exception):
                raise own
            return own

        monkeypatch.setattr("ding.worker.learner.comm.comm_learner.CommLearner.serve", serve)
        return learner

    yield leading
    for learner in made:
        learner.close()


def failure(error):
    """What another rank answers that has failed."""
    return TaskFailed("learner0.rank1", "learner_get_data_task", failure_of(error))


def own_failure(error):
    return task_fail(failure_of(error))


DATA = {"name": LEARNER_GET_DATA}
BROKEN = BrokenCollective("all_reduce broke: Connection closed by peer")
ENDED = TaskFailed("learner0.rank1", "learner_get_data_task", {"message": "ended", "exception": "LearnerClosed"})


def test_what_rank_0_answers_counts_and_all_are_asked(leading):
    learner = leading({"infos": [{"learner_step": 1}]}, {"infos": [{"learner_step": 2, "priority_info": {}}]}, ENDED)
    assert learner.serve(DATA) == {"infos": [{"learner_step": 1, "priority_info": {}}], "batches_done": 0}
    assert [peer.tasks for peer in leading.peers] == [[LEARNER_GET_DATA]] * 2


def test_a_batch_is_divided_among_the_ranks(leading):
    learner = leading({"infos": []}, {"infos": []})
    batches = [[{"data_id": f"{number}{index}"} for index in range(4)] for number in range(2)]
    learner.serve({"name": LEARNER_LEARN, **pack_batches(batches)})
    assert [list(batch) for batch in unpack_batches(learner.own_task)] == [batch[:2] for batch in batches]
    assert [list(batch) for batch in unpack_batches(leading.peers[0].task)] == [batch[2:] for batch in batches]


def test_a_demand_is_for_all_ranks_and_no_more_than_each_can_take(leading):
    own, other = ({"batch_size": 32, "batch_num": number, "infos": []} for number in (5, 3))
    assert leading(own, other).serve(DATA) == {"batch_size": 64, "batch_num": 3, "infos": [], "batches_done": 0}


def test_a_batch_is_done_when_all_ranks_have_read_it(leading):
    own, other = {"infos": [], "batches_done": 0}, {"infos": [], "batches_done": 0}
    learner, counts = leading(own, other), []
    for own["batches_done"], other["batches_done"] in ((2, 0), (1, 2), (0, 3)):
        counts.append(learner.serve(DATA)["batches_done"])
    assert counts == [0, 2, 1]


def test_priorities_of_all_ranks_are_reported_with_the_infos_of_rank_0(leading):
    def infos(*names):
        return [{"priority_info": {"replay_unique_id": [name], "priority": [1.0]}} for name in names]

    own, other = {"infos": []}, {"infos": infos("b")}
    learner = leading(own, other)
    assert learner.serve(DATA)["infos"] == []
    own["infos"], other["infos"] = infos("a", "c"), infos("d")
    first, last = learner.serve(DATA)["infos"]
    assert first == infos("a")[0]
    assert last["priority_info"] == {"replay_unique_id": ["c", "b", "d"], "priority": [1.0, 1.0, 1.0]}


def test_only_tasks_of_the_training_are_passed_on(leading):
    learner = leading({"gpu": 2}, {"gpu": 2})
    assert learner.serve({"name": RESOURCE}) == {"gpu": 2}
    assert leading.peers[0].tasks == []


def test_an_error_of_one_rank_is_told_rather_than_what_follows_from_it(leading):
    learner = leading(own_failure(BROKEN), failure(BROKEN), failure(ZeroDivisionError("it is mine")))
    with pytest.raises(TaskFail) as failed:
        learner.serve(DATA)
    assert failed.value.result["message"] == "rank 2: it is mine"
    assert failed.value.result["exception"] == "ZeroDivisionError"


@pytest.mark.parametrize("own", [own_failure(BROKEN), {"infos": []}])
def test_ranks_that_have_only_lost_each_other_are_lost(leading, own):
    learner = leading(own, failure(BROKEN))
    with pytest.raises(WorkerLost, match=r"rank [01] of the learner has lost the others: all_reduce broke"):
        learner.serve(DATA)


@pytest.mark.parametrize("own", [own_failure(ZeroDivisionError("both")), {"infos": []}])
def test_the_loss_of_a_rank_is_the_loss_of_the_learner(leading, own):
    learner = leading(own, failure(BROKEN), WorkerLost("its process has died"))
    with pytest.raises(WorkerLost, match="the learner has lost rank 2: its process has died"):
        learner.serve(DATA)


def test_a_rank_that_does_not_answer_in_time_is_lost(leading):
    learner = leading({"infos": []}, None, rank_timeout_s=0.2)
    with pytest.raises(WorkerLost):
        learner.serve(DATA)


def test_rank_0_ends_the_task_whatever_the_others_say(leading):
    learner = leading({"infos": []}, WorkerLost("gone"))
    assert learner.serve({"name": LEARNER_CLOSE}) == {"infos": []}


def test_the_others_are_disconnected_when_the_coordinator_is_lost(leading):
    learner = leading({"infos": []}, {})
    learner.deal_with_lost_coordinator()
    assert leading.peers[0].is_closed and leading.peers[0].tasks == []


def test_ranks_on_one_machine_meet_at_its_loopback_address(leading):
    learner = leading({}, {})
    learner._cfg.rank_host = "127.0.0.1"
    task = learner._prepared({"name": LEARNER_START, "task_info": {"task_id": "t"}})
    host, port = task["task_info"].pop("meeting")
    assert task == {"name": LEARNER_START, "task_info": {"task_id": "t"}} and host == "127.0.0.1"
    listening = [c.laddr for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert [address.ip for address in listening if address.port == port] == ["127.0.0.1"]


def test_a_rank_other_than_0_runs_its_tasks_alone(leading, tmp_path):
    leading({"infos": []})
    cfg = {"path_data": "data", "path_policy": str(tmp_path), "multi_gpu": True, "gpu_num": 2, "rank": 1}
    learner = RayLearner(EasyDict(cfg))
    assert learner.serve(DATA) == {"infos": []}
    learner.close()
