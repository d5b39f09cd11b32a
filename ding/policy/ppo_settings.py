"""What the settings of PPO may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding.policy.action_kinds import ACTION_KINDS
from ding.policy.settings import positive
from ding.rl_utils.ppo import KL_TYPES
from ding.torch_utils.optimizer_helper import CLIP_TYPES
from ding.utils.config_helper import Rule, boolean, instance_of, integer, number, one_of


def above_one(value: Any) -> str | None:
    """A number above 1, or None."""
    return None if value is None or (number()(value) is None and value > 1) else "a number above 1 or None"


PPO_RULES: Mapping[str, Rule] = {
    "priority": one_of(False),
    "priority_IS_weight": one_of(False),
    "recompute_adv": boolean,
    "action_space": one_of(*ACTION_KINDS),
    "nstep_return": boolean,
    "multi_agent": boolean,
    "n_sample": integer(1, optional=True),
    "learn.epoch_per_collect": integer(1),
    "learn.batch_size": integer(1),
    "learn.learning_rate": positive,
    "learn.lr_scheduler": instance_of(Mapping, optional=True),
    "learn.lr_scheduler.epoch_num": integer(1),
    "learn.lr_scheduler.min_lr_lambda": number(0, 1),
    "learn.value_weight": number(0),
    "learn.entropy_weight": number(),
    "learn.clip_ratio": positive,
    "learn.dual_clip": above_one,
    "learn.adv_norm": boolean,
    "learn.value_norm": boolean,
    "learn.ppo_param_init": boolean,
    "learn.grad_clip_type": one_of(*CLIP_TYPES),
    "learn.grad_clip_value": number(0, optional=True),
    "learn.ignore_done": boolean,
    "learn.kl_type": one_of(*KL_TYPES),
    "learn.kl_beta": number(),
    "learn.pretrained_model_path": instance_of(str, optional=True),
    "collect.n_sample": integer(1, optional=True),
    "collect.unroll_len": integer(1),
    "collect.discount_factor": number(0, 1),
    "collect.gae_lambda": number(0, 1),
}


def lr_ratio(scheduler: Mapping[str, Any], epoch: int) -> float:
    """The share of the learning rate after `epoch` collections: linear down to `min_lr_lambda` at `epoch_num`."""
    minimum, epochs = float(scheduler["min_lr_lambda"]), float(scheduler["epoch_num"])
    return max(1.0 - epoch * (1.0 - minimum) / epochs, minimum)
