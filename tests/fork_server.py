"""The fork server of a test process: it imports what the processes that tests start need, once for all of them."""

import multiprocessing
import os
import pathlib
from multiprocessing import forkserver

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODULES = [
    "tests.ranks",
    "tests.dist.actors",
    "tests.worker.learner.comm.rank_actors",
    "tests.envs.env_manager.scripted_env",
]


def start_fork_server() -> None:
    """Start it, unless it runs already."""
    multiprocessing.set_forkserver_preload(MODULES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        forkserver.ensure_running()
