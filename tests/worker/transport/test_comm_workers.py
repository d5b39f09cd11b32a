"""What every comm worker promises: collectors and learners, over any transport of one machine."""

import os
import threading

import pytest
from easydict import EasyDict

from ding.interaction import Master
from ding.utils.config_helper import ConfigError
from ding.utils.data.plain_columns import from_plain
from ding.worker.collector import FlaskFileSystemCollector, base_parallel_collector
from ding.worker.collector.comm.comm_collector import CommCollector
from ding.worker.collector.comm.flask_fs_collector import CollectorSlave
from ding.worker.learner import FlaskFileSystemLearner
from ding.worker.learner.comm.comm_learner import CommLearner
from ding.worker.learner.comm.flask_fs_learner import LearnerSlave
from ding.worker.transport.chunk import pack_batches, to_content
from ding.worker.transport.http_transport import HttpConnector
from ding.worker.transport.transport import Launch, TaskFailed, WorkerLost
from tests.worker.collector.comm import workers as collectors
from tests.worker.collector.parallel_fakes import DEADLINE_S, GATES, Gate, in_thread
from tests.worker.learner.comm import workers as learners
from tests.worker.transport.sites import kind as kind
from tests.worker.transport.sites import read_sample


class Collecting:
    """What a collector is asked for."""

    kind, comm, over_http = "collector", CommCollector, FlaskFileSystemCollector
    workers, gates = collectors, GATES
    resource = {"gpu": 1, "cpu": 20}
    replaced = ["deal_with_collector_close", "get_policy_update_info", "send_metadata", "send_stepdata"]
    ask_names, single = ["collector_data_task"], "deal_with_collector_data"
    unbuilt = [({"env": {"type": "nobody"}}, "KeyError"), ({"n_sample": None}, "AssertionError")]
    import_places = ["collector_cfg", "env", "policy"]

    @staticmethod
    def waiting(driver, name="task"):
        """Start a task that waits for its first weights."""
        return driver.start(name, first_policy_timeout_s=1000)

    @staticmethod
    def hang(site, driver, name):
        site.write_weights()
        driver.start(name, lengths=(3,), env={"wait_at": [0, 0, 1], "gate": "gate"})

    @staticmethod
    def work(site, driver, name="task"):
        """Run a short task to its end, and return its report."""
        site.write_weights()
        driver.start(name, lengths=(2,), n_sample=1)
        rows, _ = driver.all()
        assert [read_sample(site.reader, row)["obs"].tolist() for row in rows] == [[0, 0, 0], [0, 0, 1]]
        report = driver.close()
        assert (report["sample_count"], report["task_id"]) == (2, name)
        return report

    @staticmethod
    def one_by_one(site, driver):
        """What the replaced method has added to two answers."""
        site.write_weights()
        driver.start(lengths=(1,), n_sample=1)
        replies = [driver.ask() for _ in range(2)]
        assert [len(from_plain(reply["samples"])) for reply in replies] == [1, 0]
        return [from_plain(replies[0]["samples"])[0]["more"], replies[1]["infos"][0]["more"]]

    @staticmethod
    def importing(place, name):
        return {"import_names": [name]} if place == "collector_cfg" else {place: {"import_names": [name]}}


class Learning:
    """What a learner is asked for."""

    kind, comm, over_http = "learner", CommLearner, FlaskFileSystemLearner
    workers, gates = learners, learners.GATES
    resource = {"gpu": 1}
    replaced = ["deal_with_learner_close", "get_data", "send_learn_info", "send_policy"]
    ask_names, single = ["learner_get_data_task", "learner_learn_task"], "deal_with_learner_learn"
    unbuilt = [({"learner": {"send_policy_freq": 0}}, "ConfigError"), ({"policy": {"type": "nobody"}}, "KeyError")]
    import_places = ["policy", "learner"]

    @staticmethod
    def waiting(driver, name="task"):
        """Start a task that waits for samples."""
        return driver.start(name)

    @staticmethod
    def hang(site, driver, name):
        driver.start(name, policy={"wait_at": 0, "gate": "gate"})
        driver.learn(site.batch(1, 2))

    @staticmethod
    def work(site, driver, name="task"):
        """Run a short task to its end, and return its report."""
        driver.start(name)
        driver.learn(site.batch(1, 2))
        assert driver.infos(1)[1] == 1 and learners.POLICIES[-1].seen() == [[1, 2]]
        report = driver.close()
        assert report["task_id"] == name and site.policies.read(f"policy_{name}").state["iter"] == 1
        return report

    @staticmethod
    def one_by_one(site, driver):
        """What the replaced method has added to two answers."""
        driver.start()
        more = []
        for n in range(2):
            assert driver.run("learner_get_data_task")["batch_size"] == 2
            more.append(driver.learn(site.batch(n, n))["infos"][0]["more"])
        return more

    @staticmethod
    def importing(place, name):
        return {place: {"import_names": [name]}}


@pytest.fixture(params=[Collecting, Learning], ids=["collector", "learner"])
def role(request):
    yield request.param
    request.param.workers.forget_fakes()


