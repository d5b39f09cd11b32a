"""The stand-in for a learner."""

import pytest

from ding.worker.learner.comm import NaiveLearner
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


def test_it_has_resources_and_does_not_speak_of_batches(run):
    assert run("resource") == {"gpu": "1", "cpu": "20"}


def test_it_takes_six_batches_and_is_done(run, tmp_path):
    data = [entry("a", 0), entry("a", 1)]
    priorities = {"replay_unique_id": ["a_0", "a_1"], "replay_buffer_idx": [0, 1], "priority": [1.0, 1.0]}
    for _ in range(2):  # each task is counted anew
        assert run("learner_start_task", task_info=IDS) == {"message": "learner task has started"}
        for step in range(1, 7):
            assert run("learner_get_data_task") == {**IDS, "batch_size": 2, "cur_learner_iter": 1}
            done = {"learner_done": True} if step == 6 else {}
            info = {"learner_step": step, "priority_info": priorities, **done}
            assert run("learner_learn_task", data=data) == {"info": info, **IDS}
        assert run("learner_close_task") == IDS
    assert [path.name for path in tmp_path.iterdir()] == ["PRE_final_model.pth"]


@pytest.mark.parametrize(("data", "text"), [(None, "no data"), ([{"IS": 1.0}], "a sample has no data_id")])
def test_it_needs_data(run, data, text):
    run("learner_start_task", task_info=IDS)
    with pytest.raises(TaskFailed, match=text):
        run("learner_learn_task", data=data)


def test_it_fails_other_tasks(run):
    with pytest.raises(TaskFailed):
        run("collector_start_task")
