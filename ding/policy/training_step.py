"""Shared parts of all policies: attribute access, the training step, target networks, batched forwards.

How a training step runs, for a `BatchPolicy` (`base_policy.py`):

1. A learner calls `learn_mode.forward(samples)`: `_forward_learn`, under autocast and a schedule if there are any.
2. `_prepare(samples)` collates them into one batch on the device and in the dtype of the model (`_on_model`).
3. `_update(batch)`, the algorithm, forwards `_learn_model` and `_target_model` and computes its losses by `rl_utils/`.
4. For each loss it calls `_backward_and_step(loss, optimizer)`: gradients to zero, backward, the average over ranks,
   clipping, the optimizer's step.
5. It returns `Learned`: the values to log, and the priority of each sample.
6. `_target_model.update(_learn_model)` lets the target network follow.
7. The values become Python numbers in one transfer, and are returned with the learning rates.

On-policy policies take their steps on minibatches of a collection, each by `_learn_epoch` of `actor_critic.py`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
import torch.distributed as dist
from easydict import EasyDict
from torch import Tensor, nn

from ding.model.wrapper.model_wrappers import IModelWrapper, model_wrap
from ding.policy.common_utils import acting_input, model_input, stack_observations
from ding.torch_utils.data_helper import to_device
from ding.torch_utils.mixed_precision import MixedPrecision
from ding.torch_utils.network.fast_modules import dtype_of, set_training
from ding.torch_utils.optimizer_helper import clip_norm
from ding.torch_utils.thread_count import flushing_denormals
from ding.utils.config_helper import ConfigError
from ding.utils.data.collate_fn import split_output
from ding.utils.pytorch_ddp_dist_helper import await_work, begin_sum, copy_from_rank, has_group, sum_over_ranks


@cache
def _no_norm(device: torch.device) -> Tensor:
    """Return the norm of gradients that are not clipped: a new tensor for each step would take 0.4 % of an update."""
    return torch.zeros((), device=device)


class GradientSynchronizer:
    """Averaging of the gradients of one model over all ranks, on any backend, CPU included.

    Construction copies rank 0's parameters and buffers to the others. With `bp_update_sync`, `sync` averages in one
    collective call per dtype, over the ranks that have a gradient for the parameter. Without it, each gradient is
    reduced as soon as backward has computed it, and `sync` waits for all of them: all ranks must then have gradients
    for the same parameters, each from one backward pass.

    Raises:
        RuntimeError: this process is not in a process group.
    """

    def __init__(self, model: nn.Module, bp_update_sync: bool = True) -> None:
        if not has_group():
            raise RuntimeError(
                "multi_gpu = True needs a process group: run the training inside `with DDPContext():` and start it "
                "with torchrun, or set policy.multi_gpu = False"
            )
        self.bp_update_sync = bp_update_sync
        self._pending: list[tuple[str, Any]] = []
        self._sent: dict[int, Tensor] = {}  # the parameters that backward sends, by id
        for tensor in model.state_dict().values():
            if isinstance(tensor, Tensor):
                copy_from_rank(tensor, 0)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
            if not bp_update_sync and parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._send)  # type: ignore[no-untyped-call]
                self._sent[id(parameter)] = parameter

    def _send(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.div_(dist.get_world_size())
        self._pending.append(begin_sum("the all_reduce of a gradient", parameter.grad))

    def sync(self, parameters: nn.Module | Iterable[Tensor]) -> None:
        """Average the gradients of these parameters, or of a module, over all ranks.

        Call it between backward and the optimizer's step.
        """
        if isinstance(parameters, nn.Module):
            parameters = parameters.parameters()
        groups: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for parameter in parameters:
            if parameter.requires_grad and id(parameter) not in self._sent:
                groups.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        while self._pending:
            name, work = self._pending.pop(0)
            await_work(name, work)
        if self._sent and torch.cuda.is_available():
            torch.cuda.synchronize()
        for group in groups.values():
            _average(group)


def _average(parameters: list[Tensor]) -> None:
    """All-reduce one flat bucket: the gradients, then for each parameter a flag whether this rank has its gradient."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    has_gradient = gradients[0].new_tensor([0.0 if p.grad is None else 1.0 for p in parameters])
    bucket = torch.cat([gradient.flatten() for gradient in gradients] + [has_gradient])
    sum_over_ranks(bucket)
    counts = bucket[-len(parameters) :].tolist()
    start = 0
    for parameter, count in zip(parameters, counts, strict=True):
        end = start + parameter.numel()
        if count > 0.5:  # otherwise no rank has one: leave None, as a single process would
            averaged = (bucket[start:end] / count).view_as(parameter)
            if parameter.grad is None:
                parameter.grad = averaged
            else:
                parameter.grad.copy_(averaged)
        start = end


