"""Learner tasks from their start to their end, over both kinds of transport."""

import os
import pathlib
import threading

import pytest
import torch
from easydict import EasyDict

from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import COMM_LEARNER_REGISTRY
from ding.worker.learner import BaseCommLearner
from ding.worker.learner.comm import NaiveLearner, base_comm_learner, create_comm_learner
from ding.worker.learner.comm.learner_task import SendLearnInfoHook, SendPolicyHook
from ding.worker.transport.chunk import pack_batches
from ding.worker.transport.transport import TaskFailed
from tests.worker.collector.parallel_fakes import Gate
from tests.worker.learner.comm.workers import GATES, POLICIES, entry, task_info
from tests.worker.transport.sites import DEADLINE_S, messages_to


def threads(*names):
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(names)]


def checkpoints():
    return sorted(path.name for path in pathlib.Path("exp/ckpt").glob("*"))


def weights(site, name="policy_task"):
    state = site.policies.read(name).state
    return state["model"]["seen"].item(), state["iter"]


# A task.


def test_batches_are_trained_in_order_and_every_iteration_is_told(site):
    worker, driver = site.pair(prefetch_batches=3)
    assert driver.start() == {"message": "learner task has started"}
    demand = driver.ask()
    assert demand == {
        "batch_size": 2,
        "cur_learner_iter": 0,
        "batch_num": 3,
        "infos": [],
        "batches_done": 0,
        "silence_s": 0.0,
        "task_id": "task",
        "buffer_id": "buffer_task",
    }
    reply = driver.learn(site.batch(1, 2), site.batch(3, 4), site.batch(5, 6))
    assert reply.keys() == {"infos", "batches_done", "task_id", "buffer_id"}
    infos, _ = driver.infos(3)
    assert infos == [{"learner_step": n, "priority_info": {}, "learner_done": False} for n in range(3)]
    assert POLICIES[0].seen() == [[1, 2], [3, 4], [5, 6]]
    assert driver.close()["task_id"] == "task"
    assert threads("learner_start", "dataloader") == []


@pytest.mark.differs(
    "makes a learner wait while its next batch is sampled, sent and loaded",
    "loads the next batches while it trains, up to `prefetch_batches` (64)",
)
def test_the_next_batches_are_loaded_while_the_learner_trains(site):
    GATES["gate"] = Gate()
    _, driver = site.pair(prefetch_batches=4)
    driver.start(policy={"wait_at": 0, "gate": "gate"})
    driver.learn(*(site.batch(n, n) for n in range(4)))
    assert GATES["gate"].reached.wait(DEADLINE_S)
    done = 0
    while done < 2:  # the third is ready too, but the loader, which has asked for no more, has not said so
        done += driver.ask()["batches_done"]
    assert POLICIES[0].batches == []
    GATES["gate"].open()
    assert [info["learner_step"] for info in driver.infos(4)[0]] == [0, 1, 2, 3]


def test_a_learner_is_silent_as_long_as_it_neither_trains_nor_waits_for_data(site):
    GATES["gate"] = Gate()
    _, driver = site.pair(data_wait_s=0)
    driver.start(policy={"wait_at": 1, "gate": "gate"})
    driver.learn(site.batch(1, 2))
    driver.infos(1)
    driver.learn(site.batch(3, 4))
    assert GATES["gate"].reached.wait(DEADLINE_S)
    first, second = driver.ask()["silence_s"], driver.ask()["silence_s"]
    assert second > first > 0
    GATES["gate"].open()
    driver.infos(1)
    while (last := driver.ask()["silence_s"]) > 0:  # until it waits again
        assert last < DEADLINE_S


@pytest.mark.differs(
    "reports the end of a learner only after one more batch, and hangs if there are no data",
    "reports it at once",
)
def test_a_learner_that_is_done_tells_so_at_once_and_wants_no_more(site):
    _, driver = site.pair(data_wait_s=0.01)
    driver.start(learner={"train_iterations": 2})
    driver.learn(site.batch(1, 2), site.batch(3, 4))
    infos, _ = driver.infos(9)
    assert [info["learner_done"] for info in infos] == [False, False, True]
    assert infos[-1]["learner_step"] == 2
    assert driver.failure(driver.ask)["exception"] == "LearnerClosed"
    assert driver.close()["infos"] == []
    assert POLICIES[0].seen() == [[1, 2], [3, 4]]


def test_the_end_saves_a_checkpoint_writes_the_weights_and_gives_the_last_infos(site):
    _, driver = site.pair()
    driver.start()
    driver.learn(site.batch(1, 2))
    driver.infos(1)
    report = driver.close()
    assert report["infos"] == [{"learner_step": 1, "priority_info": {}, "learner_done": True}]
    assert checkpoints() == ["iteration_1.pth.tar"]
    assert weights(site) == (1.0, 1)


