"""Tasks that go on after their learner was lost."""

import copy
import json
import logging
import math
import os
import pathlib

import pytest
import torch
from easydict import EasyDict

from ding.policy import DQNPolicy
from ding.worker.learner.comm import resume as resume_module
from ding.worker.learner.comm.resume import ResumeSaver, newest_first, resume
from ding.worker.transport.chunk import encode_chunk
from tests.worker.learner.comm.test_dqn_learner import BATCH, policy_cfg, transitions
from tests.worker.learner.comm.workers import entry
from tests.worker.learner.fakes import FakePolicy, make_learner

CKPT = pathlib.Path("exp/ckpt")


def checkpoints():
    return sorted(path.name for path in CKPT.glob("*"))


def read(name):
    return torch.load(CKPT / name, weights_only=True)


def write(name, state, age=0):
    """A checkpoint that is older than others by `age`."""
    CKPT.mkdir(parents=True, exist_ok=True)
    torch.save(state, CKPT / name)
    os.utime(CKPT / name, ns=(10**18 - age, 10**18 - age))


def model(weight, target=None, optimizer="fresh"):
    target = weight if target is None else target
    return {"model": {"w": weight}, "target_model": {"w": target}, "optimizer": {"age": optimizer}}


def ckpt(weight, iteration, task_id="task", batches=None, **changes):
    extra = {"task_id": task_id, "batches": iteration if batches is None else batches, "iterations": iteration}
    return {**model(weight, 0.5, "old"), "last_iter": iteration, "last_step": 9, "learner": extra, **changes}


@pytest.fixture
def learner():
    policy = FakePolicy()
    policy.state = model(0.0)
    learner = make_learner(policy)
    learner.ckpt_extra = {"task_id": "task", "batches": 0, "iterations": 0}
    yield learner
    learner.close()


def counters(learner):
    return learner.train_iter, learner.collector_envstep, learner.trained_before


def weights(weight, iteration, **changes):
    return {"model": {"w": weight}, "iter": iteration, **changes}


# What a task goes on from.


def test_a_checkpoint_gives_the_state_and_the_counters(learner):
    write("iteration_7.pth.tar", ckpt(1.0, 7))
    resume(learner, None)
    assert learner.policy.state == model(1.0, 0.5, "old") and counters(learner) == (7, 9, 7)
    assert learner.ckpt_extra == {"task_id": "task", "batches": 7, "iterations": 7}


@pytest.mark.parametrize(("iteration", "weight"), [(6, 1.0), (7, 2.0), (12, 2.0)])
def test_weights_of_a_later_iteration_replace_the_model_and_versions_never_go_back(learner, iteration, weight):
    write("iteration_7.pth.tar", ckpt(1.0, 7))
    resume(learner, weights(2.0, iteration))
    assert learner.policy.state == model(weight, 0.5, "old")
    assert counters(learner) == (max(7, iteration), 9, max(7, iteration))


def test_what_else_came_with_the_weights_replaces_the_same_in_the_checkpoint(learner):
    learner.policy.state["value_norm"] = {"mean": 0.0}
    write("iteration_7.pth.tar", ckpt(1.0, 7, value_norm={"mean": 1.0}))
    resume(learner, weights(2.0, 8, value_norm={"mean": 2.0}, more=3))
    assert learner.policy.state == {**model(2.0, 0.5, "old"), "value_norm": {"mean": 2.0}}


def test_without_a_checkpoint_the_weights_are_begun_with_and_the_target_is_a_copy_of_them(learner):
    resume(learner, weights(2.0, 5))
    assert learner.policy.state == model(2.0, 2.0, "fresh") and counters(learner) == (5, 0, 5)


def test_the_newest_file_counts_not_the_highest_number(learner):
    write("iteration_9.pth.tar", ckpt(9.0, 9), age=1)
    write("resume_policy.pth.tar", ckpt(8.0, 8), age=0)
    write("iteration_7.pth.tar", ckpt(7.0, 7), age=2)
    assert [os.path.basename(path) for path in newest_first(str(CKPT))] == [
        "resume_policy.pth.tar",
        "iteration_9.pth.tar",
        "iteration_7.pth.tar",
    ]
    resume(learner, None)
    assert counters(learner)[0] == 8


