"""Averaging gradients over ranks."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ding.policy.dqn import DQNPolicy
from ding.policy.training_step import GradientSynchronizer
from tests.policy.samples import make_batch, make_config


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.zeros(2)) for _ in range(3))
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)


@pytest.fixture
def other_rank(monkeypatch, lone_group):
    """Adds what another rank would send: gradients 3 for `a` and `b`, none for `c`."""
    calls = []

    def all_reduce(tensor, *args, **kwargs):
        calls.append(tensor.numel())
        tensor += torch.tensor([3.0, 3.0, 3.0, 3.0, 0.0, 0.0, 1.0, 1.0, 0.0])

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    return calls


@pytest.mark.parametrize("is_part", [True, False])
def test_gradients_are_averaged_over_the_ranks_that_have_them_in_one_call(other_rank, is_part):
    model = Pair()
    synchronizer = GradientSynchronizer(model if is_part else nn.Linear(1, 1))
    model.a.grad, model.b.grad, model.c.grad = torch.ones(2), None, None
    synchronizer.sync(model if is_part else [model.a, model.b, model.c, model.frozen])
    assert model.a.grad.tolist() == [2.0, 2.0]
    assert model.b.grad.tolist() == [3.0, 3.0]
    assert model.c.grad is None
    assert other_rank == [9]


def test_without_a_group_a_policy_of_several_ranks_is_refused():
    with pytest.raises(RuntimeError, match="process group"):
        DQNPolicy(make_config(multi_gpu=True), enable_field=["learn"])
    assert DQNPolicy(make_config(multi_gpu=True), enable_field=["collect"])


def _train_as_rank(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(rank)
    policy = DQNPolicy(make_config(multi_gpu=True), enable_field=["learn"])
    for _ in range(3):
        policy.learn_mode.forward(make_batch(8))
    torch.save(policy.learn_mode.state_dict()["model"], f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.differs("needs CUDA to train on several ranks", "trains with gloo on CPUs")
def test_replicas_that_see_different_data_stay_equal(tmp_path):
    torch.multiprocessing.spawn(_train_as_rank, args=(str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)