@pytest.mark.differs(
    "passes data of a worker's first task that is left in its queues to the second task",
    "gives each task its own queues",
)
def test_a_second_task_starts_clean(site):
    worker, driver = site.pair()
    driver.start("one")
    driver.learn(site.batch(1, 2))
    driver.infos(1)
    driver.close()
    driver.start("two")
    assert driver.ask()["infos"] == []
    driver.learn(site.batch(3, 4))
    assert [info["learner_step"] for info in driver.infos(1)[0]] == [0]
    driver.close()
    assert [policy.seen() for policy in POLICIES] == [[[1, 2]], [[3, 4]]]
    assert (weights(site, "policy_one"), weights(site, "policy_two")) == ((1.0, 1), (1.0, 1))


# Weights.


def test_weights_are_there_before_the_first_batch(site):
    _, driver = site.pair()
    driver.start()
    driver.ask()
    while True:
        try:
            assert weights(site) == (0.0, 0)
            return
        except FileNotFoundError:
            driver.ask()


@pytest.mark.differs(
    "ignores `send_policy_freq` and writes the weights in place after every iteration",
    "follows it, at most once in `send_policy_interval_s` (0.25); files appear complete or not at all",
)
def test_the_frequency_of_a_task_is_honoured(site, monkeypatch):
    written = recording(site, monkeypatch)
    _, driver = site.pair(send_policy_interval_s=0)
    driver.start(learner={"send_policy_freq": 2, "train_iterations": 5})
    driver.learn(*(site.batch(n, n) for n in range(5)))
    driver.infos(9)
    assert written == [("policy_task", n) for n in (0, 0, 2, 4, 5)]


def recording(site, monkeypatch):
    """The names and iterations under which weights are written."""
    written = []
    write = type(site.policies).write

    def record(store, name, state):
        written.append((name, state["iter"]))
        write(store, name, state)

    monkeypatch.setattr(type(site.policies), "write", record)
    return written


@pytest.mark.parametrize("kind", ["flask_fs"])
def test_the_file_of_the_weights_is_read_without_running_code(site):
    _, driver = site.pair()
    driver.start()
    driver.close()
    path = os.path.join(site.policies.root, "policy_task")
    assert torch.load(path, weights_only=True) == {"model": {"seen": torch.tensor(0.0)}, "iter": 0}
    assert os.listdir(site.policies.root) == ["policy_task"]


def test_a_league_gets_its_weights_too(site):
    _, driver = site.pair()
    driver.start(league_save_checkpoint_path=f"{site.policies.root}/player_ckpt.pth")
    driver.close()
    assert weights(site, "player_ckpt.pth") == weights(site) == (0.0, 0)


# Failures.


def test_what_the_policy_raises_fails_the_next_task_with_its_traceback(site):
    _, driver = site.pair()
    driver.start(policy={"raise_at": 1})
    driver.learn(site.batch(1, 2), site.batch(3, 4))
    failure = driver.coming_failure()
    assert failure["exception"] == "ZeroDivisionError" and "told to fail" in failure["message"]
    assert "in forward" in failure["traceback"]
    assert driver.failure(driver.learn, site.batch(5, 6)) == failure
    assert checkpoints() == ["ckpt_exception.pth.tar"]
    driver.close()
    driver.start("two")
    assert driver.ask()["batch_num"] == 8


@pytest.mark.differs(
    "lets a task read, write and delete samples and weights anywhere on a worker's machine",
    "stays in the folders of the run",
)
@pytest.mark.parametrize("name", ["/etc/passwd", "../secret", ".hidden"])
def test_samples_outside_the_folder_are_not_read(site, name):
    _, driver = site.pair(max_bad_batches=1)
    driver.start()
    driver.learn([entry(name, 0), entry(name, 1)])
    failure = driver.coming_failure()
    assert failure["exception"] == "ValueError" and "must be a plain name" in failure["message"]


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ([entry("env_1", 0)], "the batch has 1 samples; the batch size is 2"),
        ([{"IS": 1.0}, {"IS": 1.0}], "without data_id in each sample"),
    ],
)
def test_a_batch_that_is_none_is_an_error(site, batch, text):
    _, driver = site.pair()
    driver.start()
    driver.learn(batch)
    failure = driver.coming_failure()
    assert failure["exception"] == "ValueError" and text in failure["message"]


