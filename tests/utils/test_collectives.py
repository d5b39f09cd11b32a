"""Operations of a group in which something goes wrong, and where they run."""

import pytest
import torch
import torch.distributed as dist

from ding.utils import pytorch_ddp_dist_helper
from ding.utils.pytorch_ddp_dist_helper import (
    await_work,
    begin_sum,
    comm_device,
    copy_from_rank,
    on_comm_device,
    sum_over_ranks,
)

CLOSED = "Connection closed by peer [127.0.0.1]:1"
LEFT = "another rank has ended or left the group"
HANGS = r"a rank hangs, or takes longer than the timeout of dist_init \(\$DING_DIST_TIMEOUT, in seconds\)"


class BrokenWork:
    def __init__(self, text):
        self._error = RuntimeError(text)

    def wait(self):
        raise self._error


@pytest.mark.parametrize(
    ("text", "hint"), [(CLOSED, LEFT), ("Timed out waiting 1000ms for recv operation to complete", HANGS)]
)
def test_a_broken_wait_is_explained(text, hint):
    with pytest.raises(RuntimeError, match=f"the mean of x broke: .*{hint}") as e:
        await_work("the mean of x", BrokenWork(text))
    assert text in str(e.value) and str(e.value.__cause__) == text


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("all_reduce", sum_over_ranks),
        ("broadcast", lambda x: copy_from_rank(x, 0)),
        ("all_reduce", lambda x: begin_sum("all_reduce", x)),
    ],
)
def test_each_broken_operation_is_named_and_explained(monkeypatch, name, operation):
    def break_off(*args, **kwargs):
        raise RuntimeError(CLOSED)

    monkeypatch.setattr(dist, name, break_off)
    monkeypatch.setattr(pytorch_ddp_dist_helper, "comm_device", lambda device: torch.device("cpu"))
    with pytest.raises(RuntimeError, match=f"{name} broke: Connection closed.*{LEFT}"):
        operation(torch.ones(1))


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
