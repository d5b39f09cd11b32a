"""Each test in a folder of its own, with the same seed."""

import os
import warnings
from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def own_folder_and_seed(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.random.seed(0)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A Ray of this machine, which is ended at the end."""
    ray = pytest.importorskip("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # by default actors yield to all other processes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(
            num_cpus=8,
            object_store_memory=100 * 2**20,
            include_dashboard=False,
            log_to_driver=False,
            namespace="tests",
        )
    yield
    ray.shutdown()
