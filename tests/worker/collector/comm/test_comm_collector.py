"""Collector tasks from their start to their end, over both kinds of transport."""

import threading

import numpy as np
import pytest
from easydict import EasyDict

from ding.utils.data.plain_columns import from_plain
from ding.utils.registry_factory import COMM_COLLECTOR_REGISTRY
from ding.worker.collector import BaseCommCollector, create_comm_collector
from tests.worker.collector.comm.workers import Driver
from tests.worker.collector.marine_fakes import battle_cfg
from tests.worker.collector.parallel_fakes import (
    DEADLINE_S,
    ENVS,
    GATES,
    POLICIES,
    Gate,
    collector_cfg,
    join_threads,
    weights,
)
from tests.worker.transport.sites import read_sample


def threads(*names):
    return [thread.name for thread in threading.enumerate() if thread.name in names]


# A task.


def test_all_samples_come_whole_and_before_the_end(site):
    site.write_weights(7)
    worker, driver = site.pair()
    assert worker._collector is None
    assert driver.start(lengths=(3, 2), episodes=2, n_sample=2, chunk_size=4) == {
        "message": "collector task has started"
    }
    uid = worker._collector.collector_uid
    rows, infos = driver.all()
    assert [(row["data_id"], row["data_index"], row["env_id"]) for row in rows] == [
        (f"env_{uid}_{chunk}", index, env_id)
        for chunk, env_ids in enumerate(((0, 0, 1, 1), (0, 1, 1, 0, 0), (0,)))
        for index, env_id in enumerate(env_ids)
    ]
    samples = [read_sample(site.reader, row) for row in rows]
    steps = [(*sample["obs"].tolist(), *sample["next_obs"].tolist()[2:], sample["done"]) for sample in samples]
    assert sorted(steps) == sorted(
        (env_id, episode, step, step + 1, step + 1 == length)
        for env_id, length in enumerate((3, 2))
        for episode in range(2)
        for step in range(length)
    )
    assert {(sample["collect_iter"], sample["policy_iter"], sample["priority"]) for sample in samples} == {(7, 7, 1.0)}
    assert [info["cur_episode"] for info in infos] == [1, 2, 3, 4]
    assert (infos[-1]["cur_sample"], infos[-1]["cur_step"]) == (10, 10)
    report = driver.close()
    assert (report["task_id"], report["sample_count"], report["train_iter"]) == ("task", 10, 7)
    assert report["reward_raw"] == [3.0, 3.0, 2.0, 2.0] and report["collector_done"] is True
    assert worker._collector is None and [env.closed for env in ENVS[-2:]] == [1, 1]
    assert threads("collector_start", "update_policy") == []


def test_weights_that_come_late_are_waited_for_and_the_coordinator_not_kept_waiting(site):
    _, driver = site.pair(data_wait_s=0.01)
    driver.start(lengths=(1,))
    reply = driver.ask()
    assert from_plain(reply["samples"]) == [] and reply["infos"] == []
    site.write_weights(4)
    rows, _ = driver.all()
    assert [row["policy_iter"] for row in rows] == [4]


def test_new_weights_reach_a_collector_that_runs(site):
    site.write_weights(1)
    gate = GATES["g"] = Gate()
    worker, driver = site.pair()
    driver.start(
        lengths=(10**6,),
        n_sample=1,
        flush_interval_s=0,
        update_policy_second=0.01,
        env={"wait_at": [0, 0, 2], "gate": "g"},
    )
    assert gate.reached.wait(DEADLINE_S)
    site.write_weights(2)
    gate.open()
    iterations = set()
    while 2 not in iterations:
        iterations |= {row["policy_iter"] for row in from_plain(driver.ask()["samples"])}
    assert iterations <= {1, 2}
    model = worker._collector.policy.state_dict()["model"]
    assert model["weight"].tolist() == [2.0, 2.0]
    assert driver.close()["train_iter"] == 2


def test_one_task_follows_another_and_nothing_is_mixed(site):
    site.write_weights()
    worker, driver = site.pair(queue_size=1)
    driver.start("first", lengths=(50,), n_sample=1, flush_interval_s=0)
    old = worker._collector
    first = driver.ask()
    assert first["task_id"] == "first"
    assert driver.close()["task_id"] == "first"  # with samples waiting
    assert driver.start("second", lengths=(1,))["message"]
    info = {"collector_done": False, "cur_episode": 0, "cur_sample": 0, "cur_step": 0}
    old.send_metadata([{"data_id": "env_old", "policy_iter": 0}])
    old.send_metadata(info)
    old.send_stepdata("env_old", b"data")
    assert old.get_policy_update_info("policy") is None
    rows, _ = driver.all()
    assert [row["data_id"] for row in rows] == [f"env_{worker._collector.collector_uid}_0"]
    with pytest.raises(FileNotFoundError):
        site.samples.read("env_old")
    assert driver.close()["sample_count"] == 1


