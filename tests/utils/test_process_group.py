"""Joining and leaving the process group."""

import atexit
import sys
from datetime import timedelta

import pytest
import torch.distributed as dist

from ding.utils import pytorch_ddp_dist_helper as ddp


@pytest.mark.differs(
    "uses SLURM's task number as the rank under torchrun, and makes several processes rank 0 on several nodes",
    "reads torchrun's variables, and refuses several nodes",
)
def test_under_torchrun_in_a_slurm_job_torchruns_names_count(clean_environment):
    for name, value in (("SLURM_LOCALID", "3"), ("RANK", "0"), ("SLURM_NTASKS", "7"), ("WORLD_SIZE", "1")):
        clean_environment.setenv(name, value)
    clean_environment.setenv("SLURM_NNODES", "2")
    clean_environment.setenv("TORCHELASTIC_RUN_ID", "none")
    assert ddp.dist_init("gloo") == (0, 1)


def test_a_slurm_job_on_several_nodes_is_refused(clean_environment):
    for name, value in (("SLURM_LOCALID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_NNODES", "2")):
        clean_environment.setenv(name, value)
    with pytest.raises(RuntimeError, match="torchrun"):
        ddp.dist_init("gloo")
    assert ddp.dist_init("gloo", rank=0, world_size=1) == (0, 1)


def test_an_unknown_backend_is_refused():
    with pytest.raises(AssertionError, match="backend = 'mpi'"):
        ddp.dist_init("mpi")


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_outside_the_group_is_refused(clean_environment, rank, size):
    with pytest.raises(ValueError, match=f"rank = {rank} is not allowed; it must be in"):
        ddp.dist_init("gloo", rank=rank, world_size=size)


@pytest.mark.parametrize(
    ("given", "variable", "seconds"),
    [(None, None, 1800), (None, "90", 90), (5, "90", 5), (timedelta(minutes=1), None, 60), (0.5, None, 0.5)],
)
def test_the_timeout_is_an_argument_or_a_variable(clean_environment, given, variable, seconds):
    if variable:
        clean_environment.setenv("DING_DIST_TIMEOUT", variable)
    seen = []
    clean_environment.setattr(dist, "init_process_group", lambda *args, timeout, **kwargs: seen.append(timeout))
    ddp.dist_init("gloo", rank=0, world_size=1, timeout=given)
    assert seen == [timedelta(seconds=seconds)]


@pytest.mark.parametrize("error", [None, SystemExit(0), SystemExit(3), KeyboardInterrupt(), ValueError("x")])
def test_the_group_is_left_however_the_context_ends_and_the_error_passes(clean_environment, error):
    context = ddp.DDPContext("gloo", rank=0, world_size=1)
    if error is None:
        with context:
            pass
    else:
        with pytest.raises(type(error)) as e, context:
            raise error
        assert e.value is error
    assert not dist.is_initialized()


@pytest.fixture
def at_exit(monkeypatch):
    """What is registered for the end of the process."""
    registered = []
    monkeypatch.setattr(atexit, "register", registered.append)
    monkeypatch.setattr(atexit, "unregister", lambda function: function in registered and registered.remove(function))
    return registered


@pytest.mark.parametrize("attribute", ["last_exc", "last_value", None])
def test_a_script_that_ends_in_the_group_leaves_it(clean_environment, at_exit, attribute):
    for name in ("last_exc", "last_value"):
        clean_environment.delattr(sys, name, raising=False)
    if attribute:
        clean_environment.setattr(sys, attribute, ValueError("x"), raising=False)
    ddp.dist_init("gloo", rank=0, world_size=1)
    (leave,) = at_exit
    for _ in range(2):
        leave()
        assert not dist.is_initialized()
