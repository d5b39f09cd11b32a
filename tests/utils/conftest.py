import pytest

from ding.utils import pytorch_ddp_dist_helper as ddp
from ding.utils.system_helper import find_free_port


@pytest.fixture
def clean_environment(monkeypatch):
    """Whatever group a test joined is left afterwards."""
    # Set by dist_init itself: registered here so that it is taken back afterwards.
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(find_free_port("127.0.0.1")))
    yield monkeypatch
    ddp.dist_finalize()