def test_the_queue_holds_the_collector_back(site):
    site.write_weights()
    worker, driver = site.pair(queue_size=3)
    driver.start(lengths=(100,), n_sample=1, flush_interval_s=0)
    sizes, infos = [], []
    while not infos:
        reply = driver.ask()
        sizes.append(len(from_plain(reply["samples"])))
        infos += reply["infos"]
    assert sum(sizes) == infos[0]["cur_sample"] == 100
    assert max(sizes) <= 3


# What a task may ask for.


@pytest.mark.parametrize("path", ["../policy", "/etc/passwd", ".hidden"])
def test_weights_are_read_from_the_folder_of_weights_only(site, path):
    _, driver = site.pair()
    driver.start(policy_update_path=path)
    result = driver.failure(driver.ask)
    assert result["exception"] == "ValueError" and "file name" in result["message"]


@pytest.mark.parametrize("kind", ["flask_fs"])
def test_weights_that_hold_other_objects_are_read_only_where_the_worker_says_so(site):
    state = weights(5)
    state["model"]["function"] = np.random.default_rng  # to be imported by whoever reads it
    site.policies.write("policy", state)
    _, driver = site.pair()
    driver.start(lengths=(1,))
    assert driver.failure(driver.ask)["exception"] == "UnpicklingError"
    trusting = Driver(site.client(site.worker(trust_pickle=True), "collector1"))
    trusting.start(lengths=(1,))
    assert trusting.all()[0][0]["policy_iter"] == 5


def seeds_of(site, worker_seed, *evaluations):
    worker = create_comm_collector(site.cfg(**({} if worker_seed is None else {"seed": worker_seed})))
    site.workers.append(worker)
    site.write_weights()
    seeds = []
    for is_eval in evaluations:
        ENVS.clear()
        cfg = {"lengths": (1, 1), "is_eval": is_eval}
        worker.deal_with_collector_start({"task_id": "t", "collector_cfg": collector_cfg(**cfg)})
        worker.deal_with_collector_close()
        seeds.append([env.seeds for env in ENVS if env.seeds])
    return seeds


def test_every_task_has_a_seed_of_its_own_that_follows_from_that_of_the_worker(site):
    first, second, evaluation = seeds_of(site, 3, False, False, True)
    assert first[0][0] + 1 == first[1][0]  # env i of such envs gets seed + i
    assert len({seeds[0][0] for seeds in (first, second, evaluation)}) == 3
    again_evaluation, again_first = seeds_of(site, 3, True, False)
    assert (again_first, again_evaluation) == (first, evaluation)
    assert seeds_of(site, 4, False) != [first]
    assert seeds_of(site, None, False) == [[]]


# What goes wrong.


def test_an_exception_of_an_env_fails_the_task_with_its_traceback(site):
    site.write_weights()
    _, driver = site.pair(data_wait_s=1000)
    driver.start(lengths=(5,), env={"raise_at": [0, 0, 3]})
    result = driver.failure(driver.ask)
    assert result["exception"] == "RuntimeError" and "env 0 was told to fail" in result["traceback"]
    assert "in _mark" in result["traceback"] and "_env_step" in result["traceback"]
    assert driver.close()["step_count"] == 2
    driver.start(lengths=(1,))
    assert len(driver.all()[0]) == 1


def test_a_coordinator_that_takes_nothing_ends_the_collecting(site):
    site.write_weights()
    _, driver = site.pair(queue_size=1, data_timeout_s=0.01)
    driver.start(lengths=(9,), n_sample=1, flush_interval_s=0)
    join_threads("collector_start")
    assert "has taken nothing for 0.01 s, and 1 samples" in driver.failure(driver.ask)["message"]


def test_progress_and_silence_are_told_in_the_middle_of_an_episode(site):
    gate = GATES["g"] = Gate()
    _, driver = site.pair(data_wait_s=0)
    driver.start(is_eval=True, lengths=(9,), env={"wait_at": [0, 0, 3], "gate": "g"})
    reply = driver.ask()
    assert (reply["progress"]["cur_step"], reply["silence_s"]) == (0, 0.0)  # it waits for weights
    site.write_weights()
    assert gate.reached.wait(DEADLINE_S)
    first, second = driver.ask(), driver.ask()
    for reply in (first, second):
        assert reply["progress"] == {
            "eval_flag": True, "cur_episode": 0, "cur_sample": 0, "cur_step": 2, "silence_s": reply["silence_s"]
        }  # fmt: skip
    assert second["silence_s"] > first["silence_s"] > 0
    gate.open()
    driver.all()
    driver.close()


# The end.


@pytest.mark.differs(
    "cannot close a collector that waits for a full queue or for its first weights, for which it waits forever",
    "closes it; it fails after `first_policy_timeout_s`",
)
def test_a_task_whose_collector_waits_for_room_can_be_closed(site):
    site.write_weights()
    _, driver = site.pair(queue_size=1)
    driver.start(lengths=(10**6,), n_sample=1, flush_interval_s=0)
    while len(site.samples.names()) < 2:  # the first is in the queue
        threading.Event().wait(0.001)
    report = driver.close()
    assert 1 <= report["sample_count"] <= 3 and report["collector_done"] is False
    assert threads("collector_start", "update_policy") == []


