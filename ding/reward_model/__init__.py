"""Reward models, which learn rewards."""

from ding.reward_model.base_reward_model import BaseRewardModel

__all__ = ["BaseRewardModel"]
