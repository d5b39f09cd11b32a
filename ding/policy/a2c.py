"""Advantage actor-critic, on policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import nn

from ding.model.wrapper.model_wrappers import mask_logits
from ding.policy.actor_critic import ACTION_KINDS, ActorCriticPolicy
from ding.policy.on_policy_data import OnPolicyData
from ding.policy.ppo import INIT_GAINS, initialise_by_gains, normalised
from ding.policy.settings import COMPATIBLE
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
            initialise_by_gains(model, *gains)
        super()._set_up_model(model, learns)

    def _monitor_vars_learn(self) -> list[str]:
        names = ["policy_loss", "value_loss", "entropy_loss", "adv_abs_max", "grad_norm"]
        return ["cur_lr", "total_loss", *names]

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        betas = learn.betas[0], learn.betas[1]
        self._optimizer = Adam(self._model.parameters(), lr=learn.learning_rate, betas=betas, eps=learn.eps)
        self._learn_model = self._wrapped("base")

    def _forward_learn(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        """Learn from the samples of a collection, and return the values to log of the last minibatch."""
        learn = self._cfg.learn
        batch = OnPolicyData(data, learn.ignore_done, device=self._device if self._cuda else None)
        self._mode_of(self._model).set(True)
        for minibatch in batch.minibatches(("action", "value", "adv", "weight"), learn.batch_size):
            output = self._learn_model.forward(self._model_input(minibatch["obs"]), mode="compute_actor_critic")
            mask_logits(output)
            action, value, adv = minibatch["action"], minibatch["value"], minibatch["adv"]
            return_ = value + adv
            if learn.adv_norm:
                adv = normalised(adv)
            loss = a2c_terms_error(
                self._kind.terms(output["logit"], action),
                a2c_data(output["logit"], action, output["value"], adv, return_, minibatch["weight"]),
            )
            total = loss.policy_loss + learn.value_weight * loss.value_loss - learn.entropy_weight * loss.entropy_loss
            grad_norm = self._backward_and_step(total, self._optimizer, self._model, max_grad_norm=learn.grad_norm)
        return {
            "cur_lr": self._optimizer.param_groups[0]["lr"],
            "total_loss": total.item(),
            "policy_loss": loss.policy_loss.item(),
            "value_loss": loss.value_loss.item(),
            "entropy_loss": loss.entropy_loss.item(),
            "adv_abs_max": adv.abs().max().item(),
            "grad_norm": grad_norm.item(),
        }
