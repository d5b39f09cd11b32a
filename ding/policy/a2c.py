"""Advantage actor-critic, on policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from ding.policy.actor_critic import ACTION_KINDS, ActorCriticPolicy
from ding.policy.common_utils import drop_last_axis
from ding.policy.on_policy_data import OnPolicyData
from ding.policy.ppo import INIT_GAINS, initialise_by_gains, normalised
from ding.policy.settings import COMPATIBLE
from ding.policy.training_step import Learned
from ding.rl_utils.ppo import a2c_data, a2c_terms_error
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.config_helper import Setting, Settings, anything, number, one_of
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("a2c")
class A2CPolicy(ActorCriticPolicy):
    """A2C (https://arxiv.org/abs/1602.01783) for discrete, continuous and hybrid actions.

    Each collection is learned from in one pass, in shuffled minibatches with the loss

        mean(-log p(a|s) A + value_weight (A + V_old(s) - V(s))^2 - entropy_weight H(p(.|s)))

    The advantages A are those of https://arxiv.org/abs/1506.02438, computed when the samples are made. At the
    end of a trajectory fragment they bootstrap from the value of the next observation, unless the episode is over
    (`terminated` if the env reports it, `done` otherwise).

    Example:
        >>> import torch
        >>> cfg = A2CPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = A2CPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)})[0]["value"].shape
        torch.Size([1])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "a2c",
            "on_policy": True,
            "action_space": Setting("discrete", one_of(*ACTION_KINDS)),
            "learn.update_per_collect": Setting(1, anything, COMPATIBLE),
            "learn.learning_rate": 0.001,
            "learn.betas": Setting((0.9, 0.999), doc="Decay rates of Adam's averages."),
            "learn.eps": Setting(1e-8, number(0), "Term added to the denominator of Adam."),
            "learn.init_gains": INIT_GAINS,
            "learn.grad_norm": 0.5,
            "collect.discount_factor": 0.9,
        },
        ActorCriticPolicy.settings,
    )
    _output_keys: Sequence[str] = ("action", "value")

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        gains = self._cfg.learn.get("init_gains")
        if learns and gains is not None:  # before rank 0 broadcasts its parameters
            initialise_by_gains(model, hidden=gains[0], actor=gains[1], critic=gains[2])
        super()._set_up_model(model, learns)

    def _monitor_vars_learn(self) -> list[str]:
        names = ["policy_loss", "value_loss", "entropy_loss", "adv_abs_max", "grad_norm"]
        return ["cur_lr", "total_loss", *names]

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        betas = learn.betas[0], learn.betas[1]
        self._optimizer = Adam(self._model.parameters(), lr=learn.learning_rate, betas=betas, eps=learn.eps)
        self._learn_model = self._wrapped("base")

    def _prepare(self, data: list[dict[str, Any]]) -> OnPolicyData:
        return OnPolicyData(data, self._cfg.learn.ignore_done, device=self._device if self._cuda else None)

    def _update(self, batch: OnPolicyData) -> Learned:
        """Learn from the samples of a collection, and return the values to log of the last minibatch."""
        last = self._learn_epoch(batch, ("action", "value", "adv", "weight"), self._loss)[-1]
        return Learned({"total_loss": last.loss, **last.values, "grad_norm": last.norm})

    def _loss(self, output: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a minibatch, on which the optimizer steps, and the values to log beside it."""
        learn, action, value, adv = self._cfg.learn, batch["action"], batch["value"], batch["adv"]
        return_ = value + adv
        if learn.adv_norm:
            adv = normalised(adv)
        loss = a2c_terms_error(
            self._kind.terms(output["logit"], action),
            a2c_data(output["logit"], action, drop_last_axis(output["value"]), adv, return_, batch["weight"]),
        )
        total = loss.policy_loss + learn.value_weight * loss.value_loss - learn.entropy_weight * loss.entropy_loss
        return total, {**loss._asdict(), "adv_abs_max": adv.abs().max()}
