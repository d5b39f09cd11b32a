"""Each test in a folder of its own, with the same seed."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def own_folder_and_seed(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.random.seed(0)


@pytest.fixture(scope="package")
def ray_cluster():
    """A small Ray for the tests of this folder; it ends with them, as other tests start one of their own."""
    from tests.worker.transport.ray.clusters import started  # it imports Ray, which others need not

    cluster = started()
    yield cluster
    cluster.close()
