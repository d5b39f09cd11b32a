"""Joining and leaving the process group."""

import atexit
import os
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from ding.utils import pytorch_ddp_dist_helper as ddp
from ding.utils.pytorch_ddp_dist_helper import sum_over_ranks


def test_slurm_names_come_before_those_of_torchrun(clean_environment):
    for name, value in (("SLURM_LOCALID", "0"), ("RANK", "5"), ("SLURM_NTASKS", "1"), ("WORLD_SIZE", "7")):
        clean_environment.setenv(name, value)
    assert ddp.dist_mode(lambda: (ddp.get_rank(), ddp.get_world_size()))() == (0, 1)


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


def test_the_master_is_local_by_default(clean_environment):
    clean_environment.delenv("MASTER_ADDR")
    clean_environment.delenv("MASTER_PORT")
    with pytest.raises(RuntimeError, match="rank is unknown"):
        ddp.dist_init("gloo")
    assert (os.environ.pop("MASTER_ADDR"), os.environ.pop("MASTER_PORT")) == ("localhost", "10314")
    with pytest.raises(RuntimeError, match="world_size is unknown"):
        ddp.dist_init("gloo", addr="localhost", port=1, rank=0)


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


def test_nccl_comes_with_gloo_for_the_cpu(clean_environment):
    joined = []
    clean_environment.setattr(torch.cuda, "is_available", lambda: True)
    clean_environment.setattr(torch.cuda, "device_count", lambda: 4)
    clean_environment.setattr(torch.cuda, "set_device", lambda device: joined.append(device))
    clean_environment.setattr(dist, "init_process_group", lambda backend, **kwargs: joined.append(backend))
    clean_environment.setattr(dist, "rendezvous", lambda *args, **kwargs: iter([(dist.HashStore(), 6, 8)]))
    assert ddp.dist_init(rank=6, world_size=8) == (6, 8)
    assert joined == [2, "cpu:gloo,cuda:nccl"]


def test_ranks_that_do_not_meet_are_told_where_they_waited(clean_environment):
    def refuse(*args, **kwargs):
        raise RuntimeError("1/2 clients joined")

    clean_environment.setattr(dist, "rendezvous", refuse)
    with pytest.raises(RuntimeError, match="rank 0 could not join"):
        ddp.dist_init("gloo", "here", 5, 0, 2, timeout=3)


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


@pytest.mark.gpu
def test_tensors_on_a_cuda_device_are_reduced_over_gloo_and_nccl(clean_environment):
    for backend in ("gloo", "nccl"):
        with ddp.DDPContext(backend, rank=0, world_size=1):
            for device in ("cpu", "cuda"):
                x = torch.ones(2, 3, device=device).T
                sum_over_ranks(x)
                assert x.device.type == device and x.tolist() == [[1.0, 1.0]] * 3
