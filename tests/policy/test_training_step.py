"""A policy of one's own that leaves collation, target network, schedule and logging to the shared training step."""

import copy

import pytest
import torch
import torch.distributed as dist
from easydict import EasyDict
from torch import nn

from ding.policy import BatchPolicy
from ding.policy.dqn import DQNPolicy
from ding.policy.training_step import GradientSynchronizer, Learned
from ding.utils.data.samples import Samples, Table
from tests.policy.learning import model_of
from tests.policy.samples import make_batch, make_config


class Regression(BatchPolicy):
    """Learns the rewards of observations, with a target network and a schedule."""

    config = {"type": "regression", "learn": {"batch_size": 4, "learning_rate": 0.1, "lr_scheduler": None}}
    _learn_values = ("_seen",)

    def _init_learn(self):
        learn = self._cfg.learn
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=learn.learning_rate)
        self._init_target(freq=2)
        self._learn_model = self._wrapped("base")
        self._seen = 0

    def _update(self, batch):
        assert self._model.training and self._target_net.training
        error = (self._model(batch["obs"]).squeeze(1) - batch["reward"]) ** 2
        self._seen += len(error)
        self._backward_and_step(error.mean(), self._optimizer)
        return Learned({"total_loss": error.mean()}, error.detach(), {"note": "x"})


def make(cls=Regression, seed=0, **learn):
    cfg = cls.default_config()
    cfg.learn.update(learn)
    torch.manual_seed(seed)
    return cls(cfg, model=nn.Linear(2, 1), enable_field=["learn"])


def batch(size=4):
    draw = torch.Generator().manual_seed(1)
    return [
        {
            "obs": torch.rand(2, generator=draw),
            "next_obs": torch.rand(2, generator=draw),
            "action": torch.tensor([0]),
            "reward": torch.rand(1, generator=draw),
            "done": False,
        }
        for _ in range(size)
    ]


def test_a_training_step_logs_numbers_moves_the_schedule_and_copies_the_target():
    policy = make(lr_scheduler=EasyDict(epoch_num=2, min_lr_lambda=0.5))
    before = model_of(policy).weight.detach().clone()
    first = policy.learn_mode.forward(batch())
    assert first["cur_lr"] == 0.1 and first["note"] == "x" and len(first["priority"]) == 4
    assert first["total_loss"] == pytest.approx(sum(first["priority"]) / 4)
    assert torch.equal(policy.learn_mode.get_attribute("target_net").weight, before)
    second = policy.learn_mode.forward(Samples(Table.of(batch())))
    assert second["cur_lr"] == pytest.approx(0.075) and second["total_loss"] < first["total_loss"]
    assert torch.equal(policy.learn_mode.get_attribute("target_net").weight, model_of(policy).weight)


def test_its_state_has_target_schedule_count_and_values_and_another_goes_on_from_it():
    settings = {"lr_scheduler": EasyDict(epoch_num=4, min_lr_lambda=0.5)}
    policy, other = make(**settings), make(seed=1, **settings)
    policy.learn_mode.forward(batch())
    state = copy.deepcopy(policy.learn_mode.state_dict())
    assert state.keys() == {"model", "target_model", "optimizer", "lr_scheduler", "target_update_count", "seen"}
    other.learn_mode.load_state_dict(state)
    assert [policy.learn_mode.forward(batch()) for _ in range(3)] == [
        other.learn_mode.forward(batch()) for _ in range(3)
    ]
    assert other._seen == 16


# Averaging gradients over ranks.


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
