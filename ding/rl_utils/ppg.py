"""The loss of the auxiliary phase of phasic policy gradient (https://arxiv.org/abs/2009.04416)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ding.rl_utils.ppo import ppo_value_data, ppo_value_error


class ppg_data(NamedTuple):
    logit_new: Tensor  # [B, N]
    logit_old: Tensor  # [B, N], before the auxiliary phase
    action: Tensor  # [B] int64; the losses do not look at it
    value_new: Tensor  # [B]
    value_old: Tensor  # [B]
    return_: Tensor  # [B]
    weight: Tensor | None  # [B], of the value loss


class ppg_joint_loss(NamedTuple):
    auxiliary_loss: Tensor
    behavioral_cloning_loss: Tensor


def ppg_joint_error(data: ppg_data, clip_ratio: float = 0.2, use_value_clip: bool = True) -> ppg_joint_loss:
    """The value loss of PPO, and the mean divergence KL(old || new) that keeps the policy where it was, two scalars.

    See `ppo_value_error` for `clip_ratio` and `use_value_clip`.
    """
    auxiliary = ppo_value_error(
        ppo_value_data(data.value_new, data.value_old, data.return_, data.weight), clip_ratio, use_value_clip
    )
    log_old, log_new = _log_probabilities(data.logit_old.detach()), _log_probabilities(data.logit_new)
    cloning = F.kl_div(log_new, log_old, reduction="none", log_target=True).sum(-1).mean()
    return ppg_joint_loss(auxiliary, cloning)


def _log_probabilities(logit: Tensor) -> Tensor:
    # Of an action that a mask forbids in both policies the term is 0, not NaN.
    return torch.log_softmax(logit, dim=-1).clamp(min=torch.finfo(logit.dtype).min)
