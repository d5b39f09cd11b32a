import pytest

from tests.worker.learner.comm.workers import Site, forget_fakes
from tests.worker.transport.sites import kind as kind


@pytest.fixture(autouse=True)
def fresh_fakes():
    yield
    forget_fakes()


@pytest.fixture
def site(kind, tmp_path):
    """A place for a worker of this kind, with stores and a connector."""
    with Site.opened(kind, tmp_path) as site:
        yield site
