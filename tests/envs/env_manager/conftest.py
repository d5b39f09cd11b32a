"""No test may leave a process behind, nor anything in shared memory."""

import multiprocessing
import os
import pathlib

import pytest

from ding.envs.env_manager import env_process

SHM = pathlib.Path("/dev/shm")


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
    before = set(SHM.iterdir()) if SHM.exists() else set()
    yield pids
    assert [pid for pid in pids if exists(pid)] == []
    assert [child.name for child in multiprocessing.active_children() if "VectorEnv" in child.name] == []
    assert (set(SHM.iterdir()) if SHM.exists() else set()) <= before
