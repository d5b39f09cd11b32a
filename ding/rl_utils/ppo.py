"""The losses of proximal policy optimization (https://arxiv.org/abs/1707.06347), phasic policy gradient and A2C.

Shapes: B batch, N discrete actions, A agents or dimensions of a real-valued action. The field order of the data tuples
is part of the interface; a `weight` of None means ones, and without `logit_pretrained` there is no divergence term. All
losses are 0-d tensors to be minimised; add the entropy with a negative weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ding.rl_utils.log_prob import ActionTerms, categorical_terms, gaussian_terms
from ding.rl_utils.returns import weighted_mean

KL_TYPES = ("k1", "k2", "k3")


class ppo_data(NamedTuple):
    logit_new: Any  # [B, N] or [B, A, N]; a list of K of them for a multi-discrete action
    logit_old: Any  # as logit_new, at sampling time
    action: Any  # [B] or [B, A] int64; [B, K] or K times [B] if multi-discrete
    value_new: Tensor  # [B] or [B, A]
    value_old: Tensor  # as value_new
    adv: Tensor  # as value_new
    return_: Tensor  # as value_new
    weight: Tensor | None  # [B] or [B, 1]
    logit_pretrained: Any = None  # as logit_new, of the reference policy


class ppo_data_continuous(NamedTuple):
    mu_sigma_new: Mapping[str, Tensor]  # {'mu': [B, A], 'sigma': [B, A]}
    mu_sigma_old: Mapping[str, Tensor]  # as mu_sigma_new
    action: Tensor  # [B, A]
    value_new: Tensor  # [B]
    value_old: Tensor  # [B]
    adv: Tensor  # [B]
    return_: Tensor  # [B]
    weight: Tensor | None  # [B] or [B, 1]
    logit_pretrained: Any = None  # as mu_sigma_new


class ppo_policy_data(NamedTuple):
    logit_new: Any
    logit_old: Any
    action: Any
    adv: Tensor
    weight: Tensor | None
    logit_pretrained: Any = None


class ppo_policy_data_continuous(NamedTuple):
    mu_sigma_new: Mapping[str, Tensor]
    mu_sigma_old: Mapping[str, Tensor]
    action: Tensor
    adv: Tensor
    weight: Tensor | None
    logit_pretrained: Any = None


class ppo_value_data(NamedTuple):
    value_new: Tensor
    value_old: Tensor
    return_: Tensor
    weight: Tensor | None


class ppo_loss(NamedTuple):
    policy_loss: Tensor
    value_loss: Tensor
    entropy_loss: Tensor
    kl_div: Tensor


class ppo_policy_loss(NamedTuple):
    policy_loss: Tensor
    entropy_loss: Tensor
    kl_div: Tensor


class ppo_info(NamedTuple):
    approx_kl: float
    clipfrac: float


class Surrogate(NamedTuple):
    """The clipped objective, and how far the policy has moved for each action."""

    loss: Tensor  # 0-d
    log_ratio: Tensor  # log p_new - log p_old, detached
    ratio: Tensor  # as `adv`, detached
    clip_ratio: float

    @property
    def approx_kl(self) -> Tensor:
        """The mean of log p_old - log p_new, 0-d."""
        return -self.log_ratio.mean()

    @property
    def clipfrac(self) -> Tensor:
        """The fraction of ratios outside of 1 +- `clip_ratio`, 0-d."""
        return is_clipped(self.ratio, self.clip_ratio).mean()


def is_clipped(ratio: Tensor, clip_ratio: float) -> Tensor:
    """Return 1 for each ratio outside of 1 +- `clip_ratio`, else 0."""
    return ((ratio - 1).abs() > clip_ratio).float()


def clipped_surrogate(
    log_prob_new: Tensor,
    log_prob_old: Tensor,
    adv: Tensor,
    weight: Tensor | None = None,
    clip_ratio: float = 0.2,
    dual_clip: float | None = None,
) -> Surrogate:
    """Return -mean(min(r A, clip(r, 1 - c, 1 + c) A) w), equation 7 of https://arxiv.org/abs/1707.06347.

    With `dual_clip` d, where A < 0 the objective is at least d A, equation 5 of https://arxiv.org/abs/1912.09729: a
    ratio far above 1 then has no gradient instead of an unbounded one. Ratios [B, A] of several agents with advantages
    [B] are averaged over the agents.

    Raises:
        AssertionError: `dual_clip` is not above 1.
    """
    if dual_clip is not None and not dual_clip > 1:
        raise AssertionError(f"dual_clip = {dual_clip!r} is not allowed; it must be above 1, or None")
    log_ratio = log_prob_new - log_prob_old
    ratio = _like(log_ratio.exp(), adv)
    objective = torch.min(ratio * adv, ratio.clamp(1 - clip_ratio, 1 + clip_ratio) * adv)
    if dual_clip is not None:
        objective = torch.where(adv < 0, torch.max(objective, dual_clip * adv), objective)
    return Surrogate(-weighted_mean(objective, weight), log_ratio.detach(), ratio.detach(), clip_ratio)


def kl_estimate(log_ratio: Tensor, kl_type: str = "k1") -> Tensor:
    """Return an estimate of the Kullback-Leibler divergence from d = log p_new - log p_reference of sampled actions.

    'k1' is mean(d), 'k2' mean(d^2 / 2) and 'k3' mean(exp(-d) - 1 + d); see http://joschu.net/blog/kl-approx.html.

    Raises:
        ValueError: `kl_type` is unknown.
    """
    if kl_type == "k1":
        return log_ratio.mean()
    if kl_type == "k2":
        return (log_ratio.square() / 2).mean()
    if kl_type == "k3":
        return (torch.exp(-log_ratio) - 1 + log_ratio).mean()
    raise ValueError(f"kl_type = {kl_type!r} is not allowed; it must be one of {', '.join(map(repr, KL_TYPES))}")


def _like(item: Tensor, adv: Tensor) -> Tensor:
    """Return `item`, averaged over its agents if the advantages have no agent axis."""
    return item if item.shape == adv.shape else item.mean(1)


def ppo_error(
    data: ppo_data,
    clip_ratio: float = 0.2,
    use_value_clip: bool = True,
    dual_clip: float | None = None,
    kl_type: str = "k1",
) -> tuple[ppo_loss, ppo_info]:
    """Return policy, value and entropy loss, and the divergence from a pretrained policy, for discrete actions.

    Example:
        >>> logit, value = torch.zeros(2, 3), torch.zeros(2)
        >>> action, adv = torch.tensor([0, 2]), torch.tensor([1.0, 3.0])
        >>> loss, info = ppo_error(ppo_data(logit, logit, action, value, value, adv, adv, None))
        >>> loss.policy_loss.item(), loss.value_loss.item(), info.clipfrac
        (-2.0, 2.5, 0.0)
    """
    policy_data = ppo_policy_data(
        data.logit_new, data.logit_old, data.action, data.adv, data.weight, data.logit_pretrained
    )
    policy, info = ppo_policy_error(policy_data, clip_ratio, dual_clip, kl_type=kl_type)
    return _with_value_loss(policy, data, clip_ratio, use_value_clip), info


def ppo_error_continuous(
    data: ppo_data_continuous,
    clip_ratio: float = 0.2,
    use_value_clip: bool = True,
    dual_clip: float | None = None,
    kl_type: str = "k1",
) -> tuple[ppo_loss, ppo_info]:
    """Return the losses of `ppo_error` for real-valued actions of independent Gaussians."""
    policy_data = ppo_policy_data_continuous(
        data.mu_sigma_new, data.mu_sigma_old, data.action, data.adv, data.weight, data.logit_pretrained
    )
    policy, info = ppo_policy_error_continuous(policy_data, clip_ratio, dual_clip, kl_type)
    return _with_value_loss(policy, data, clip_ratio, use_value_clip), info


def ppo_policy_error(
    data: ppo_policy_data,
    clip_ratio: float = 0.2,
    dual_clip: float | None = None,
    entropy_bonus: bool = True,
    kl_type: str = "k1",
) -> tuple[ppo_policy_loss, ppo_info]:
    """Return policy and entropy loss for discrete actions; without `entropy_bonus` the entropy is zero."""
    new = categorical_terms(data.logit_new, data.action)
    old = categorical_terms(data.logit_old, data.action)
    if not entropy_bonus:
        new = new._replace(entropy=torch.zeros_like(data.adv))
    pretrained = None
    if data.logit_pretrained is not None:
        pretrained = categorical_terms(data.logit_pretrained, data.action)
    return _policy_error(new, old, pretrained, data, clip_ratio, dual_clip, kl_type)


def ppo_policy_error_continuous(
    data: ppo_policy_data_continuous,
    clip_ratio: float = 0.2,
    dual_clip: float | None = None,
    kl_type: str = "k1",
) -> tuple[ppo_policy_loss, ppo_info]:
    """Return the losses of `ppo_policy_error` for real-valued actions of independent Gaussians."""
    new = gaussian_terms(data.mu_sigma_new, data.action)
    old = gaussian_terms(data.mu_sigma_old, data.action)
    pretrained = None
    if data.logit_pretrained is not None:
        pretrained = gaussian_terms(data.logit_pretrained, data.action)
    return _policy_error(new, old, pretrained, data, clip_ratio, dual_clip, kl_type)


def ppo_value_error(data: ppo_value_data, clip_ratio: float = 0.2, use_value_clip: bool = True) -> Tensor:
    """Return half the mean squared error of the value.

    With `use_value_clip` the error of a sample is the larger one of the new value's and of that of the new value
    clipped to within `clip_ratio` of the old one.
    """
    value_new, value_old, return_, weight = data
    error = (return_ - value_new).square()
    if use_value_clip:
        near = value_old + (value_new - value_old).clamp(-clip_ratio, clip_ratio)
        error = torch.max(error, (return_ - near).square())
    return 0.5 * weighted_mean(error, weight)


def _policy_error(
    new: ActionTerms,
    old: ActionTerms,
    pretrained: ActionTerms | None,
    data: ppo_policy_data | ppo_policy_data_continuous,
    clip_ratio: float,
    dual_clip: float | None,
    kl_type: str,
) -> tuple[ppo_policy_loss, ppo_info]:
    surrogate = clipped_surrogate(new.log_prob, old.log_prob, data.adv, data.weight, clip_ratio, dual_clip)
    entropy = weighted_mean(_like(new.entropy, data.adv), data.weight)
    if pretrained is None:
        kl_div = torch.zeros_like(surrogate.loss)
    else:
        kl_div = kl_estimate(new.log_prob - pretrained.log_prob, kl_type)
    info = ppo_info(surrogate.approx_kl.item(), surrogate.clipfrac.item())
    return ppo_policy_loss(surrogate.loss, entropy, kl_div), info


def _with_value_loss(
    policy: ppo_policy_loss, data: ppo_data | ppo_data_continuous, clip_ratio: float, use_value_clip: bool
) -> ppo_loss:
    value_data = ppo_value_data(data.value_new, data.value_old, data.return_, data.weight)
    value_loss = ppo_value_error(value_data, clip_ratio, use_value_clip)
    return ppo_loss(policy.policy_loss, value_loss, policy.entropy_loss, policy.kl_div)


# --- the auxiliary phase of phasic policy gradient (https://arxiv.org/abs/2009.04416) ---


class ppg_data(NamedTuple):
    logit_new: Tensor  # [B, N]
    logit_old: Tensor  # [B, N], before the auxiliary phase
    action: Tensor  # [B] int64; not used by the losses
    value_new: Tensor  # [B]
    value_old: Tensor  # [B]
    return_: Tensor  # [B]
    weight: Tensor | None  # [B] or [B, 1], of the value loss


class ppg_joint_loss(NamedTuple):
    auxiliary_loss: Tensor
    behavioral_cloning_loss: Tensor


def ppg_joint_error(data: ppg_data, clip_ratio: float = 0.2, use_value_clip: bool = True) -> ppg_joint_loss:
    """Return the value loss of PPO and the mean divergence KL(old || new) from the old policy, both scalars.

    See `ppo_value_error` for `clip_ratio` and `use_value_clip`.
    """
    auxiliary = ppo_value_error(
        ppo_value_data(data.value_new, data.value_old, data.return_, data.weight), clip_ratio, use_value_clip
    )
    log_old, log_new = _log_probabilities(data.logit_old.detach()), _log_probabilities(data.logit_new)
    cloning = F.kl_div(log_new, log_old, reduction="none", log_target=True).sum(-1).mean()
    return ppg_joint_loss(auxiliary, cloning)


def _log_probabilities(logit: Tensor) -> Tensor:
    # For an action that is masked in both policies the term is 0, not NaN.
    return torch.log_softmax(logit, dim=-1).clamp(min=torch.finfo(logit.dtype).min)


# --- advantage actor-critic, https://arxiv.org/abs/1602.01783 ---


class a2c_data(NamedTuple):
    logit: Any  # [B, N]; for real-valued actions {'mu', 'sigma'}
    action: Tensor  # [B] int64, or [B, A]
    value: Tensor  # [B]
    adv: Tensor  # [B]
    return_: Tensor  # [B]
    weight: Tensor | None  # [B] or [B, 1], None for ones


class a2c_loss(NamedTuple):
    policy_loss: Tensor
    value_loss: Tensor
    entropy_loss: Tensor


def a2c_error(data: a2c_data) -> a2c_loss:
    """Return -mean(log p A w), mean((R - v)^2 w) and the mean entropy for discrete actions.

    Example:
        >>> import torch
        >>> one = torch.ones(1)
        >>> loss = a2c_error(a2c_data(torch.zeros(1, 2), torch.tensor([1]), one, one, 3 * one, None))
        >>> round(loss.policy_loss.item(), 4), loss.value_loss.item()
        (0.6931, 4.0)
    """
    return a2c_terms_error([categorical_terms(data.logit, data.action)], data)


def a2c_error_continuous(data: a2c_data) -> a2c_loss:
    """Return the losses of `a2c_error` for real-valued actions of independent Gaussians."""
    return a2c_terms_error([gaussian_terms(data.logit, data.action)], data)


def a2c_terms_error(terms: Sequence[ActionTerms], data: a2c_data) -> a2c_loss:
    """Return the losses of `a2c_error` for actions whose parts have the given terms: those of the parts are added."""
    return a2c_loss(
        -weighted_mean(torch.stack([term.log_prob for term in terms]).sum(0) * data.adv, data.weight),
        weighted_mean((data.return_ - data.value).square(), data.weight),
        weighted_mean(torch.stack([term.entropy for term in terms]).sum(0), data.weight),
    )
