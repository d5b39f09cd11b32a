"""Behaviour cloning: supervised learning from demonstrations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from time import perf_counter
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ding.policy.base_policy import BatchPolicy
from ding.policy.dqn import head_actions
from ding.policy.training_step import Learned
from ding.utils.config_helper import (
    ConfigError,
    Setting,
    Settings,
    anything,
    boolean,
    integer,
    number,
    one_of,
    positive,
)
from ding.utils.registry_factory import POLICY_REGISTRY

_LOSSES = {"l1_loss": F.l1_loss, "mse_loss": F.mse_loss}
_OPTIMIZERS = ("SGD", "Adam", "AdamW")
# tanh(1): beyond it, a squashed action is close to its bound.
_TANH_1 = math.tanh(1.0)


@POLICY_REGISTRY.register("bc")
class BehaviourCloningPolicy(BatchPolicy):
    """Imitation of demonstrations (https://doi.org/10.1162/neco.1991.3.1.88) with discrete or continuous actions.

    Discrete actions are learned by classification, continuous ones (`continuous`) by regression. Train it with
    `serial_pipeline_bc`, or with any pipeline that provides observations and actions.

    Example:
        >>> cfg = BehaviourCloningPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = BehaviourCloningPolicy(cfg, enable_field=["eval"])
        >>> policy.eval_mode.forward({0: torch.zeros(4)})[0]["action"].shape
        torch.Size([1])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "bc",
            "continuous": Setting(False, boolean, "Whether actions are real-valued."),
            "loss_type": Setting("l1_loss", one_of(*_LOSSES), "Loss of real-valued actions."),
            "learn.update_per_collect": Setting(1, anything),
            "learn.batch_size": 32,
            "learn.learning_rate": 1e-5,
            "learn.lr_decay": Setting(False, boolean, "Warm up the learning rate, then reduce it in steps."),
            "learn.decay_epoch": Setting(30, integer(1), "Number of epochs between two reductions, with `lr_decay`."),
            "learn.decay_rate": Setting(0.1, positive, "Factor of each reduction, with `lr_decay`."),
            "learn.warmup_lr": Setting(1e-4, positive, "Learning rate during the warm-up, with `lr_decay`."),
            "learn.warmup_epoch": Setting(3, integer(0), "Number of epochs of the warm-up, with `lr_decay`."),
            "learn.optimizer": Setting("SGD", one_of(*_OPTIMIZERS), "Optimizer."),
            "learn.momentum": Setting(0.9, number(0), "Momentum of SGD."),
            "learn.weight_decay": Setting(1e-4, doc="Weight decay of SGD and AdamW."),
            "learn.ce_label_smooth": Setting(False, boolean, "Smooth the classes by 0.1."),
            "learn.show_accuracy": Setting(False, boolean, "Log the accuracy of predicted actions."),
            "learn.tanh_mask": Setting(False, boolean, "Mask predicted real-valued actions beyond +-tanh(1)."),
            "collect.unroll_len": 1,
            "collect.noise": Setting(False, boolean, "Explore real-valued actions with noise."),
            "collect.noise_sigma": Setting(0.2, doc="Standard deviation of the noise, or a schedule like `other.eps`."),
            "collect.noise_range.min": Setting(-0.5, doc="Lower limit of the noise."),
            "collect.noise_range.max": Setting(0.5, doc="Upper limit of the noise."),
            "eval": {},
        },
        BatchPolicy.settings,
    )
    _learn_keys = ("obs",)

    @property
    def has_discrete_actions(self) -> bool | None:  # type: ignore[override]
        """Whether actions are discrete."""
        return not self._cfg.continuous

    def default_model(self) -> tuple[str, list[str]]:
        return ("continuous_bc" if self._cfg.continuous else "discrete_bc"), ["ding.model.template.bc"]

    def _monitor_vars_learn(self) -> list[str]:
        names = ["cur_lr", "total_loss", "forward_time", "backward_time"]
        return [*names, "total_accuracy"] if self._cfg.learn.show_accuracy else names

    # --- learn ---

    def _init_learn(self) -> None:
        learn, parameters = self._cfg.learn, self._model.parameters()
        rate, decay = learn.learning_rate, learn.weight_decay
        if learn.optimizer == "SGD":
            self._optimizer = torch.optim.SGD(parameters, lr=rate, weight_decay=decay, momentum=learn.momentum)
        elif learn.optimizer == "AdamW":
            self._optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)
        else:
            self._optimizer = torch.optim.Adam(parameters, lr=rate)
        self._schedule = None
        if learn.lr_decay and learn.get("lr_scheduler") is not None:
            raise ConfigError(
                "learn.lr_decay = True is not allowed with learn.lr_scheduler; set one of the two schedules"
            )
        if learn.lr_decay:
            self._schedule = torch.optim.lr_scheduler.LambdaLR(self._optimizer, lambda epoch: _share(epoch, learn))
        self._learn_model = self._wrapped("base")

    def end_epoch(self) -> None:
        """Advance the learning rate schedule at the end of an epoch."""
        if self._schedule is not None:
            self._schedule.step()

    def _update(self, batch: dict[str, Any]) -> Learned:
        """Take one step on observations and actions; logged times are in seconds."""
        start = perf_counter()
        loss, accuracy = self._loss(self._model(batch["obs"]), batch["action"])
        middle = perf_counter()
        self._backward_and_step(loss, self._optimizer, self._model)
        others = {"forward_time": middle - start, "backward_time": perf_counter() - middle}
        if self._cfg.learn.show_accuracy:
            others["total_accuracy"] = accuracy
        return Learned({"total_loss": loss}, others=others)

    def _loss(self, output: dict[str, Any], action: Any) -> tuple[Tensor, float]:
        """Return the scalar loss and the accuracy (0 for real-valued actions)."""
        if self._cfg.continuous:
            predicted = output["action"] if "action" in output else output["logit"][0]
            action = action.reshape(predicted.shape).to(predicted.dtype)
            if self._cfg.learn.tanh_mask:
                inside = predicted.detach().abs() <= _TANH_1
                if inside.float().mean() >= 0.2:
                    predicted, action = predicted[inside], action[inside]
            return _LOSSES[self._cfg.loss_type](predicted, action), 0.0
        logit = output["logit"]
        logits, actions = ([logit], [action.view(-1)]) if isinstance(logit, Tensor) else (logit, head_actions(action))
        smoothing = 0.1 if self._cfg.learn.ce_label_smooth else 0.0
        heads = list(zip(logits, actions, strict=True))
        losses = [F.cross_entropy(head, target.long(), label_smoothing=smoothing) for head, target in heads]
        if not self._cfg.learn.show_accuracy:
            return torch.stack(losses).mean(), 0.0
        hits = torch.cat([head.argmax(-1) == target for head, target in heads])
        return torch.stack(losses).mean(), hits.float().mean().item()

    def _learn_parts(self) -> dict[str, Any]:
        parts = super()._learn_parts()
        return parts if self._schedule is None else {**parts, "lr_scheduler": self._schedule}

    # --- collect and eval ---

    @property
    def _eval_wrapper(self) -> str:  # type: ignore[override]
        if not self._cfg.continuous:
            return "argmax_sample"
        # A model of a user's own returns actions unless it says otherwise.
        is_gaussian = getattr(self._model, "action_space", "regression") == "reparameterization"
        return "deterministic_sample" if is_gaussian else "base"

    def _init_collect(self) -> None:
        collect = self._cfg.collect
        self._collect_model = self._wrapped(self._eval_wrapper if self._cfg.continuous else "eps_greedy_sample")
        if self._cfg.continuous and collect.noise:
            self._collect_model = self._wrapped(
                "action_noise", self._collect_model, noise_type="gauss", noise_range=collect.noise_range
            )

    def _act_collect(
        self, obs: Any, env_ids: list[int], eps: float | None = None, sigma: float | None = None
    ) -> dict[str, Any]:
        """Act epsilon-greedily (`eps`; None means 0), or with noise of standard deviation `sigma`."""
        settings: dict[str, Any] = {}
        if not self._cfg.continuous:
            settings["eps"] = eps or 0.0
        elif self._cfg.collect.noise:
            settings["sigma"] = self._cfg.collect.noise_sigma if sigma is None else sigma
        return self._forward_batch(self._collect_model, obs, **settings)


def _share(epoch: int, learn: Mapping[str, Any]) -> float:
    """Return the learning rate of this epoch as a multiple of `learning_rate`."""
    if epoch < learn["warmup_epoch"]:
        return float(learn["warmup_lr"] / learn["learning_rate"])
    return float(learn["decay_rate"] ** ((epoch - learn["warmup_epoch"]) // learn["decay_epoch"]))
