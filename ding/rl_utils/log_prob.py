"""Log-probabilities and entropies of actions.

They are computed without distribution objects, which cost more than the loss computed from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ding.utils.data.nested import is_mapping

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
# Minimum distance of given actions from the bounds.
_BOUND_MARGIN = 1e-3
_LOG_2 = math.log(2)


class ActionTerms(NamedTuple):
    """The terms of a policy gradient for a batch of actions."""

    log_prob: Tensor  # [*B]
    entropy: Tensor  # [*B], of the distribution of the action


def categorical_terms(logit: Tensor | Sequence[Tensor], action: Any) -> ActionTerms:
    """Return the terms of int64 actions [*B] under softmax(logit [*B, N]).

    For a multi-discrete action (K logits with K actions [B] or [B, 1], or one [B, K]), they are sums over its
    independent parts. A logit of minus infinity is an impossible action.

    Example:
        >>> terms = categorical_terms(torch.zeros(1, 4), torch.tensor([2]))
        >>> [round(term.exp().item(), 2) for term in terms]
        [0.25, 4.0]
    """
    if not isinstance(logit, Tensor):
        parts = action.unbind(-1) if isinstance(action, Tensor) else [part.reshape(-1) for part in action]
        terms = [categorical_terms(head, part) for head, part in zip(logit, parts, strict=True)]
        return ActionTerms(
            log_prob=torch.stack([term.log_prob for term in terms]).sum(0),
            entropy=torch.stack([term.entropy for term in terms]).sum(0),
        )
    log_prob = torch.log_softmax(logit, -1)
    if action.dim() == logit.dim():
        action = action.squeeze(-1)
    chosen = log_prob.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
    # 0 log 0 = 0, and no NaN in its gradient.
    finite = log_prob.clamp(min=torch.finfo(log_prob.dtype).min)
    return ActionTerms(chosen, -(finite.exp() * finite).sum(-1))


def mu_and_sigma(logit: Mapping[str, Tensor] | Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the parameters of a Gaussian, given as `{'mu', 'sigma'}` or as the pair; sigma [A] serves every row."""
    parts: Any = logit
    mu, sigma = (parts["mu"], parts["sigma"]) if is_mapping(parts) else (parts[0], parts[1])
    return mu, (sigma if sigma.shape == mu.shape else sigma.expand_as(mu))


def gaussian_terms(mu_sigma: Mapping[str, Tensor] | Sequence[Tensor], action: Tensor) -> ActionTerms:
    """Return the terms of real-valued actions [*B, A] under independent Gaussians.

    `mu_sigma` is `{'mu', 'sigma'}` or the pair, both [*B, A]. One-dimensional actions may be [*B].

    Example:
        >>> terms = gaussian_terms({"mu": torch.zeros(1, 2), "sigma": torch.ones(1, 2)}, torch.zeros(1, 2))
        >>> round(terms.log_prob.item(), 4), round(terms.entropy.item(), 4)
        (-1.8379, 2.8379)
    """
    mu, sigma = mu_and_sigma(mu_sigma)
    if action.dim() < mu.dim():
        action = action.unsqueeze(-1)
    log_sigma = sigma.log()
    deviation = (action - mu) / sigma
    log_prob = (-0.5 * deviation.square() - log_sigma - _HALF_LOG_2PI).sum(-1)
    return ActionTerms(log_prob, (log_sigma + (0.5 + _HALF_LOG_2PI)).sum(-1))


class SquashedSample(NamedTuple):
    """Squashed Gaussian actions and their log-probabilities."""

    action: Tensor  # [*B, A], in (-1, 1)
    log_prob: Tensor  # [*B]


def squashed_gaussian_sample(mu_sigma: Mapping[str, Tensor] | Sequence[Tensor], noise: Tensor) -> SquashedSample:
    """Return actions tanh(mu + sigma noise) [*B, A] and their log-probabilities [*B], differentiable by mu and sigma.

    log p = log N(u; mu, sigma) - sum log(1 - tanh(u)^2), by the change of variables of
    https://arxiv.org/abs/1812.05905, appendix C. The last term is 2 (log 2 - u - softplus(-2 u)), which is exact where
    tanh(u) rounds to 1.

    Args:
        mu_sigma: `{'mu', 'sigma'}` or the pair.
        noise: [*B, A], sampled from a standard Gaussian.

    Example:
        >>> sample = squashed_gaussian_sample((torch.zeros(1, 1), torch.ones(1, 1)), noise=torch.full((1, 1), 20.0))
        >>> sample.action.item(), round(sample.log_prob.item(), 3)
        (1.0, -162.305)
    """
    mu, sigma = mu_and_sigma(mu_sigma)
    u = mu + sigma * noise
    log_slope = 2 * (_LOG_2 - u - softplus(-2 * u))
    log_prob = -0.5 * noise.square() - sigma.log() - _HALF_LOG_2PI - log_slope
    return SquashedSample(torch.tanh(u), log_prob.sum(-1))


def squashed_gaussian_log_prob(mu_sigma: Mapping[str, Tensor] | Sequence[Tensor], action: Tensor) -> Tensor:
    """Return the log-probabilities [*B] of given actions [*B, A] = tanh(u), where u is from Normal(mu, sigma).

    Actions are clipped to a distance of 1e-3 from the bounds, where u is infinite.

    Example:
        >>> squashed_gaussian_log_prob((torch.zeros(1, 1), torch.ones(1, 1)), torch.zeros(1, 1))
        tensor([-0.9189])
    """
    mu, sigma = mu_and_sigma(mu_sigma)
    inside = action.clamp(-1 + _BOUND_MARGIN, 1 - _BOUND_MARGIN)
    noise = (torch.atanh(inside) - mu) / sigma
    log_prob = -0.5 * noise.square() - sigma.log() - _HALF_LOG_2PI - torch.log1p(-inside.square())
    return log_prob.sum(-1)
