import pytest

from tests.worker.collector.comm.workers import Site
from tests.worker.collector.parallel_fakes import forget_fakes
from tests.worker.transport.sites import kind as kind


@pytest.fixture(autouse=True)
def fresh_fakes():
    yield
    forget_fakes()


@pytest.fixture
def site(kind, own_folder):
    """A place for a worker of this kind, with stores and a connector."""
    with Site.opened(kind, own_folder) as site:
        yield site
