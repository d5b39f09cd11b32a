"""Where a worker writes, by rank."""

import logging
import os

import pytest

from ding.worker import worker_log
from ding.worker.worker_log import WorkerLog
from tests.fakes import FakeWriter


def test_a_rank_that_does_not_monitor_writes_nothing_but_its_records_can_be_handled(monkeypatch, caplog):
    monkeypatch.setattr(worker_log, "get_rank", lambda: 1)
    log = WorkerLog("exp", "collector", FakeWriter(), is_monitor=False)
    with caplog.at_level(logging.INFO, "collector_logger"):
        log.text.info("hello")
        log.text.info(log.text.get_tabulate_vars_hor({"a": 1}))
    log.scalars({"a": 1.0}, train_iter=1)
    log.close()
    assert os.listdir() == [] and log.tb is None
    assert log.text.name == "collector_logger" and "hello" in caplog.text


@pytest.mark.parametrize(("rank", "is_monitor"), [(0, False), (0, True), (1, True)])
def test_rank_0_and_every_rank_that_monitors_have_a_text_file(monkeypatch, rank, is_monitor):
    monkeypatch.setattr(worker_log, "get_rank", lambda: rank)
    log = WorkerLog("exp", "learner", FakeWriter(), is_monitor=is_monitor)
    log.text.info("hello")
    with open("exp/log/learner/learner_logger.txt") as file:
        assert "hello" in file.read()
