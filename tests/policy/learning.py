"""What tests see of a policy that learns: its target network, the gradients that ranks share, each optimizer step."""

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ding.policy.training_step import GradientSynchronizer


def set_paths(cfg: Any, settings: Mapping[str, Any]) -> None:
    """Set `{"learn__batch_size": 8}` as `cfg.learn.batch_size`."""
    for path, value in settings.items():
        section = cfg
        *parents, key = path.split("__")
        for name in parents:
            section = section[name]
        section[key] = value


def model_of(policy: Any) -> nn.Module:
    """The policy's model."""
    model: nn.Module = policy.learn_mode.get_attribute("model")
    return model


def parameters_of(policy: Any) -> Tensor:
    """A copy of all parameters of the policy's model, in one vector."""
    return torch.cat([p.detach().flatten() for p in model_of(policy).parameters()]).clone()


def target_of(policy: Any) -> nn.Module:
    """A copy of the policy's target network as it is now."""
    target = copy.deepcopy(model_of(policy))
    target.load_state_dict(policy.learn_mode.state_dict()["target_model"])
    return target


def set_target(policy: Any, target: nn.Module) -> None:
    """Give the policy's target network the weights of `target`."""
    policy.learn_mode.load_state_dict({**policy.learn_mode.state_dict(), "target_model": target.state_dict()})


def watch_syncs(monkeypatch: Any) -> list[list[Tensor]]:
    """A list that gets the parameters of each call of `GradientSynchronizer.sync`, which works as ever."""
    calls: list[list[Tensor]] = []
    sync = GradientSynchronizer.sync

    def note(self: GradientSynchronizer, parameters: Any) -> None:
        given = list(parameters.parameters() if isinstance(parameters, nn.Module) else parameters)
        calls.append(given)
        sync(self, given)

    monkeypatch.setattr(GradientSynchronizer, "sync", note)
    return calls


@contextlib.contextmanager
def before_each_step(act: Callable[[Optimizer], object]) -> Iterator[None]:
    """Call `act(optimizer)` before each step of any optimizer."""
    handle = register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: act(optimizer))
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def watched_steps() -> Iterator[list[list[Tensor]]]:
    """A list that gets the parameters of each step of any optimizer."""
    steps: list[list[Tensor]] = []
    with before_each_step(lambda optimizer: steps.append([p for g in optimizer.param_groups for p in g["params"]])):
        yield steps
