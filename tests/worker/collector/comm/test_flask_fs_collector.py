"""What is particular to the comm collector over HTTP."""

import os
import threading

import pytest
from easydict import EasyDict

from ding.interaction import Master
from ding.worker.collector import FlaskFileSystemCollector, create_comm_collector
from ding.worker.collector.comm.flask_fs_collector import CollectorSlave
from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.transport import TaskFailed
from tests.worker.collector.comm.workers import Driver
from tests.worker.collector.parallel_fakes import DEADLINE_S, ENVS


@pytest.fixture
def kind():
    return "flask_fs"


def ended(worker):
    """Wait until the worker has ended its task."""
    threads = [thread for thread in threading.enumerate() if thread.name in ("collector_abandon", "collector_start")]
    for thread in threads:
        thread.join(DEADLINE_S)
    return worker._collector is None


@pytest.mark.differs(
    "the data folder is made one level deep, and errors are ignored",
    "with its parents, and errors are raised",
)
def test_both_folders_are_made_with_their_parents(own_folder):
    cfg = EasyDict(host="127.0.0.1", port=0, path_data="new/exp/data", path_policy="new/exp/policy")
    FlaskFileSystemCollector(cfg)
    assert os.path.isdir("new/exp/data") and os.path.isdir("new/exp/policy")


def test_a_folder_that_cannot_be_made_is_named_at_once(own_folder):
    (own_folder / "file").touch()
    with pytest.raises(OSError, match="the folder path_data cannot be made"):
        FlaskFileSystemCollector(EasyDict(port=0, path_data="file/data", path_policy="policy"))


def test_a_port_that_is_taken_is_an_error_at_the_start(site):
    worker = site.worker()
    second = create_comm_collector(site.cfg(port=worker.port))
    with pytest.raises(OSError):
        second.start()
    second.close()


def test_a_half_built_collector_is_collected_quietly():
    FlaskFileSystemCollector.__new__(FlaskFileSystemCollector).__del__()


@pytest.mark.differs(
    "a worker whose coordinator has gone keeps its task and refuses the next coordinator's",
    "its task ends, the next one is taken",
)
def test_a_coordinator_that_disconnects_leaves_the_worker_free_for_another(site):
    site.write_weights()
    worker, driver = site.pair(queue_size=1)
    driver.start("first", lengths=(10**6,), n_sample=1, flush_interval_s=0)
    driver.data()
    driver.client.close()
    other = Driver(site.client(worker, "again"))
    other.start("second", lengths=(1,))  # whether the first one has ended by now or not
    rows, _ = other.all()
    assert len(rows) == 1 and other.close()["task_id"] == "second"
    assert ENVS[1].closed == 1


def test_a_task_of_a_vanished_coordinator_ends_by_itself(site):
    site.write_weights()
    worker, driver = site.pair()
    driver.start(lengths=(10**6,), n_sample=1, flush_interval_s=0)
    worker._server._lost_connection("http://127.0.0.1:1", ConnectionError("no sign of life"))
    assert ended(worker) and ENVS[-1].closed == 1
    worker.deal_with_lost_coordinator()
    driver.start("next", lengths=(1,))
    assert len(driver.all()[0]) == 1


@pytest.mark.differs(
    "a worker that notices late that its master has gone ends the task of the next one",
    "a notice belongs to its connection, and leaves the tasks of others alone",
)
def test_a_late_notice_of_a_lost_coordinator_leaves_the_task_of_the_next_one_alone(site, monkeypatch):
    site.write_weights()
    worker, driver = site.pair()
    noticed, told = threading.Event(), threading.Event()
    tell = worker._server._lost_connection

    def late(*args):
        noticed.set()
        assert told.wait(DEADLINE_S)
        tell(*args)

    monkeypatch.setattr(worker._server, "_lost_connection", late)
    server, error = worker._server, ConnectionError("no sign of life")
    loss = threading.Thread(target=server._Slave__lose, args=(server._Slave__link.session, error))
    loss.start()
    assert noticed.wait(DEADLINE_S)
    driver.client.drop("for a test")
    other = Driver(site.client(worker, "again"))
    other.start("second", lengths=(10**6,), n_sample=1, flush_interval_s=0)
    told.set()
    loss.join(DEADLINE_S)
    assert not [thread for thread in threading.enumerate() if thread.name == "collector_abandon"]
    assert other.data() and other.close()["task_id"] == "second"


def test_an_error_in_ending_the_task_of_a_vanished_coordinator_is_logged(site, caplog):
    site.write_weights()
    worker, driver = site.pair()
    driver.start(lengths=(1,))
    worker._collector.get_finish_info = lambda: 1 / 0
    worker.deal_with_lost_coordinator()
    assert ended(worker)
    assert "the task of a coordinator that has left has failed to end" in caplog.text


# The slave by itself.


def callbacks(log):
    return {
        "deal_with_resource": lambda: {"gpu": 2},
        "deal_with_collector_start": lambda task_info: log.append(task_info),
        "deal_with_collector_data": lambda: {"data_id": "d"},
        "deal_with_collector_close": lambda: {"step_count": 3},
    }


@pytest.fixture
def slave_link():
    log = []
    with CollectorSlave("127.0.0.1", 0, callback_fn=callbacks(log)) as slave:
        connector = HttpConnector("127.0.0.1", 0)
        connector.start()
        client = connector.client("slave", "127.0.0.1", slave.port)
        client.connect(DEADLINE_S)
        yield client, log
        connector.close()


def test_a_slave_calls_its_functions(slave_link):
    client, log = slave_link
    info = {"task_id": "t", "buffer_id": "b"}
    assert client.run({"name": "resource"}, DEADLINE_S) == {"gpu": 2}
    started = client.run({"name": "collector_start_task", "task_info": info}, DEADLINE_S)
    assert started == {"message": "collector task has started"} and log == [info]
    assert client.run({"name": "collector_data_task"}, DEADLINE_S) == {"data_id": "d", **info}
    assert client.run({"name": "collector_close_task"}, DEADLINE_S) == {"step_count": 3, "task_id": "t"}


def test_a_slave_fails_unknown_tasks(slave_link):
    client, _ = slave_link
    for task in ({"name": "learner_start_task"}, {}):
        with pytest.raises(TaskFailed) as failed:
            client.run(task, DEADLINE_S)
        assert failed.value.result == {"message": "task name error"}


def test_the_functions_come_by_keyword_only():
    with pytest.raises(TypeError):
        CollectorSlave("127.0.0.1", 0, {})


def test_any_master_can_drive_a_worker(site):
    worker = site.worker()
    with Master("127.0.0.1", 0) as master, master.new_connection("c", "127.0.0.1", worker.port) as connection:
        task = connection.new_task({"name": "resource"}).start().join(DEADLINE_S)
        assert task.result["batched"] is True