def test_what_was_saved_on_an_error_and_unfinished_files_are_not_gone_on_from(learner):
    write("ckpt_exception.pth.tar", ckpt(float("nan"), 9))
    write(".resume_policy.pth.tar.7.tmp", ckpt(1.0, 9))
    (CKPT / "folder.pth.tar").mkdir()
    assert newest_first(str(CKPT)) == []


def test_the_checkpoints_of_another_task_are_not_gone_on_from(learner):
    write("iteration_9.pth.tar", ckpt(9.0, 9, task_id="another"))
    write("iteration_4.pth.tar", ckpt(4.0, 4), age=1)
    resume(learner, None)
    assert counters(learner)[0] == 4


@pytest.mark.parametrize("cut", [0, 1, 0.3, 0.7, -1])
def test_a_truncated_checkpoint_is_passed_over_with_a_line_in_the_log(learner, cut, caplog):
    write("iteration_4.pth.tar", ckpt(4.0, 4), age=1)
    write("iteration_9.pth.tar", ckpt(9.0, 9))
    data = (CKPT / "iteration_9.pth.tar").read_bytes()
    (CKPT / "iteration_9.pth.tar").write_bytes(data[: cut if isinstance(cut, int) else int(cut * len(data))])
    resume(learner, None)
    assert learner.policy.state == model(4.0, 0.5, "old") and counters(learner)[0] == 4
    assert "the checkpoint ./exp/ckpt/iteration_9.pth.tar cannot be used and is skipped" in caplog.text


# How much is left to train.


def test_what_a_task_begins_with_is_loaded_first_and_does_not_count_as_trained():
    torch.save({**model(5.0), "last_iter": 100, "last_step": 3}, "begin.pth.tar")
    policy = FakePolicy()
    policy.state = model(0.0)
    learner = make_learner(policy, hook={"load_ckpt_before_run": "begin.pth.tar"}, changes={"train_iterations": 10})
    learner.ckpt_extra = {"task_id": "task", "batches": 0, "iterations": 0}
    resume(learner, weights(6.0, 104))
    assert learner.policy.state == model(6.0) and counters(learner) == (104, 3, 4)
    learner.get_data = lambda batch_size: [{}, {}]
    learner.setup_dataloader()
    learner.start()
    learner.close()
    assert learner.train_iter == 110 and len(policy.calls) == 6


# What is saved meanwhile.


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(resume_module, "monotonic", lambda: now[0])
    return now


def test_a_checkpoint_is_saved_between_two_batches_when_it_is_time(learner, clock):
    saver = ResumeSaver(learner, "policy", 30)
    saved = []
    for clock[0] in (0, 29.9, 30, 59, 61, 90):
        saver.between_batches()
        learner.train([{}, {}], envstep=learner.train_iter)
        saved.append(read("resume_policy.pth.tar")["last_iter"] if checkpoints() else None)
    assert saved == [None, None, 2, 2, 4, 4] and checkpoints() == ["resume_policy.pth.tar"]
    assert read("resume_policy.pth.tar") == {
        **model(0.0),
        "last_iter": 4,
        "last_step": 3,
        "learner": {"task_id": "task", "batches": 4, "iterations": 4},
    }


@pytest.mark.parametrize(
    ("age", "left"), [(-1, ["iteration_9.pth.tar"]), (1, ["iteration_9.pth.tar", "resume_p.pth.tar"])]
)
def test_the_checkpoint_goes_at_the_end_if_there_is_a_newer_one(learner, age, left):
    write("resume_p.pth.tar", ckpt(8.0, 8))
    write("iteration_9.pth.tar", ckpt(9.0, 9), age)
    ResumeSaver(learner, "p", 30).tidy()
    assert checkpoints() == left


def test_a_checkpoint_that_cannot_be_saved_does_not_end_the_training(learner, clock, monkeypatch, caplog):
    def fail(path, state):
        raise OSError("the disk is full")

    monkeypatch.setattr(resume_module, "save_file", fail)
    saver = ResumeSaver(learner, "policy", 30)
    clock[0] = 31
    saver.between_batches()
    saver.between_batches()
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [
        "could not save ./exp/ckpt/resume_policy.pth.tar; the training continues"
    ]
    assert "the disk is full" in caplog.text


