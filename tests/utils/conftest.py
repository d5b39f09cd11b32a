import pytest

from ding.utils import pytorch_ddp_dist_helper as ddp
from ding.utils.system_helper import find_free_port

VARIABLES = ("SLURM_LOCALID", "RANK", "SLURM_NTASKS", "WORLD_SIZE", "SLURM_NNODES", "TORCHELASTIC_RUN_ID")


@pytest.fixture
def clean_environment(monkeypatch):
    """No trace of a launcher; whatever group a test joined is left afterwards."""
    for name in (*VARIABLES, "DING_DIST_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    # Set by dist_init itself: registered here so that it is taken back afterwards.
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(find_free_port("127.0.0.1")))
    yield monkeypatch
    ddp.dist_finalize()
