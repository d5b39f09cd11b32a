"""The loss of one minibatch of PPO, and what is logged of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

from ding.policy.action_kinds import ActionKind
from ding.rl_utils.ppo import clipped_surrogate, kl_estimate, ppo_value_data, ppo_value_error
from ding.rl_utils.returns import weighted_mean

LOGGED = (
    *("total_loss", "policy_loss", "value_loss", "entropy_loss"),
    *("adv_max", "adv_mean", "value_mean", "value_max", "approx_kl", "clipfrac", "kl_div"),
)
LOGGED_CONTINUOUS = ("act", "mu_mean", "sigma_mean")


@dataclass(frozen=True, slots=True)
class PPOLoss:
    """policy + value_weight value - entropy_weight entropy + kl_beta divergence, of https://arxiv.org/abs/1707.06347.

    Where an action has parts with a policy each, their losses are added.
    """

    kind: ActionKind
    clip_ratio: float
    dual_clip: float | None
    value_weight: float
    entropy_weight: float
    adv_norm: bool
    kl_type: str
    kl_beta: float

    def __call__(self, output: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, list[Tensor]]:
        """The loss, and the values of `LOGGED` (and `LOGGED_CONTINUOUS` for continuous actions).

        Args:
            output: of the model: `logit` and `value`.
            batch: `action, log_prob_old, value, adv, return_, weight`, and `log_prob_pretrained` or None.
        """
        adv, weight, value = batch["adv"], batch["weight"], output["value"]
        if self.adv_norm:
            adv = normalised(adv)
        terms = self.kind.terms(output["logit"], batch["action"])
        surrogates = [
            clipped_surrogate(term.log_prob, old, adv, weight, self.clip_ratio, self.dual_clip)
            for term, old in zip(terms, batch["log_prob_old"], strict=True)
        ]
        policy_loss = _sum([surrogate.loss for surrogate in surrogates])
        value_data = ppo_value_data(value, batch["value"], batch["return_"], weight)
        value_loss = ppo_value_error(value_data, self.clip_ratio)
        entropy = _sum([_weighted_entropy(term.entropy, adv, weight) for term in terms])
        total = policy_loss + self.value_weight * value_loss
        if self.entropy_weight:
            total = total - self.entropy_weight * entropy
        kl_div = self._divergence(terms, batch["log_prob_pretrained"])
        if kl_div is None:
            kl_div = torch.zeros_like(total)
        else:
            total = total + self.kl_beta * kl_div
        approx_kl = _max([surrogate.approx_kl for surrogate in surrogates])
        clipfrac = _max([surrogate.clipfrac for surrogate in surrogates])
        logged = [total, policy_loss, value_loss, entropy, adv.max(), adv.mean(), value.mean(), value.max()]
        logged += [approx_kl, clipfrac, kl_div]
        if self.kind.is_discrete is False:
            logit = output["logit"]
            logged += [batch["action"].float().mean(), logit["mu"].mean(), logit["sigma"].mean()]
        return total, [entry.detach() for entry in logged]

    def _divergence(self, terms: Sequence[Any], reference: Sequence[Tensor] | None) -> Tensor | None:
        if reference is None:
            return None
        pairs = zip(terms, reference, strict=True)
        return _sum([kl_estimate(term.log_prob - log_prob, self.kl_type) for term, log_prob in pairs])


def normalised(adv: Tensor) -> Tensor:
    """`adv` with mean 0 and (unbiased) deviation 1; a single advantage stays as it is."""
    if adv.numel() == 1:
        return adv
    std, mean = torch.std_mean(adv)
    return (adv - mean) / (std + 1e-8)


def _weighted_entropy(entropy: Tensor, adv: Tensor, weight: Tensor | None) -> Tensor:
    return weighted_mean(entropy if entropy.shape == adv.shape else entropy.mean(1), weight)


def _sum(items: list[Tensor]) -> Tensor:
    return reduce(add, items)


def _max(items: list[Tensor]) -> Tensor:
    return reduce(torch.maximum, items)
