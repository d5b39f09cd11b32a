import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["learner_task", "comm_learner", "flask_fs_learner"])
def test_the_examples_of_the_docstrings_run(module):
    outcome = doctest.testmod(importlib.import_module(f"ding.worker.learner.comm.{module}"))
    assert outcome.attempted > 0 and outcome.failed == 0
