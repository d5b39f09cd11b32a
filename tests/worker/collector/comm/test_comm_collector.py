"""Collector tasks from their start to their end, over both kinds of transport."""

import errno
import threading

import numpy as np
import pytest

from ding.utils.data.plain_columns import from_plain
from ding.worker.collector import create_comm_collector
from tests.worker.collector.comm.workers import Driver
from tests.worker.collector.parallel_fakes import (
    DEADLINE_S,
    ENVS,
    GATES,
    Gate,
    collector_cfg,
    join_threads,
    weights,
)


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
    samples = [site.reader.sample(row) for row in rows]
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


def test_an_evaluation_reports_its_returns(site):
    site.write_weights(3)
    _, driver = site.pair()
    driver.start(lengths=(3, 1), is_eval=True)
    rows, infos = driver.all()
    assert rows == [] and infos[-1]["cur_episode"] == 2
    report = driver.close()
    assert (report["eval_flag"], report["reward_mean"], report["train_iter"]) == (True, 2.0, 3)
    assert "collect_setting" not in report


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


def test_a_disk_that_is_full_for_a_moment_is_waited_for(site, monkeypatch):
    site.write_weights()
    _, driver = site.pair()
    write, errors = type(site.samples).write, [errno.ENOSPC, errno.ESTALE]

    def fail_at_first(store, name, data):
        if errors:
            raise OSError(errors.pop(0), "told to fail", name)
        write(store, name, data)

    monkeypatch.setattr(type(site.samples), "write", fail_at_first)
    driver.start(lengths=(1,))
    assert len(driver.all()[0]) == 1 and errors == []


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


def test_a_task_that_waits_for_its_first_weights_can_be_closed(site):
    _, driver = site.pair(data_wait_s=0)
    driver.start(first_policy_timeout_s=1000)
    driver.ask()
    assert driver.close()["step_count"] == 0
    assert threads("collector_start") == []


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
    assert site.reader.sample({"data_id": "one"})["x"] == 1
    assert len(worker.collector_uid) > 20
