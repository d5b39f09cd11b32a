import os

import numpy as np
import pytest
import torch
import torch.distributed as dist

from ding.utils import pytorch_ddp_dist_helper as ddp
from ding.utils.system_helper import find_free_port
from tests.ranks import run_ranks


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
