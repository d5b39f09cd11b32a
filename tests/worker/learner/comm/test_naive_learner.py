"""The stand-in for a learner."""

import pytest

from ding.worker.learner.comm import NaiveLearner
from ding.worker.transport.chunk import pack_batches
from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.transport import TaskFailed
from tests.worker.learner.comm.workers import entry
from tests.worker.transport.sites import DEADLINE_S

IDS = {"task_id": "t", "buffer_id": "b"}


@pytest.fixture
def run():
    with NaiveLearner("127.0.0.1", 0, prefix="PRE") as slave:
        connector = HttpConnector("127.0.0.1", 0)
        connector.start()
        client = connector.client("naive", "127.0.0.1", slave.port)
        client.connect(DEADLINE_S)
        yield lambda name, **content: client.run({"name": name, **content}, DEADLINE_S)
        connector.close()


def test_it_has_resources(run):
    assert run("resource") == {"gpu": "1", "cpu": "20"}


def test_it_takes_six_batches_and_is_done(run, tmp_path):
    data = [entry("a", 0), entry("a", 1)]
    priorities = {"replay_unique_id": ["a_0", "a_1"], "replay_buffer_idx": [0, 1], "priority": [1.0, 1.0]}
    for _ in range(2):  # each task is counted anew
        assert run("learner_start_task", task_info=IDS) == {"message": "learner task has started"}
        for step in range(1, 7):
            demand = {**IDS, "batch_size": 2, "cur_learner_iter": 1, "batch_num": 1, "infos": [], "batches_done": 0}
            assert run("learner_get_data_task") == demand
            done = {"learner_done": True} if step == 6 else {}
            info = {"learner_step": step, "priority_info": priorities, **done}
            reply = run("learner_learn_task", **pack_batches([data]))
            assert reply == {**demand, "batch_num": 0, "infos": [info], "batches_done": 1}
        assert run("learner_close_task") == IDS
    assert [path.name for path in tmp_path.iterdir()] == ["PRE_final_model.pth"]


def test_it_needs_the_names_of_chunks(run):
    run("learner_start_task", task_info=IDS)
    with pytest.raises(TaskFailed, match="a sample has no data_id"):
        run("learner_learn_task", **pack_batches([[{"IS": 1.0}]]))


def test_it_fails_other_tasks(run):
    with pytest.raises(TaskFailed):
        run("collector_start_task")
