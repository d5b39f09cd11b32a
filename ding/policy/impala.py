"""IMPALA: off-policy actor-critic on sequences, corrected by V-trace."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn

from ding.model.wrapper.model_wrappers import mask_logits
from ding.policy.sequence_policy import (
    SequenceActorPolicy,
    forward_steps,
    map_tensors,
    sequence_ends,
    with_last_observation,
)
from ding.policy.settings import positive
from ding.policy.steps import Learned
from ding.rl_utils.vtrace import vtrace_losses, vtrace_targets
from ding.torch_utils.optimizer_helper import Adam, RMSprop
from ding.utils.config_helper import Setting, Settings, integer, number, one_of
from ding.utils.registry_factory import POLICY_REGISTRY

_OPTIMIZERS = {"adam": Adam, "rmsprop": RMSprop}


@POLICY_REGISTRY.register("impala")
class IMPALAPolicy(SequenceActorPolicy):
    """IMPALA (https://arxiv.org/abs/1802.01561) for discrete and continuous actions.

    A sample is a sequence of `unroll_len` steps of an episode. Padding after its end is masked out of
    the loss. With `priority` the priority of a sequence is the mean distance of its values from their targets.

    Example:
        >>> cfg = IMPALAPolicy.default_config()
        >>> cfg.model.update(obs_shape=4, action_shape=2)
        >>> policy = IMPALAPolicy(cfg, enable_field=["collect"])
        >>> output = policy.collect_mode.forward({0: torch.zeros(4)})[0]
        >>> output["action"].shape, output["logit"].shape
        (torch.Size([1]), torch.Size([2]))
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "impala",
            "action_space": Setting("discrete", one_of("discrete", "continuous"), "Kind of actions."),
            "unroll_len": Setting(32, integer(2), "Number of steps of a sequence."),
            "learn.learning_rate": 0.0005,
            "learn.discount_factor": 0.99,
            "learn.lambda_": Setting(0.95, number(0, 1), "Lambda of the value targets, as in TD(lambda)."),
            "learn.rho_clip_ratio": Setting(1.0, positive, "Truncation of the importance ratio in the TD error."),
            "learn.c_clip_ratio": Setting(1.0, positive, "Truncation of the importance ratio in the trace."),
            "learn.rho_pg_clip_ratio": Setting(1.0, positive, "Truncation of the importance ratio in the policy loss."),
            "learn.clip_value": 0.5,
            "learn.optim": Setting("adam", one_of(*_OPTIMIZERS), "Optimizer."),
            "collect": {},
        },
        SequenceActorPolicy.settings,
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "vac", ["ding.model.template.vac"]

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        self._unroll_len = int(self._cfg.unroll_len)
        super()._set_up_model(model, learns)

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss", "policy_loss", "value_loss", "entropy_loss"]

    # --- learn ---

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        self._optimizer = _OPTIMIZERS[learn.optim](
            self._model.parameters(),
            lr=learn.learning_rate,
            grad_clip_type=learn.grad_clip_type,
            clip_value=learn.clip_value,
        )
        self._learn_model = self._wrapped("base")

    def _update(self, batch: dict[str, Any]) -> Learned:
        """Take one step on B sequences."""
        learn = self._cfg.learn
        reward, action = batch["reward"], batch["action"]  # [T, B], [T, B] or [T, B, A]
        ends = sequence_ends(batch)

        observations = with_last_observation(batch, ends)
        output = forward_steps(self._learn_model.forward, observations, mode="compute_actor_critic")
        mask_logits(output)
        value, next_value = output["value"][:-1], output["value"][1:].detach()
        (terms,) = self._kind.terms(map_tensors(output["logit"], lambda logit: logit[:-1]), action)
        with torch.no_grad():
            (old_terms,) = self._kind.terms(batch["logit"], action)
            ratio = torch.exp(terms.log_prob - old_terms.log_prob)

        discount = learn.discount_factor * ends.bootstraps
        limits = learn.lambda_, learn.rho_clip_ratio, learn.c_clip_ratio, learn.rho_pg_clip_ratio
        targets = vtrace_targets(ratio, value, next_value, reward, discount, ends.goes_on, *limits)
        is_valid = ends.is_valid
        weight = is_valid * (is_valid.numel() / is_valid.sum())
        if batch["weight"] is not None:
            weight = weight * batch["weight"]
        loss = vtrace_losses(terms, value, targets, weight)
        total = loss.policy_loss + learn.value_weight * loss.value_loss - learn.entropy_weight * loss.entropy_loss
        self._backward_and_step(total, self._optimizer, self._model)
        distance = (value.detach() - targets.value).abs() * is_valid
        priority = distance.sum(0) / is_valid.sum(0) if self._priority else None
        return Learned({"total_loss": total, **loss._asdict()}, priority)
