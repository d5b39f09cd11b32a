"""Operations of a group in which something goes wrong, and where they run."""

import pytest
import torch
import torch.distributed as dist

from ding.utils import pytorch_ddp_dist_helper
from ding.utils.pytorch_ddp_dist_helper import (
    await_work,
    comm_device,
    on_comm_device,
)


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
