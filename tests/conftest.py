"""Settings for all tests."""

import functools
import gc
import itertools
import os
import pathlib
import re
import signal
import sys
from collections.abc import Callable, Generator

import hypothesis
import numpy as np
import pytest

import ding.utils.default_helper as default_helper
import ding.utils.system_helper as system_helper
from tests.leftovers import name_semaphores

_OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

# The examples are the same in each run and on each machine. Nothing is stored, so the checkout may be read-only, and
# no example has a time limit, so a busy machine does not fail a test.
hypothesis.settings.register_profile(
    "ding",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("ding")
name_semaphores()

# One thread for each process, read when torch is imported. Where a machine has more cores than this process may use,
# torch starts as many threads as there are cores, and they wait for each other for minutes.
os.environ["OMP_NUM_THREADS"] = "1"

# What a launcher or a user of the machine has set is not meant for the tests.
for _name in [*os.environ]:
    if _name.startswith(("DING_", "SLURM_", "TORCHELASTIC_")) or _name in _OF_LAUNCHERS:
        del os.environ[_name]

# What runs in the background ignores SIGINT, and so do the processes that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of processes import the package: the first one compiles it, the others read that.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests that run at the same time look for free ports in different ranges.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_count = len(system_helper._SERVER_PORTS) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
system_helper._SERVER_PORTS = system_helper._SERVER_PORTS[_worker * _count : (_worker + 1) * _count]

_folders = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Let all tests compute on the CPU, also where there is a GPU, except for those that need one."""
    if config.option.markexpr != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where there is none."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")


@pytest.fixture(autouse=True)
def _same_draws_in_any_order() -> None:
    """Forget the seed that an earlier test has given to `set_pkg_seed`, and what it has drawn."""
    default_helper.OF_THREAD.seed = None
    np.random.seed(0)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder as pytest makes it, but numbered without a look at the thousands that are there already."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{name}{next(_folders)}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def set_env(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set environment variables for a test: `set_env(DING_TOKEN="secret")`."""

    def set_env(**values: object) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))

    return set_env


@pytest.fixture
def put_module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, object], None]:
    """Let a test import something else by the name of a module; None is a package that is not installed."""
    return functools.partial(monkeypatch.setitem, sys.modules)


@pytest.fixture
def import_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder out of which modules can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect no garbage while millions of objects that stay are imported, rewritten and collected, nor them later."""
    gc.disable()
    try:
        result = yield
        if len(getattr(session, "items", ())) > 1000:
            import torch

            torch.optim.SGD([torch.zeros(1)])  # with the first optimizer, torch imports as much again
        return result
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