class Learned(NamedTuple):
    """What is logged of a training step.

    Attributes:
        values: scalars [] by name.
        priority: the new priority of each sample [B], if there is one.
        others: entries that are logged as they are.
    """

    values: Mapping[str, Tensor]
    priority: Tensor | None = None
    others: Mapping[str, Any] = MappingProxyType({})

    def to_numbers(self) -> dict[str, Any]:
        """Return all entries, the tensors as Python numbers, the scalars in one transfer."""
        scalars = torch.stack(tuple(self.values.values())).tolist()
        numbers = dict(zip(self.values, scalars, strict=True))
        if self.priority is not None:
            numbers["priority"] = self.priority.tolist()
        return {**numbers, **self.others}


class PolicySteps:
    """Shared parts of `Policy`, which sets the attributes."""

    _cfg: EasyDict
    _model: nn.Module
    _cuda: bool
    _priority: bool
    _device: str
    _learn_model: Any
    _mixed_precision: MixedPrecision | None = None
    # Whether losses are weighted by the buffer's `priority_IS`.
    _priority_IS_weight: bool = False
    # The network whose weights follow the model's, and its wrapper; see `_init_target`.
    _target_net: Any = None
    _target_model: Any = None
    # The schedule of the learning rates, which takes a step with each training step.
    _lr_scheduler: Any = None
    # The share of the run that is left, from 1 to 0, as the learner tells it; None if the run's length is not known.
    _progress_remaining: float | None = None
    # The optimizers: by attribute, the key in states and the name under which the learning rate is logged.
    _optimizer_names: ClassVar[Mapping[str, tuple[str, str]]] = {"_optimizer": ("optimizer", "cur_lr")}

    def _get_attribute(self, name: str) -> Any:
        # As documented, a policy answers by a method `_get_<name>`, otherwise by an attribute `_<name>`.
        getter = getattr(self, "_get_" + name, None)
        if getter is not None:
            return getter()
        if not hasattr(self, "_" + name):
            raise NotImplementedError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self, "_" + name)

    def _set_attribute(self, name: str, value: Any) -> None:
        setattr(self, "_" + name, value)

    def _get_batch_size(self) -> Any:
        return self._cfg.batch_size if "batch_size" in self._cfg else self._cfg.learn.batch_size

    def _get_n_sample(self) -> Any:
        return self._cfg.n_sample if "n_sample" in self._cfg else self._cfg.collect.get("n_sample", None)

    def _get_n_episode(self) -> Any:
        return self._cfg.n_episode if "n_episode" in self._cfg else self._cfg.collect.get("n_episode", None)

    def _init_multi_gpu_setting(self, model: nn.Module, bp_update_sync: bool) -> None:
        """Broadcast `model` to all ranks and set up gradient averaging."""
        self._synchronizer = GradientSynchronizer(model, bp_update_sync)

    def sync_gradients(self, model: Any) -> None:
        """Average the gradients of `model`, a module or an iterable of tensors, over all ranks (`multi_gpu` only)."""
        self._synchronizer.sync(model)

    def _init_importance_weights(self) -> None:
        """Set whether losses are weighted by the buffer's `priority_IS`.

        Raises:
            ConfigError: there would be weights, but no priorities.
        """
        self._priority_IS_weight = self._cfg.priority_IS_weight
        if self._priority_IS_weight and not self._priority:
            raise ConfigError(f"{type(self).__name__}: priority_IS_weight = True is not allowed with priority = False")

    def _init_target(self, freq: int | None = None, theta: float | None = None, theta_freq: int = 1) -> None:
        """Copy the model as the target network, which follows it; see `TargetNetworkWrapper`.

        It is copied again every `freq` training steps. If `freq` is None, it follows at the rate `theta` every
        `theta_freq` training steps.
        """
        self._target_net = copy.deepcopy(self._model)
        self._target_model = model_wrap(
            self._target_net,
            wrapper_name="target",
            update_type="momentum" if freq is None else "assign",
            update_kwargs={"theta": theta, "freq": theta_freq} if freq is None else {"freq": freq},
        )
        self._target_model.reset()

    def _wrapped(self, wrapper_name: str, model: IModelWrapper | None = None, **kwargs: Any) -> IModelWrapper:
        """Return the model, or another wrapper of it, in a wrapper, which is reset."""
        wrapper = model_wrap(self._model if model is None else model, wrapper_name=wrapper_name, **kwargs)
        wrapper.reset()
        return wrapper

    def _update(self, batch: Any) -> Learned:
        """Compute the losses of an algorithm and take a step on each by `_backward_and_step`."""
        raise NotImplementedError(f"{type(self).__name__} must define _forward_learn, or _update")

    def _learning_rates(self) -> dict[str, float]:
        rates = {}
        for attribute, (_, name) in self._optimizer_names.items():
            rates[name] = float(getattr(self, attribute).param_groups[0]["lr"])
        return rates

    def _backward_and_step(
        self,
        loss: Tensor,
        optimizer: torch.optim.Optimizer,
        model: Any = None,
        inputs: Sequence[Tensor] | None = None,
        max_grad_norm: float = math.inf,
    ) -> Tensor:
        """Take one optimizer step on `loss`, averaging the gradients of `model` over all ranks with `multi_gpu`.

        `model` holds the parameters of `optimizer`; None means only these. With `inputs`, only these tensors get
        gradients (if they require them): an actor's loss passes through the critic, but backward computes nothing for
        the critic's parameters. With a finite `max_grad_norm` the gradients are clipped to this norm. The result is the
        norm before clipping, 0-d, or 0 without a maximum; do not modify it.
        """
        mixed = self._mixed_precision
        with nullcontext() if mixed is None else mixed.paused():
            optimizer.zero_grad()
            scaled = loss if mixed is None else mixed.scale(loss)
            if inputs is None:
                scaled.backward()  # type: ignore[no-untyped-call]
            elif wanted := [tensor for tensor in inputs if tensor.requires_grad]:
                scaled.backward(inputs=wanted)  # type: ignore[no-untyped-call]
            if self._cfg.multi_gpu:
                self.sync_gradients(parameters_of(optimizer) if model is None else model)
            if mixed is not None:
                mixed.unscale(optimizer)
            norm = _no_norm(loss.device)
            if max_grad_norm < math.inf:
                norm = clip_norm(parameters_of(optimizer), max_grad_norm)
            flushing_denormals(optimizer.step if mixed is None else partial(mixed.step, optimizer))
        return norm

    def _model_input(self, obs: Any, integers: bool = False) -> Any:
        """Convert the tensors of `obs` to the model's dtype; integers other than bytes only if `integers` is set."""
        return model_input(obs, dtype_of(self._model), integers)

    def _on_model(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Move a train batch to the device of the model; observations and rewards get the dtype of the model."""
        if self._cuda:
            batch = to_device(batch, self._device)
        dtype = dtype_of(self._model)
        for key in ("obs", "next_obs"):
            if key in batch and (not isinstance(obs := batch[key], Tensor) or obs.dtype is not dtype):
                batch[key] = model_input(obs, dtype)
        if isinstance(reward := batch.get("reward"), Tensor):
            batch["reward"] = reward.to(dtype)
        return batch

    def _forward_batch(self, model: Any, obs: Any, obs_key: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Forward stacked observations through `model` in evaluation mode, without gradients; results are on the CPU.

        With `obs_key` the model receives the observations in a dict under this key. `kwargs` go to the model's forward.

        Args:
            obs: an array or tensor [E, *obs_shape], or a (nested) dict of them.
        """
        if self._model.training:
            set_training(self._model, False)
        obs = acting_input(obs, dtype_of(self._model), self._device if self._cuda else None)
        if obs_key is not None:
            obs = {obs_key: obs}
        with torch.set_grad_enabled(False):  # equivalent to `no_grad`, at half its cost
            output: dict[str, Any] = model.forward(obs, **kwargs)
        if self._cuda:
            output = to_device(output, "cpu")
        return output

    def _forward_envs(
        self, model: Any, data: Mapping[int, Any], obs_key: str | None = None, **kwargs: Any
    ) -> dict[int, Any]:
        """Forward `{env_id: obs}` through `model` as `_forward_batch` does, and return a dict for each env.

        Raises:
            TypeError: `data` is not a dict but, for example, a single observation.
        """
        return act_by_env(lambda obs, env_ids: self._forward_batch(model, obs, obs_key, **kwargs), data)


def act_by_env(
    act: Callable[..., dict[str, Any]], data: Mapping[int, Any], *args: Any, **kwargs: Any
) -> dict[int, Any]:
    """Map `{env_id: obs}` to `{env_id: output}` by `act(obs, env_ids, ...)` on stacked batches.

    Without envs the result is empty, and `act` is not called.

    Raises:
        TypeError: `data` is not a dict but, for example, a single observation.
    """
    if not isinstance(data, Mapping):
        raise TypeError(
            f"forward takes a dict of observations by env id, not a {type(data).__name__}; give one observation as "
            "{0: obs}"
        )
    if not data:
        return {}
    env_ids = list(data)
    output = act(stack_observations(data), env_ids, *args, **kwargs)
    return dict(zip(env_ids, split_output(output), strict=True))


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters of all groups."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