# Direct use.


def test_the_methods_may_be_called_without_a_coordinator(site):
    worker = create_comm_collector(site.cfg())
    site.workers.append(worker)
    site.write_weights(2)
    assert worker.get_policy_update_info("policy")["iter"] == 2
    worker.send_stepdata("one", {"x": 1})
    worker.send_metadata({"data_id": "one", "policy_iter": np.int64(2)})
    assert worker.deal_with_collector_data() == {"data_id": "one", "policy_iter": 2}
    assert read_sample(site.reader, {"data_id": "one"})["x"] == 1
    assert len(worker.collector_uid) > 20


# Tasks of two policies that play against each other, over both kinds of transport.


class BattleDriver(Driver):
    """A `Driver` that starts battles."""

    def start(self, task_id="task", **cfg):
        info = {"task_id": task_id, "buffer_id": "buffer", "collector_cfg": battle_cfg(**cfg)}
        return self.run("collector_start_task", task_info=info)


def begin(site, **changes):
    for path, iteration in (("left", 7), ("right", 3)):
        site.policies.write(path, weights(iteration))
    worker = site.worker(**changes)
    return worker, BattleDriver(site.client(worker))


def test_new_weights_of_the_one_that_learns_are_taken_up_and_those_of_the_other_are_not(site):
    _, driver = begin(site, queue_size=1)  # so the collector waits for the coordinator at each step
    cfg = {"lengths": (10**6,), "n_sample": 1, "chunk_size": 1, "update_policy_second": 0.001}
    driver.start(flags=(True, False), **cfg)
    driver.ask()
    for path in ("left", "right"):
        site.policies.write(path, weights(9))
    (newest,) = from_plain(driver.ask()["samples"])
    while newest["collect_iter"] != 9:
        (newest,) = from_plain(driver.ask()["samples"])
    assert newest["policy_iter"] == [9, 3] and newest["player"] == 0
    driver.close()
    assert [policy.collect_mode.log.count("load 9") for policy in POLICIES[-2:]] == [1, 0]


def test_modules_named_by_either_policy_are_imported_only_where_the_workers_config_says_so(site):
    _, driver = begin(site)
    result = driver.failure(driver.start, right={"import_names": ["intruder"]})
    assert result["exception"] == "PermissionError" and "the task imports intruder" in result["message"]


# What every comm collector has.


@COMM_COLLECTOR_REGISTRY.register("own_comm_test", force_overwrite=True)
class Own(BaseCommCollector):
    """Keeps what is sent."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.sent = []

    def get_policy_update_info(self, path):
        return weights(1)

    def send_metadata(self, metadata):
        self.sent.append(metadata)

    def send_stepdata(self, path, stepdata):
        self.sent.append(path)


def test_a_class_of_ones_own_is_built_by_its_type_and_makes_collectors_that_send_through_it():
    comm = create_comm_collector(EasyDict(type="own_comm_test", import_names=[]))
    collector = comm._create_collector({"collector_cfg": collector_cfg(lengths=(1,), update_policy_second=1000)})
    collector.start()
    collector.close()
    assert comm.sent[0] == f"env_{collector.collector_uid}_0" and comm.sent[2]["collector_done"]


def test_modules_of_the_workers_own_config_may_be_named_by_tasks():
    comm = Own(EasyDict(import_names=["json"]))
    comm._create_collector({"collector_cfg": collector_cfg(import_names=["json"])}).close()
    with pytest.raises(PermissionError):
        comm._create_collector({"collector_cfg": collector_cfg(import_names=["csv"])})


def test_the_seed_of_the_worker_replaces_that_of_the_task_and_without_one_the_task_keeps_its_own():
    assert Own(EasyDict())._create_collector({"collector_cfg": collector_cfg(seed=5)})._cfg.seed == 5
    comm = Own(EasyDict(seed=0))
    seeds = [comm._create_collector({"collector_cfg": collector_cfg(seed=5)})._cfg.seed for _ in range(2)]
    assert 5 not in seeds and seeds[0] != seeds[1] and max(seeds) < 2**31


def test_the_tasks_of_a_worker_share_a_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    comm = Own(EasyDict())
    for _ in range(2):
        comm._create_collector({"collector_id": "collector3", "collector_cfg": collector_cfg()}).close()
    comm._create_collector({"collector_cfg": collector_cfg()}).close()  # a coordinator that names no worker
    [folder] = {path.parent for path in tmp_path.rglob("*_logger.txt")}
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["collector3_logger.txt", f"{comm.collector_uid}_logger.txt"]
    )
    assert (folder / "collector3_logger.txt").read_text().count("config: ") == 2


@pytest.mark.parametrize("name", ["../collector0", "", 3])
def test_a_name_that_leaves_the_folder_of_the_logs_is_refused(name):
    with pytest.raises(ValueError, match="file name"):
        Own(EasyDict())._create_collector({"collector_id": name, "collector_cfg": collector_cfg()})
