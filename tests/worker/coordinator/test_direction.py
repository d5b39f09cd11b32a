"""The parts of a coordinator do not know those that use them, not even for type checks."""

import ast
from pathlib import Path

import pytest

import ding.worker.coordinator

PACKAGE = "ding.worker.coordinator"
# Each module imports only those before it, as drawn in docs/inside.md.
ORDER = [
    "limiter",
    "buffer_set",  # imported by the transports
    "run_monitor",
    "worker_table",
    "operator_server",
    "base_serial_commander",
    "base_parallel_commander",
    "solo_parallel_commander",
    "one_vs_one_parallel_commander",
    "comm_coordinator",
    "scheduler",
    "parallel_run_state",
    "status",
    "coordinator",
]
FOLDER = Path(ding.worker.coordinator.__file__).parent


def test_every_module_has_its_place():
    assert sorted(ORDER) == sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("module", ORDER)
def test_a_module_imports_those_before_it_alone(module):
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert PACKAGE not in imported
    parts = {name.removeprefix(f"{PACKAGE}.") for name in imported if name.startswith(f"{PACKAGE}.")}
    assert parts <= set(ORDER[: ORDER.index(module)])
