import pytest

from ding.utils import pytorch_ddp_dist_helper as ddp
from ding.utils.system_helper import find_free_port
from tests.own_folder import own_folder as own_folder


@pytest.fixture
def clean_environment(monkeypatch, set_env):
    """Whatever group a test joined is left afterwards."""
    # Set by dist_init itself: registered here so that it is taken back afterwards.
    set_env(MASTER_ADDR="127.0.0.1", MASTER_PORT=find_free_port("127.0.0.1"))
    yield monkeypatch
    ddp.dist_finalize()