@pytest.mark.parametrize("key", ["policy_id", "league_save_checkpoint_path"])
def test_weights_are_not_written_outside_their_folder(site, key, tmp_path):
    worker, driver = site.pair()
    failure = driver.failure(driver.start, **{key: str(tmp_path / "elsewhere")})
    assert failure["exception"] == "ValueError" and "is not allowed" in failure["message"]
    assert threads("learner_start", "dataloader") == []


def test_a_task_cannot_have_a_worker_trust_a_pickle(site):
    hook = {"load": {"name": "load", "type": "load_ckpt", "position": "before_run"}}
    hook["load"]["ext_args"] = {"load_path": "x.pth.tar", "trust_pickle": True}
    worker, driver = site.pair()
    failure = driver.failure(driver.start, learner={"hook": hook})
    assert failure["exception"] == "PermissionError" and "trust_pickle" in failure["message"]
    assert driver.failure(driver.ask) == {"message": "no learner task runs"}
    _, driver = site.pair(trust_pickle=True)
    assert driver.start(learner={"hook": {}, "trust_pickle": True})["message"] == "learner task has started"


# Called directly.


def test_get_data_send_policy_and_send_learn_info_act_on_the_present_task(site):
    worker, driver = site.pair()
    driver.start()
    worker.send_policy({"model": {}, "iter": 7})
    worker.send_learn_info({"learner_step": 7, "learner_done": True})
    assert driver.ask()["infos"] == [{"learner_step": 7, "learner_done": True}]
    assert worker.deal_with_learner_close()["task_id"] == "task"
    assert worker.get_data(2) == []


def test_the_hooks_that_a_learner_is_given(site):
    hooks = site.worker().hooks4call
    assert [(hook.name, hook.priority, hook.position) for hook in hooks] == [
        ("send_policy", 100, "before_run"),
        ("send_policy", 100, "after_iter"),
        ("send_policy", 100, "after_run"),
        ("send_learn_info", 100, "after_iter"),
        ("send_learn_info", 100, "after_run"),
    ]


@pytest.mark.parametrize(("port", "own"), [(7000, 7001), ([7000, 7005], 7005), (0, 0)])
def test_each_rank_has_a_port_of_its_own(monkeypatch, port, own):
    finalized = []
    monkeypatch.setattr(base_comm_learner, "dist_init", lambda: (1, 2))
    monkeypatch.setattr(base_comm_learner, "dist_finalize", lambda: finalized.append(1))
    learner = create_comm_learner(
        EasyDict(type="flask_fs", multi_gpu=True, port=port, path_data="data", path_policy="policy")
    )
    assert learner._own_port() == own and learner.deal_with_resource() == {"gpu": 2}
    learner.close()
    learner.close()
    assert finalized == [1]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"port": "7000"}, "port = '7000'"),
        ({"port": []}, "port = "),
        ({"port": [7000, -1]}, "port = "),
        ({"prefetch_batches": 0}, "prefetch_batches = 0"),
        ({"send_policy_interval_s": -1}, "send_policy_interval_s = -1"),
        ({"multi_gpu": "yes"}, "multi_gpu = 'yes'"),
        ({"checkpoint_interval_s": -1}, "checkpoint_interval_s = -1"),
        ({"max_bad_batches": 0}, "max_bad_batches = 0"),
    ],
)
def test_the_config_is_checked(site, changes, text):
    with pytest.raises(ConfigError, match=text):
        site.worker(**changes)


# An end that leaves nothing out.


def test_a_learner_trains_what_it_was_given_before_it_ends_if_it_is_told_to(site):
    _, driver = site.pair()
    driver.start()
    driver.learn(*(site.batch(n, n) for n in range(6)))
    report = driver.run("learner_close_task", drain=True)
    assert POLICIES[0].seen() == [[n, n] for n in range(6)]
    assert report["infos"][-1]["learner_step"] == 6 and report["infos"][-1]["learner_done"] is True


# Learner tasks some of whose samples cannot be read, over both kinds of transport.


@pytest.fixture
def gone():
    """The metadata of a batch whose file is not there."""
    return [entry("env_gone_1", 0), entry("env_gone_1", 1)]


def drive(driver, *batches, count):
    """Give the batches one after the other; the infos that come by the time there are `count`, and the batches done."""
    for batch in batches:
        driver.learn(batch)
    return driver.infos(count)


def losses(info):
    return info.get("bad_files"), info.get("dropped_batches")


