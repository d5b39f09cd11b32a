"""What is particular to the comm learner over HTTP."""

import os
import threading

import pytest
from easydict import EasyDict

from ding.interaction import Master
from ding.worker.learner import FlaskFileSystemLearner, create_comm_learner
from ding.worker.learner.comm import base_comm_learner
from ding.worker.learner.comm.flask_fs_learner import LearnerSlave
from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.transport import TaskFailed
from tests.worker.learner.comm.workers import DEADLINE_S


@pytest.fixture
def kind():
    return "flask_fs"


def test_both_folders_are_made_with_their_parents():
    FlaskFileSystemLearner(EasyDict(host="127.0.0.1", port=0, path_data="new/exp/data", path_policy="new/exp/policy"))
    assert os.path.isdir("new/exp/data") and os.path.isdir("new/exp/policy")


def test_a_folder_that_cannot_be_made_is_named_at_once(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="the folder path_policy cannot be made"):
        FlaskFileSystemLearner(EasyDict(port=0, path_data="data", path_policy="file/policy"))


def test_a_port_that_is_taken_is_an_error_at_the_start(site):
    second = create_comm_learner(site.cfg(port=site.worker().port))
    with pytest.raises(OSError):
        second.start()
    second.close()


@pytest.mark.parametrize(("port", "own"), [(7000, 7001), ([7000, 7005], 7005), (0, 0)])
def test_each_rank_has_a_port_of_its_own(site, monkeypatch, port, own):
    finalized = []
    monkeypatch.setattr(base_comm_learner, "dist_init", lambda: (1, 2))
    monkeypatch.setattr(base_comm_learner, "dist_finalize", lambda: finalized.append(1))
    learner = create_comm_learner(site.cfg(multi_gpu=True, port=port))
    assert learner._own_port() == own and learner.deal_with_resource() == {"gpu": 2}
    learner.close()
    learner.close()
    assert finalized == [1]


def test_a_half_built_learner_is_collected_quietly():
    FlaskFileSystemLearner.__new__(FlaskFileSystemLearner).__del__()


def test_a_task_of_a_vanished_coordinator_ends_by_itself_with_its_checkpoint(site):
    worker, driver = site.pair()
    driver.start()
    worker._server._lost_connection("http://127.0.0.1:1", ConnectionError("no sign of life"))
    for thread in threading.enumerate():
        if thread.name in ("learner_abandon", "learner_start"):
            thread.join(DEADLINE_S)
    assert worker._learner is None and os.listdir("exp/ckpt") == ["iteration_0.pth.tar"]


def test_any_master_can_drive_a_worker(site):
    worker = site.worker()
    with Master("127.0.0.1", 0) as master, master.new_connection("l", "127.0.0.1", worker.port) as connection:
        task = connection.new_task({"name": "resource"}).start().join(DEADLINE_S)
        assert task.result == {"gpu": 1, "batched": True}


# The slave by itself.


@pytest.fixture
def slave_link():
    log = []
    callback_fn = {
        "deal_with_resource": lambda: {"gpu": 2},
        "deal_with_learner_start": log.append,
        "deal_with_get_data": lambda: {"batch_size": 4, "cur_learner_iter": 7},
        "deal_with_learner_learn": lambda data: {"learner_step": len(data)},
        "deal_with_learner_close": lambda: log.append("close"),
    }
    with LearnerSlave("127.0.0.1", 0, callback_fn=callback_fn) as slave:
        connector = HttpConnector("127.0.0.1", 0)
        connector.start()
        client = connector.client("slave", "127.0.0.1", slave.port)
        client.connect(DEADLINE_S)
        yield client, log
        connector.close()


def test_a_slave_calls_its_functions(slave_link):
    client, log = slave_link
    ids = {"task_id": "t", "buffer_id": "b"}
    assert client.run({"name": "resource"}, DEADLINE_S) == {"gpu": 2}
    started = client.run({"name": "learner_start_task", "task_info": ids}, DEADLINE_S)
    assert started == {"message": "learner task has started"}
    assert client.run({"name": "learner_get_data_task"}, DEADLINE_S) == {"batch_size": 4, "cur_learner_iter": 7, **ids}
    learned = client.run({"name": "learner_learn_task", "data": [{}, {}]}, DEADLINE_S)
    assert learned == {"info": {"learner_step": 2}, **ids}
    assert client.run({"name": "learner_close_task"}, DEADLINE_S) == ids
    assert log == [ids, "close"]


def test_a_slave_fails_unknown_tasks(slave_link):
    client, _ = slave_link
    for task in ({"name": "collector_start_task"}, {}):
        with pytest.raises(TaskFailed) as failed:
            client.run(task, DEADLINE_S)
        assert failed.value.result == {"message": "task name error"}
