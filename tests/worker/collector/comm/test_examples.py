import doctest
import importlib

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "zergling_parallel_collector",
        "marine_parallel_collector",
        "task_collector",
        "comm.collector_task",
        "comm.comm_collector",
        "comm.flask_fs_collector",
    ],
)
def test_the_examples_of_the_docstrings_run(module):
    outcome = doctest.testmod(importlib.import_module(f"ding.worker.collector.{module}"))
    assert outcome.attempted > 0 and outcome.failed == 0
