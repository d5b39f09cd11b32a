import pytest


@pytest.fixture(scope="package")
def ray_cluster():
    """A small Ray for the tests of this folder; it ends with them, as other tests start one of their own."""
    from tests.worker.transport.ray.clusters import started  # it imports Ray, which others need not

    cluster = started()
    yield cluster
    cluster.close()
