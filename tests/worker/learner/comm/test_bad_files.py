"""Learner tasks some of whose samples cannot be read, over both kinds of transport."""

import pytest

from ding.worker.learner.comm import base_comm_learner
from ding.worker.learner.comm.learner_task import LearnerQueue
from tests.worker.collector.parallel_fakes import UNTIL_NOTIFIED_S, in_thread
from tests.worker.learner.comm.test_learner_queue import waiting
from tests.worker.learner.comm.workers import POLICIES, entry


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


def test_whoever_gives_one_batch_at_a_time_hears_of_a_dropped_one(site, gone):
    worker, driver = site.pair(read_timeout_s=0.0)
    driver.start(policy={"with_priority": True})
    batches = site.batch(1, 2), gone, site.batch(3, 4)
    replies = [worker.deal_with_learner_learn(batch) for batch in batches]
    assert [len(info["priority_info"]) for info in replies] == [3, 0, 3]
    assert [losses(info) for info in replies] == [(None, None), (1, 1), (1, 1)]
    assert [info["learner_done"] for info in replies] == [False] * 3


def test_learners_that_train_together_do_not_pass_over_a_sample(site, monkeypatch):
    monkeypatch.setattr(base_comm_learner, "dist_init", lambda: (0, 2))
    monkeypatch.setattr(base_comm_learner, "dist_finalize", lambda: None)
    _, driver = site.pair(read_timeout_s=0.0, multi_gpu=True)
    driver.start(learner={"hook": {"log_reduce_after_iter": False}})
    driver.learn([*site.batch(1), entry("env_gone_1", 0)])
    failure = driver.coming_failure()
    assert failure["exception"] == "FileNotFoundError"
    assert failure["message"].startswith("learners that train together cannot skip a sample")


# The queue.


def test_a_dropped_batch_is_neither_work_nor_waited_for_and_counts_as_loaded():
    queue = LearnerQueue(2)
    queue.put([[{"data_id": "a"}]])
    queue.get()
    work, trained = queue.wait_for_work(0), in_thread(queue.wait_trained, UNTIL_NOTIFIED_S)
    queue.rest_until_next()
    queue.drop()
    assert work is True and trained() is True and not queue.wait_for_work(0)
    loading = in_thread(queue.get)
    waiting(queue)
    assert queue.take() == ([], 1)
    queue.close()
    assert loading() is None and queue.is_closed
