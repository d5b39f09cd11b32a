"""Conservative Q-learning for continuous actions."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding.policy.on_policy_data import take
from ding.policy.q_actor_critic import CriticTerms, q_values
from ding.policy.sac import SACPolicy
from ding.rl_utils.log_prob import squashed_gaussian_sample
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.config_helper import Setting, Settings, boolean, integer, number
from ding.utils.registry_factory import POLICY_REGISTRY

# Upper bound of the Lagrange multiplier.
_MAX_MULTIPLIER = 1e6


@POLICY_REGISTRY.register("cql")
class CQLPolicy(SACPolicy):
    """CQL(H) (https://arxiv.org/abs/2006.04779): SAC with a penalty on the values of actions outside the data set.

    Train it with `serial_pipeline_offline`. The loss of each critic is that of SAC plus `min_q_weight` times
    log of the integral of exp Q(s, a) over all actions, minus Q(s, a) of the data. The integral is estimated from
    `num_actions` uniform actions, and as many of the actor at s and at s'. With `with_lagrange` a multiplier is learned
    that keeps this term at `lagrange_thresh`.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "cql",
            "model.actor_head_hidden_size": 256,
            "model.critic_head_hidden_size": 256,
            "learn.num_actions": Setting(10, integer(1), "Actions sampled per state in the conservative term."),
            "learn.with_lagrange": Setting(False, boolean, "Learn the weight of the conservative term."),
            "learn.lagrange_thresh": Setting(-1, number(), "Target of the conservative term, with `with_lagrange`."),
            "learn.min_q_weight": 1.0,
            "learn.with_q_entropy": Setting(False, boolean, "Include the entropy of the next action in targets."),
        },
        SACPolicy.settings,
    )
    _optional_parts: ClassVar[tuple[str, ...]] = ("log_alpha", "alpha", "log_alpha_prime", "optimizer_alpha_prime")

    def _monitor_vars_learn(self) -> list[str]:
        names = [*super()._monitor_vars_learn(), "conservative_loss"]
        return [*names, "alpha_prime", "alpha_prime_loss"] if self._cfg.learn.with_lagrange else names

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        if learn.with_lagrange:
            self._log_alpha_prime = torch.zeros(1, device=self._device, requires_grad=True)
            self._optimizer_alpha_prime = Adam([self._log_alpha_prime], lr=learn.learning_rate_q)

    def _target_alpha(self) -> Tensor:
        alpha = super()._target_alpha()
        return alpha if self._cfg.learn.with_q_entropy else torch.zeros_like(alpha)

    def _critic_terms(self, batch: dict[str, Any]) -> CriticTerms:
        learn = self._cfg.learn
        losses, error, logged = super()._critic_terms(batch)
        gaps = [learn.min_q_weight * gap for gap in self._conservative_gaps(batch)]
        logged["conservative_loss"] = torch.stack(gaps).mean()
        if learn.with_lagrange:
            excess = [gap - learn.lagrange_thresh for gap in gaps]
            multiplier = self._log_alpha_prime.exp().clamp(max=_MAX_MULTIPLIER)
            gaps = [multiplier.detach().squeeze() * one for one in excess]
            loss = -(multiplier * torch.stack(excess).mean().detach()).sum()
            self._backward_and_step(loss, self._optimizer_alpha_prime)
            logged |= {"alpha_prime": multiplier.mean(), "alpha_prime_loss": loss}
        summed = {name: loss + gap for (name, loss), gap in zip(losses.items(), gaps, strict=True)}
        return CriticTerms(summed, error, logged)

    def _conservative_gaps(self, batch: dict[str, Any]) -> list[Tensor]:
        """Return for each critic the mean of log sum_j exp(Q(s, a_j) - log p(a_j)) - Q(s, a), for drawn actions a_j.

        Actions are weighted by 1 / p, so that the sum estimates the integral (up to a factor).
        """
        obs, action = batch["obs"], batch["action"]
        size, number = len(action), self._cfg.learn.num_actions
        action = action.reshape(size, -1)
        rows = torch.arange(size, device=action.device)
        with torch.no_grad():
            uniform = torch.rand(size, number, action.shape[1], device=action.device) * 2 - 1
            actions, log_densities = [uniform], [torch.full((size, number), -action.shape[1] * math.log(2))]
            for observations in (obs, batch["next_obs"]):
                logit = self._model(observations, mode="compute_actor")["logit"]
                drawn = squashed_gaussian_sample(take(logit, rows.repeat_interleave(number)))
                actions.append(drawn.action.view_as(uniform))
                log_densities.append(drawn.log_prob.view(size, number))
            log_density = torch.cat([one.to(action.device) for one in log_densities], 1)
        repeated = take(obs, rows.repeat_interleave(3 * number))
        every = torch.cat(actions, 1).flatten(0, 1)
        q_every = q_values(self._model({"obs": repeated, "action": every}, mode="compute_critic"))
        q_data = q_values(self._model({"obs": obs, "action": action}, mode="compute_critic"))
        return [
            (torch.logsumexp(many.view(size, -1) - log_density, 1) - one).mean()
            for many, one in zip(q_every, q_data, strict=True)
        ]

    def _learn_parts(self) -> dict[str, Any]:
        parts = super()._learn_parts()
        if self._cfg.learn.with_lagrange:
            parts |= {"optimizer_alpha_prime": self._optimizer_alpha_prime, "log_alpha_prime": self._log_alpha_prime}
        return parts