@pytest.mark.differs(
    "retries forever to read a file of samples that is missing or damaged, so that the learner stands still",
    "skips and counts its samples (`bad_files`), and fails after `max_bad_batches` (100) in a row",
)
def test_a_batch_that_cannot_be_read_is_dropped_and_the_training_goes_on(site, gone):
    _, driver = site.pair(read_timeout_s=0.01)
    driver.start(policy={"with_priority": True})
    infos, done = drive(driver, site.batch(1, 2), gone, site.batch(5, 6), count=2)
    while done < 2:  # the dropped one is as done as the others, and its chunks may go
        done += driver.ask()["batches_done"]
    assert POLICIES[0].seen() == [[1, 2], [5, 6]]
    assert [info["learner_step"] for info in infos] == [0, 1]
    assert losses(infos[1]) == (1, 1)  # the loader may be ahead of the first
    assert [info["priority_info"]["replay_unique_id"][0] for info in infos] == ["env_uid_1_0", "env_uid_2_0"]
    driver.learn(site.batch(7, 8))
    while done < 3:
        done += driver.ask()["batches_done"]
    assert losses(driver.close()["infos"][-1]) == (1, 1)


def test_the_readable_samples_of_bad_batches_are_trained_together_and_their_priorities_told(site):
    _, driver = site.pair(read_timeout_s=0.0)
    driver.start(policy={"with_priority": True})
    (one, _), (two, _) = site.batch(1, 1), site.batch(2, 2)
    infos, _ = drive(driver, [one, entry("env_gone_1", 0)], [entry("env_gone_2", 0), two], count=1)
    assert POLICIES[0].seen() == [[1, 2]]
    assert infos[0]["priority_info"]["replay_unique_id"] == ["env_uid_1_0", "env_uid_2_0"]
    assert losses(infos[0]) == (2, 1)


def test_nothing_but_bad_files_is_an_error_after_a_while(site, gone):
    _, driver = site.pair(read_timeout_s=0.0, max_bad_batches=3)
    driver.start()
    drive(driver, gone, gone, site.batch(1, 2), count=1)  # in between there was something
    driver.learn(gone, gone)
    assert driver.ask()["batch_num"] > 0
    driver.learn([entry("env_gone_2", 0)] * 2)
    failure = driver.coming_failure()
    assert failure["exception"] == "FileNotFoundError"
    reason = "no sample of 3 consecutive batches could be read (max_bad_batches); last error: "
    assert failure["message"].startswith(reason)
    assert "the samples 'env_gone_2' could not be read within 0 s" in failure["message"]


def test_learners_that_train_together_do_not_pass_over_a_sample(site, monkeypatch):
    monkeypatch.setattr(base_comm_learner, "dist_init", lambda: (0, 2))
    monkeypatch.setattr(base_comm_learner, "dist_finalize", lambda: None)
    _, driver = site.pair(read_timeout_s=0.0, multi_gpu=True)
    driver.start(learner={"hook": {"log_reduce_after_iter": False}})
    driver.learn([*site.batch(1), entry("env_gone_1", 0)])
    failure = driver.coming_failure()
    assert failure["exception"] == "FileNotFoundError"
    assert failure["message"].startswith("learners that train together cannot skip a sample")


# What every comm learner has.


@COMM_LEARNER_REGISTRY.register("own_learner_test", force_overwrite=True)
class Own(BaseCommLearner):
    """Gives samples that count up, and keeps what is sent."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.policies, self.infos, self.asked = [], [], 0

    def send_policy(self, state_dict):
        self.policies.append(state_dict["iter"])

    def send_learn_info(self, learn_info):
        self.infos.append(learn_info["learner_step"])

    def get_data(self, batch_size):
        self.asked += 1
        return [{"obs": self.asked} for _ in range(batch_size)]

    @property
    def hooks4call(self):
        return [SendPolicyHook("p", 100, position="after_run"), SendLearnInfoHook("i", 100, position="after_iter")]


def test_a_class_of_ones_own_is_built_by_its_type_and_makes_learners_that_call_it():
    comm = create_comm_learner(EasyDict(type="own_learner_test", import_names=[]))
    learner = comm._create_learner(task_info(learner={"train_iterations": 2}))
    for hook in comm.hooks4call:
        learner.register_hook(hook)
    learner.start()
    learner.close()
    assert (comm.policies, comm.infos) == ([2], [0, 1])
    assert POLICIES[0].batches == [[{"obs": 1}, {"obs": 1}], [{"obs": 2}, {"obs": 2}]]
    assert (learner.rank, learner.world_size, learner.exp_name) == (0, 1, "exp")


# The stand-in for a learner.


IDS = {"task_id": "t", "buffer_id": "b"}


@pytest.fixture
def run():
    with messages_to(NaiveLearner("127.0.0.1", 0, prefix="PRE")) as run:
        yield run


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
