import doctest
import importlib

import pytest

MODULES = (
    "ding.utils.data.plain_columns",
    "ding.utils.system_helper",
    "ding.worker.adapter.learner_aggregator",
    "ding.worker.collector.comm.collector_task",
    "ding.worker.collector.comm.comm_collector",
    "ding.worker.collector.comm.flask_fs_collector",
    "ding.worker.collector.marine_parallel_collector",
    "ding.worker.collector.task_collector",
    "ding.worker.collector.zergling_parallel_collector",
    "ding.worker.coordinator.operator_server",
    "ding.worker.learner.comm.comm_learner",
    "ding.worker.learner.comm.flask_fs_learner",
    "ding.worker.learner.comm.learner_task",
)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_the_docstrings_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted > 0 and outcome.failed == 0