@pytest.fixture
def site(role, kind, tmp_path):
    with role.workers.Site.opened(kind, tmp_path) as site:
        yield site


over_http = pytest.mark.parametrize("kind", ["flask_fs"])


def threads_of(role):
    """The threads of the tasks of workers."""
    names = (f"{role.kind}_start", "update_policy", "dataloader", "slave_task")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(names)]


# Tasks.


def test_a_worker_says_what_it_has(role, site):
    _, driver = site.pair()
    assert driver.run("resource") == role.resource


def test_methods_of_the_worker_that_are_overridden_are_called(role, site):
    worker, driver = site.pair()
    called = []

    def replaced(name):
        original = getattr(role.comm, name)

        def replacing(self, *args):
            called.append(name)
            return original(self, *args)

        return replacing

    worker.__class__ = type("Own", (type(worker),), {name: replaced(name) for name in role.replaced})
    role.work(site, driver)
    assert sorted(set(called)) == role.replaced


@pytest.mark.differs("replaces a running collector by a second `collector_start_task`", "refuses it")
def test_a_worker_that_is_busy_says_so(role, site):
    _, driver = site.pair(data_wait_s=0)
    role.waiting(driver, "one")
    failure = driver.failure(role.waiting, driver, "two")
    assert failure["exception"] == "RuntimeError" and "busy with the task one" in failure["message"]
    assert driver.ask()["task_id"] == "one"


def test_without_a_task_there_is_nothing_to_ask(role, site):
    _, driver = site.pair()
    for name in role.ask_names:
        assert driver.failure(driver.run, name, data=[]) == {"message": f"no {role.kind} task runs"}


def test_an_unknown_task_fails(site):
    _, driver = site.pair()
    for task in ({"name": "nonsense"}, {}):
        assert driver.failure(driver.client.run, task, DEADLINE_S) == {"message": "task name error"}


def test_closing_again_reports_the_same_and_without_a_task_nothing(role, site):
    _, driver = site.pair()
    assert driver.close() == {}
    report = role.work(site, driver)
    assert driver.close() == report
    role.waiting(driver, "next")
    assert driver.close()["task_id"] == "next"


def test_a_task_that_cannot_be_built_leaves_the_worker_free(role, site):
    _, driver = site.pair()
    for cfg, exception in role.unbuilt:
        failure = driver.failure(driver.start, **cfg)
        assert failure["exception"] == exception and "Traceback" in failure["traceback"]
    assert not {f"{role.kind}_start", "dataloader"} & set(threads_of(role))
    role.work(site, driver)


@pytest.mark.differs("imports any module that a task names", "imports those of the worker's own config")
def test_a_module_that_the_workers_own_config_does_not_name_is_not_imported(role, site, import_folder):
    (import_folder / "intruder.py").write_text("open('intruded', 'w').close()")
    _, driver = site.pair()
    for place in role.import_places:
        failure = driver.failure(driver.start, **role.importing(place, "intruder"))
        assert failure["exception"] == "PermissionError" and "the task imports intruder" in failure["message"]
    assert not (import_folder / "intruded").exists()


def test_a_worker_whose_answers_to_one_sample_or_batch_are_overridden_is_asked_for_one_at_a_time(role, site):
    worker, driver = site.pair()
    own = getattr(worker, role.single)
    worker.__class__ = type("Own", (type(worker),), {role.single: lambda self, *args: {**own(*args), "more": 1}})
    assert driver.run("resource") == role.resource
    assert role.one_by_one(site, driver) == [1, 1]


# The end.


def test_closing_the_worker_ends_a_coordinators_wait_and_the_task(role, site):
    worker, driver = site.pair(data_wait_s=1000)
    role.waiting(driver)
    if role is Learning:
        driver.learn(*(site.batch(n, n) for n in range(8)))

    def ask_on():
        while True:
            driver.ask()

    waiting = in_thread(ask_on)
    worker.close()
    assert isinstance(waiting(), (TaskFailed, WorkerLost))
    assert threads_of(role) == []
    worker.close()


def test_a_task_that_hangs_fails_its_close_and_the_worker_goes_on(role, site, monkeypatch):
    monkeypatch.setattr(base_parallel_collector, "ROUND_TIMEOUT_S", 0.01)
    gate = role.gates["gate"] = Gate()
    worker, driver = site.pair(close_timeout_s=0.1)
    role.hang(site, driver, "one")
    assert gate.reached.wait(DEADLINE_S)
    failure = driver.failure(driver.close)
    worker._cfg.close_timeout_s = DEADLINE_S  # the next tasks do not hang
    assert failure["exception"] == "TimeoutError" and "the task one has not ended within 0.1 s" in failure["message"]
    old = [thread for thread in threading.enumerate() if thread.name == f"{role.kind}_start"]
    role.waiting(driver, "two")
    gate.open()
    old[0].join(DEADLINE_S)
    assert driver.close()["task_id"] == "two"
    role.work(site, driver, "three")


