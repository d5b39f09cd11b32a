"""What `ding.worker` offers, and what importing it registers."""

import doctest
import importlib

import pytest

import ding.worker
from ding.utils.registry_factory import (
    BUFFER_REGISTRY,
    LEARNER_REGISTRY,
    SERIAL_COLLECTOR_REGISTRY,
    SERIAL_EVALUATOR_REGISTRY,
)


def test_every_exported_name_is_there():
    assert [name for name in ding.worker.__all__ if not hasattr(ding.worker, name)] == []


@pytest.mark.differs(
    "cannot import `DequeBufferWrapper` from `ding.worker`, and binds inner modules for `import ding.data.buffer as b`",
    "exports it, and binds the package",
)
def test_the_deque_buffer_is_exported_and_registered():
    from ding.worker import DequeBufferWrapper

    assert BUFFER_REGISTRY.get("deque") is DequeBufferWrapper


def test_importing_the_package_registers_its_classes():
    assert {"naive", "advanced", "deque"} <= set(BUFFER_REGISTRY)
    assert "sample" in SERIAL_COLLECTOR_REGISTRY and "interaction" in SERIAL_EVALUATOR_REGISTRY
    assert "base" in LEARNER_REGISTRY


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
def test_the_examples_of_the_docstrings_run(module):
    outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted > 0 and outcome.failed == 0
