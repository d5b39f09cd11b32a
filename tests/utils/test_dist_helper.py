import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from ding.utils import pytorch_ddp_dist_helper as ddp
from ding.utils.system_helper import find_free_port

# What two processes do; each prints what it holds at the end.
SCRIPT = """
import json, sys, torch
import numpy as np
from ding.utils.pytorch_ddp_dist_helper import *
from ding.utils import pytorch_ddp_dist_helper as ddp

rank = int(sys.argv[1])
port = sys.argv[2]
out = {}
with ddp.DDPContext("gloo", port=int(port), rank=rank, world_size=2):
    out["place"] = [ddp.get_rank(), ddp.get_world_size()]
    x = torch.tensor([1.0, 3.0]) * (rank + 1)
    ddp.allreduce(x)
    out["allreduce"] = x.tolist()
    x = torch.arange(6.0).reshape(2, 3).T * (rank + 1)
    assert ddp.allreduce_data(x, "sum") is x
    out["transposed"] = x.tolist()
    out["sum"] = [ddp.allreduce_data(rank + 1, "sum"), ddp.allreduce_data(np.float32(rank + 0.5), "sum")]
    out["avg"] = [ddp.allreduce_data(rank + 1, "avg"), ddp.allreduce_data(torch.tensor(rank + 1.0), "avg").item()]
    out["types"] = [type(ddp.allreduce_data(1, "sum")).__name__, type(ddp.allreduce_data(1, "avg")).__name__]
    out["reduce"] = ddp.reduce_data(rank + 1, 0) if rank == 0 else (ddp.reduce_data(rank + 1, 0), 3)[1]
    x = torch.tensor([2.0 * (rank + 1)])
    ddp.reduce_data(x, dst=0)
    out["reduce_tensor"] = x.item() if rank == 0 else 6.0
    x = torch.tensor([float(rank)])
    ddp.broadcast(x, 1)
    out["broadcast"] = x.item()
    objects = [{"a": rank}, rank]
    ddp.broadcast_object_list(objects, src=0)
    out["objects"] = objects
    grad, indicator = torch.tensor([4.0 * rank]), torch.tensor([float(rank)])
    ddp.allreduce_with_indicator(grad, indicator)
    out["indicator"] = [grad.item(), indicator.item()]
    grad, indicator = torch.tensor([0.0]), torch.tensor([0.0])
    ddp.allreduce_with_indicator(grad, indicator)
    out["no_gradient"] = grad.item()
    x = torch.tensor([2.0 * rank])
    ddp.allreduce_async("x", x)
    ddp.synchronize()
    out["async"] = x.item()
    config = {"policy": {"batch_size": 5, "learn": {"batch_size": 4}, "collect": {"n_sample": 3, "n_episode": None}}}
    out["config"] = ddp.to_ddp_config(config)
    assert out["config"] is config
out["after"] = ddp.get_world_size()
print(json.dumps(out))
"""


def test_two_processes_reduce_and_broadcast_on_the_cpu(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    port = str(find_free_port("localhost"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    commands = [[sys.executable, str(script), str(rank), port] for rank in range(2)]
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    try:
        outputs = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for rank, (process, (stdout, stderr)) in enumerate(zip(processes, outputs, strict=True)):
        assert process.returncode == 0, stderr
        assert json.loads(stdout.splitlines()[-1]) == {
            "place": [rank, 2],
            "allreduce": [1.5, 4.5],
            "transposed": [[0.0, 9.0], [3.0, 12.0], [6.0, 15.0]],
            "sum": [3, 2.0],
            "avg": [1.5, 1.5],
            "types": ["int", "float"],
            "reduce": 3,
            "reduce_tensor": 6.0,
            "broadcast": 1.0,
            "objects": [{"a": 0}, 0],
            "indicator": [4.0, 1.0],
            "no_gradient": 0.0,
            "async": 1.0,
            "config": {
                "policy": {"batch_size": 3, "learn": {"batch_size": 2}, "collect": {"n_sample": 2, "n_episode": None}}
            },
            "after": 1,
        }


def test_a_single_process_has_rank_zero_of_one():
    assert (ddp.get_rank(), ddp.get_world_size()) == (0, 1)


def test_every_operation_of_a_single_process_is_the_identity():
    x = torch.tensor([1.0, 2.0])
    ddp.allreduce(x)
    ddp.broadcast(x, 0)
    ddp.allreduce_async("x", x)
    ddp.synchronize()
    assert ddp.allreduce_data(x, "avg") is x and ddp.reduce_data(x) is x and x.tolist() == [1, 2]
    assert ddp.allreduce_data(3, "avg") == 3 and ddp.allreduce_data(np.float32(0.5), "sum") == 0.5
    assert ddp.reduce_data(4) == 4
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
    with pytest.raises(TypeError, match="the mean of a tensor of torch.int64"):
        ddp.allreduce_data(torch.tensor([1]), "avg")


@pytest.fixture
def clean_environment(monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT", "SLURM_LOCALID", "RANK", "SLURM_NTASKS", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    # Set by dist_init itself: registered here so that it is taken back afterwards.
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(find_free_port("127.0.0.1")))
    return monkeypatch


def test_the_group_comes_from_the_environment_and_ends_with_the_context(clean_environment):
    clean_environment.setenv("RANK", "0")
    clean_environment.setenv("WORLD_SIZE", "1")
    with ddp.DistContext():
        assert torch.distributed.is_initialized()
        assert torch.distributed.get_backend() == ("nccl" if torch.cuda.is_available() else "gloo")
    assert not torch.distributed.is_initialized()
    ddp.dist_finalize()


def test_slurm_names_come_before_those_of_torchrun(clean_environment):
    for name, value in (("SLURM_LOCALID", "0"), ("RANK", "5"), ("SLURM_NTASKS", "1"), ("WORLD_SIZE", "7")):
        clean_environment.setenv(name, value)
    assert ddp.dist_mode(lambda: (ddp.get_rank(), ddp.get_world_size()))() == (0, 1)


def test_arguments_come_before_the_environment_and_the_port_may_be_a_number(clean_environment):
    port = find_free_port("127.0.0.1")
    assert ddp.dist_init("gloo", "127.0.0.1", port, rank=0, world_size=1) == (0, 1)
    ddp.dist_finalize()
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("127.0.0.1", str(port))


def test_the_master_is_local_by_default(clean_environment):
    clean_environment.delenv("MASTER_ADDR")
    clean_environment.delenv("MASTER_PORT")
    with pytest.raises(RuntimeError, match="does not know rank: pass it, or set SLURM_LOCALID or RANK"):
        ddp.dist_init("gloo")
    assert (os.environ.pop("MASTER_ADDR"), os.environ.pop("MASTER_PORT")) == ("localhost", "10314")
    with pytest.raises(RuntimeError, match="does not know world_size"):
        ddp.dist_init("gloo", addr="localhost", port=1, rank=0)


def test_an_unknown_backend_is_refused():
    with pytest.raises(AssertionError, match="backend = 'mpi'"):
        ddp.dist_init("mpi")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_tensors_on_a_cuda_device_are_reduced_over_gloo_and_nccl(clean_environment):
    for backend in ("gloo", "nccl"):
        port = find_free_port("127.0.0.1")
        with ddp.DDPContext(backend, port=port, rank=0, world_size=1):
            for device in ("cpu", "cuda"):
                x = torch.ones(2, 3, device=device).T
                ddp._on_comm_device(torch.distributed.all_reduce, x)
                assert x.device.type == device and x.tolist() == [[1.0, 1.0]] * 3