@pytest.mark.differs(
    "keeps the task of a coordinator that has gone, and refuses the next one",
    "ends it and takes the next",
)
def test_a_coordinator_that_has_gone_leaves_the_worker_to_the_next(role, site):
    worker, driver = site.pair()
    role.waiting(driver, "one")
    driver.client.close()
    if site.launch is Launch.THREAD:
        worker.deal_with_lost_coordinator()
    other = site.driver(site.client(worker, "again"))
    role.work(site, other, "two")  # whether the first task has ended by now or not


# The config, and the place.


def test_a_worker_is_made_by_its_type_after_its_modules_are_imported(site):
    with pytest.raises(KeyError):
        site.create(site.cfg(type="nobody"))
    with pytest.raises(ModuleNotFoundError):
        site.create(site.cfg(import_names=["no_such_module_of_ours"]))


@pytest.mark.parametrize("key", ["path_data", "path_policy"])
def test_the_folders_are_needed(role, site, key):
    cfg = site.cfg()
    del cfg[key]
    with pytest.raises(ConfigError, match=f"'{key}' is missing"):
        site.create(cfg)


@over_http
@pytest.mark.parametrize("changes", [{"data_wait_s": "long"}, {"port": -1}, {"seed": -1}, {"close_timeout_s": -1}])
def test_the_config_is_checked(site, changes):
    (key,) = changes
    with pytest.raises(ConfigError, match=f"{key} = .* is not allowed"):
        site.create(site.cfg(**changes))


@pytest.mark.parametrize("role", [Collecting, Learning])
def test_both_folders_are_made_with_their_parents_or_named(role, tmp_path):
    (tmp_path / "file").touch()
    data, policy = str(tmp_path / "new/exp/data"), str(tmp_path / "new/exp/policy")
    role.over_http(EasyDict(host="127.0.0.1", port=0, path_data=data, path_policy=policy))
    assert os.path.isdir(data) and os.path.isdir(policy)
    for key in ("path_data", "path_policy"):
        paths = {"path_data": data, "path_policy": policy, key: str(tmp_path / "file/folder")}
        with pytest.raises(OSError):
            role.over_http(EasyDict(port=0, **paths))


@over_http
def test_any_master_can_drive_a_worker(role, site):
    worker = site.worker()
    with Master("127.0.0.1", 0) as master, master.new_connection("c", "127.0.0.1", worker.port) as connection:
        task = connection.new_task({"name": "resource"}).start().join(DEADLINE_S)
        assert task.result == role.resource


# The slaves by themselves.

IDS = {"task_id": "t", "buffer_id": "b"}
OF_COLLECTOR = {
    "deal_with_collector_data": lambda: {"data_id": "d"},
    "deal_with_collector_close": lambda: {"step_count": 3},
}
OF_LEARNER = {
    "deal_with_get_data": lambda: {"batch_size": 4, "cur_learner_iter": 7},
    "deal_with_learner_learn": lambda data: {"learner_step": len(data)},
    "deal_with_learner_close": lambda: None,
}
DEMAND = {"batch_size": 4, "cur_learner_iter": 7}
ANSWERS = {
    "collector": {
        "collector_data_task": {"samples": to_content([{"data_id": "d"}]), "infos": [], **IDS},
        "collector_close_task": {"step_count": 3, "task_id": "t"},
    },
    "learner": {
        "learner_get_data_task": {**DEMAND, "batch_num": 1, "infos": [], "batches_done": 0, **IDS},
        "learner_learn_task": {**DEMAND, "batch_num": 0, "infos": [{"learner_step": 2}], "batches_done": 1, **IDS},
        "learner_close_task": IDS,
    },
}


@pytest.mark.parametrize(
    ("slave_type", "own", "functions"),
    [(CollectorSlave, "collector", OF_COLLECTOR), (LearnerSlave, "learner", OF_LEARNER)],
)
def test_a_slave_calls_its_functions_and_fails_unknown_tasks(slave_type, own, functions):
    log = []
    functions = {"deal_with_resource": lambda: {"gpu": 2}, f"deal_with_{own}_start": log.append, **functions}
    with slave_type("127.0.0.1", 0, callback_fn=functions) as slave:
        connector = HttpConnector("127.0.0.1", 0)
        connector.start()
        client = connector.client("slave", "127.0.0.1", slave.port)
        client.connect(DEADLINE_S)
        assert client.run({"name": "resource"}, DEADLINE_S) == {"gpu": 2}
        started = client.run({"name": f"{own}_start_task", "task_info": IDS}, DEADLINE_S)
        assert started == {"message": f"{own} task has started"} and log == [IDS]
        for name, answer in ANSWERS[own].items():
            assert client.run({"name": name, **pack_batches([[{}, {}]])}, DEADLINE_S) == answer
        for task in ({"name": "another_start_task"}, {}):
            with pytest.raises(TaskFailed) as failed:
                client.run(task, DEADLINE_S)
            assert failed.value.result == {"message": "task name error"}
        connector.close()
