"""Each test runs in a folder of its own, and may leave no process behind, nor anything in shared memory."""

import multiprocessing
import os

import pytest

from ding.envs.env_manager import env_process
from tests.fork_server import start_fork_server
from tests.leftovers import in_shared_memory
from tests.own_folder import own_folder as own_folder


@pytest.fixture(autouse=True, scope="session")
def fork_server():
    """Hundreds of envs are forked from it."""
    start_fork_server()


def exists(pid):
    """Whether there is such a process, a zombie included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch):
    pids = []
    start = env_process.EnvProcess.__init__

    def noting_start(self, *args):
        start(self, *args)
        pids.append(self.pid)

    monkeypatch.setattr(env_process.EnvProcess, "__init__", noting_start)
    before = in_shared_memory()
    yield pids
    assert [pid for pid in pids if exists(pid)] == []
    assert [child.name for child in multiprocessing.active_children() if "VectorEnv" in child.name] == []
    assert in_shared_memory() <= before
