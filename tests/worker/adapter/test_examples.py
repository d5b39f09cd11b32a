import doctest
import importlib

import pytest

MODULES = (
    "ding.utils.system_helper",
    "ding.worker.adapter.learner_aggregator",
    "ding.worker.coordinator.operator_server",
    "ding.utils.data.plain_columns",
)


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_the_docstrings_run(module):
    outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted > 0 and outcome.failed == 0
