"""Joining and leaving the process group."""

import atexit
import os
import sys
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist

from ding.utils import pytorch_ddp_dist_helper
from ding.utils import pytorch_ddp_dist_helper as ddp
from ding.utils.pytorch_ddp_dist_helper import await_work, comm_device, on_comm_device, sum_over_ranks
from ding.utils.system_helper import find_free_port
from tests.ranks import run_ranks


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


def test_two_processes_reduce_and_broadcast_on_the_cpu(tmp_path):
    for number, rank in enumerate(run_ranks("every_operation", folder=tmp_path, check=True)):
        assert rank.result == {
            "place": [number, 2],
            "allreduce": [1.5, 4.5],
            "transposed": [[0.0, 9.0], [3.0, 12.0], [6.0, 15.0]],
            "sum": [3, 2.0],
            "avg": [1.5, 1.5],
            "types": ["int", "float"],
            "reduce": [3, 6.0] if number == 0 else None,
            "broadcast": 1.0,
            "objects": [{"a": 0}, 0],
            "indicator": [4.0, 1.0],
            "no_gradient": 0.0,
            "async": 1.0,
            "all": [True, False],
            "config": {
                "policy": {
                    "batch_size": 3,
                    "n_sample": 4,
                    "learn": {"batch_size": 2},
                    "collect": {"n_sample": 2, "n_episode": None},
                }
            },
            "after": 1,
        }


def test_a_single_process_has_rank_zero_of_one():
    assert (ddp.get_rank(), ddp.get_world_size()) == (0, 1)


@pytest.mark.differs(
    "fails in `allreduce_data` without a process group or CUDA, and leaves the group open in `dist_finalize`",
    "returns the data of one process unchanged, works on CPUs, and leaves the group",
)
def test_every_operation_of_a_single_process_is_the_identity():
    x = torch.tensor([1.0, 2.0])
    ddp.allreduce(x)
    ddp.broadcast(x, 0)
    ddp.allreduce_async("x", x)
    ddp.synchronize()
    assert ddp.allreduce_data(x, "avg") is x and ddp.reduce_data(x) is x and x.tolist() == [1, 2]
    assert ddp.allreduce_data(3, "avg") == 3 and ddp.allreduce_data(np.float32(0.5), "sum") == 0.5
    assert ddp.reduce_data(4) == 4 and ddp.on_all_ranks(True) and not ddp.on_all_ranks(False)
    objects = [object()]
    same = list(objects)
    ddp.broadcast_object_list(objects)
    assert objects == same


def test_a_gradient_without_indicator_is_left_alone():
    for indicator, expected in ((1.0, 4.0), (0.0, 4.0)):
        grad = torch.tensor([4.0])
        ddp.allreduce_with_indicator(grad, torch.tensor([indicator]))
        assert grad.item() == expected


def test_allreduce_data_refuses_what_it_cannot_reduce():
    with pytest.raises(AssertionError, match="op = 'max'"):
        ddp.allreduce_data(1, "max")
    for bad in ("text", None, [1]):
        with pytest.raises(TypeError, match="cannot be reduced"):
            ddp.allreduce_data(bad, "sum")
        with pytest.raises(TypeError, match="cannot be reduced"):
            ddp.reduce_data(bad)


def test_the_group_comes_from_the_environment_and_ends_with_the_context(clean_environment):
    clean_environment.setenv("RANK", "0")
    clean_environment.setenv("WORLD_SIZE", "1")
    with ddp.DistContext():
        assert dist.is_initialized()
        assert dist.get_backend() == ("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    assert not dist.is_initialized()
    ddp.dist_finalize()


def test_arguments_come_before_the_environment_and_the_port_may_be_a_number(clean_environment):
    port = find_free_port("127.0.0.1")
    assert ddp.dist_init("gloo", "127.0.0.1", port, rank=0, world_size=1) == (0, 1)
    ddp.dist_finalize()
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("127.0.0.1", str(port))


# Operations of a group in which something goes wrong, and where they run.


class BrokenWork:
    def __init__(self, text):
        self._error = RuntimeError(text)

    def wait(self):
        raise self._error


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Connection closed by peer [127.0.0.1]:1", "ended or left"),
        ("Timed out waiting 1000ms for recv operation to complete", "DING_DIST_TIMEOUT"),
    ],
)
def test_a_broken_wait_is_explained(text, hint):
    with pytest.raises(RuntimeError, match=f"the mean of x broke: .*{hint}") as e:
        await_work("the mean of x", BrokenWork(text))
    assert text in str(e.value) and str(e.value.__cause__) == text


@pytest.mark.parametrize(
    ("config", "device", "expected"),
    [
        ("cpu:gloo,cuda:nccl", "cpu", "cpu"),
        ("cpu:gloo,cuda:nccl", "cuda", "cuda"),
        ("cpu:gloo,cuda:nccl", "meta", "cpu"),
        ("cpu:gloo,cuda:nccl", None, "cpu"),
        ("cuda:nccl", "cpu", "cuda"),
        ("cuda:nccl", None, "cuda"),
        ("cpu:gloo", "cuda", "cpu"),
    ],
)
def test_the_device_of_an_operation_is_one_that_the_backend_reaches(monkeypatch, config, device, expected):
    monkeypatch.setattr(dist, "get_backend_config", lambda: config)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert comm_device(device and torch.device(device)).type == expected


def test_what_the_backend_cannot_reach_is_copied_there_and_back(monkeypatch):
    seen = []

    def double(x):
        seen.append(x)
        x.mul_(2)

    monkeypatch.setattr(pytorch_ddp_dist_helper, "comm_device", lambda device: torch.device("cpu"))
    plain = torch.ones(3)
    on_comm_device(double, plain)
    assert seen[0] is plain
    transposed = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    on_comm_device(double, transposed)
    assert seen[1] is not transposed and seen[1].is_contiguous()
    assert transposed.tolist() == [[0, 6], [2, 8], [4, 10]]