def test_parameters_that_a_nan_has_ruined_end_the_training_and_are_not_saved(learner, clock):
    learner.policy.state["model"] = {"w": torch.tensor(math.nan)}
    saver = ResumeSaver(learner, "policy", 30)
    clock[0] = 31
    with pytest.raises(FloatingPointError):
        saver.between_batches()
    assert checkpoints() == []


# Two lives of a task.


def lives(site, monkeypatch, cfg, **changes):
    """A worker that saves a checkpoint before each batch, and how to begin the same task on it and on others."""
    monkeypatch.setattr(resume_module, "_MAX_SHARE", math.inf)
    # Its weights are written with each iteration, not later, when another life may have written newer ones.
    worker, driver = site.pair(checkpoint_interval_s=1e-9, send_policy_interval_s=0)

    def begin(driver, **more):
        torch.manual_seed(7)
        driver.start(policy=copy.deepcopy(cfg), learner={"train_iterations": 5, **changes}, **more)

    return worker, driver, begin


def saved_iteration():
    try:
        return read("resume_policy_task.pth.tar")["last_iter"]
    except FileNotFoundError:
        return None


def trained_at_home(cfg, data, count):
    torch.manual_seed(7)
    policy = DQNPolicy(EasyDict(copy.deepcopy(cfg)), enable_field=["learn"]).learn_mode
    for _ in range(count):
        policy.forward(copy.deepcopy(data))
    return policy.state_dict()


def flat(state):
    return {
        **{f"{part}.{key}": value for part in ("model", "target_model") for key, value in state[part].items()},
        **{
            f"optimizer.{number}.{key}": value
            for number, values in state["optimizer"]["state"].items()
            for key, value in values.items()
        },
    }


@pytest.mark.differs(
    "loses the training if the learner's process dies",
    "restarts the learner, which resumes from the newest intact checkpoint, saved every `checkpoint_interval_s` (30)",
)
def test_a_second_life_trains_on_as_if_there_had_been_only_one(site, monkeypatch):
    cfg = json.loads(json.dumps(policy_cfg()))
    batch = [entry("env_uid_1", index, IS=0.5 + index / 16) for index in range(BATCH)]
    site.samples.write("env_uid_1", encode_chunk(transitions(), "lz4"))
    home = trained_at_home(cfg, [{**sample, **row} for sample, row in zip(transitions(), batch, strict=True)], 5)
    _, first, begin = lives(site, monkeypatch, cfg, hook={"save_ckpt_after_run": True})
    begin(first)
    first.learn(batch, batch, batch)
    while saved_iteration() != 3:
        first.ask()
    # The process is gone here: nothing of it is asked to end.
    _, second = site.pair()
    begin(second, resume=True)
    torch.manual_seed(11)
    assert second.ask()["cur_learner_iter"] == 3
    second.learn(batch, batch)
    infos, _ = second.infos(3)
    assert [info["learner_step"] for info in infos] == [3, 4, 5] and infos[-1]["learner_done"] is True
    assert site.policies.read("policy_task").state["iter"] == 5
    second.close()
    final = read("iteration_5.pth.tar")
    assert flat(final).keys() == flat(home).keys()
    assert all(torch.equal(value, flat(home)[key]) for key, value in flat(final).items())
    assert final["learner"] == {"task_id": "task", "batches": 4, "iterations": 4}
    assert checkpoints() == ["iteration_5.pth.tar"]


def test_a_task_whose_connection_was_lost_goes_on_in_the_same_worker(site):
    worker, driver = site.pair()
    driver.start(learner={"train_iterations": 6})
    driver.learn(site.batch(1, 2), site.batch(3, 4))
    driver.infos(2)
    driver.client.close()
    if site.kind == "local":
        worker.deal_with_lost_coordinator()
    driver = site.driver(site.client(worker, "again"))
    driver.start(learner={"train_iterations": 6}, resume=True)
    assert driver.ask()["cur_learner_iter"] == 2
    driver.close()
    assert site.policies.read("policy_task").state == {"model": {"seen": torch.tensor(2.0)}, "iter": 2}
