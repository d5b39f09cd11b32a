"""What can be imported from where, and what that costs."""

import doctest
import importlib
import pkgutil
import subprocess
import sys
import types

import pytest

import ding.interaction
from ding.interaction import config

REFUSALS = ["ConnectionRefuse", "DisconnectionRefuse", "TaskFail", "TaskRefuse"]
SURFACE = {
    "ding.interaction": ["Master", "Slave", *REFUSALS],
    "ding.interaction.master": ["Master", *REFUSALS],
    "ding.interaction.slave": ["Slave", *REFUSALS],
    "ding.interaction.master.task": ["Task", "TaskResultType", "TaskStatus"],
    "ding.interaction.base": [
        "CommonErrorCode", "ControllableContext", "ControllableService", "DblEvent", "HttpEngine",
        "ResponsibleException", "default_func", "failure_response", "flask_response", "get_host_ip",
        "get_http_engine_class", "get_values_from_response", "random_token", "responsible", "split_http_address",
        "success_response", "translate_dict_func",
    ],
    "ding.interaction.config": ["GLOBAL_HOST", "LOCAL_HOST", "DEFAULT_MASTER_PORT", "DEFAULT_SLAVE_PORT"],
    "ding.interaction.exception": ["ResponseException", "MasterResponseException", "SlaveResponseException", *REFUSALS],
    "ding.interaction.exception.base": ["ResponseException"],
    "ding.interaction.exception.master": ["MasterErrorCode", "get_master_exception_class_by_error_code"],
    "ding.interaction.exception.slave": ["SlaveErrorCode", "get_slave_exception_class_by_error_code"],
}  # fmt: skip


@pytest.mark.guarantees("interfaces")
@pytest.mark.parametrize("module", SURFACE)
def test_documented_names_can_be_imported(module):
    found = importlib.import_module(module)
    assert [name for name in SURFACE[module] if not hasattr(found, name)] == []
    assert set(getattr(found, "__all__", [])) <= set(vars(found))


def test_submodules_are_not_hidden_by_what_packages_export():
    for info in pkgutil.walk_packages(ding.interaction.__path__, "ding.interaction."):
        importlib.import_module(info.name)
        parent, _, name = info.name.rpartition(".")
        assert getattr(importlib.import_module(parent), name) is sys.modules[info.name]
        assert isinstance(sys.modules[info.name], types.ModuleType)


@pytest.mark.parametrize("module", ["base", "http_client", "slave"])
def test_examples_in_docstrings_run(module):
    outcome = doctest.testmod(importlib.import_module(f"ding.interaction.{module}"))
    assert outcome.attempted > 0 and outcome.failed == 0


def test_importing_loads_neither_server_nor_client_nor_torch():
    program = "import sys, ding.interaction; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    heavy = ("flask", "werkzeug", "tornado", "asyncio", "requests", "urllib3", "torch", "numpy")
    assert [name for name in heavy if name in loaded] == []


def test_the_constants_are_as_documented():
    documented = {
        "GLOBAL_HOST": "0.0.0.0",
        "LOCAL_HOST": "127.0.0.1",
        "DEFAULT_MASTER_PORT": 7235,
        "DEFAULT_SLAVE_PORT": 7236,
        "DEFAULT_CHANNEL": 0,
        "DEFAULT_REQUEST_RETRIES": 5,
        "DEFAULT_REQUEST_RETRY_WAITING": 1.0,
        "DEFAULT_REQUEST_TIMEOUT": (5.0, 30.0),
        "DEFAULT_HEARTBEAT_SPAN": 3.0,
        "MIN_HEARTBEAT_SPAN": 0.2,
        "DEFAULT_HEARTBEAT_TOLERANCE": 17.0,
        "MIN_HEARTBEAT_TOLERANCE": 0.2,
        "DEFAULT_HEARTBEAT_CHECK_SPAN": 1.0,
        "MIN_HEARTBEAT_CHECK_SPAN": 0.1,
        "DEFAULT_BODY_LIMIT": 64 * 1024 * 1024,
    }
    assert {name: getattr(config, name) for name in documented} == documented
