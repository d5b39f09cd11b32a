"""Reward models: rewards that are learned."""

from ding.reward_model.base_reward_model import BaseRewardModel

__all__ = ["BaseRewardModel"]
