"""Twin delayed DDPG."""

from __future__ import annotations

from typing import ClassVar

from ding.policy.ddpg import DDPGPolicy
from ding.utils.config_helper import Settings
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("td3")
class TD3Policy(DDPGPolicy):
    """TD3 (https://arxiv.org/abs/1802.09477): DDPG with settings against overestimation by the critic.

    The minimum of two critics is the target, target actions have clipped noise, and the actor takes one step per two
    steps of the critics.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "td3",
            "model.twin_critic": True,
            "learn.actor_update_freq": 2,
            "learn.noise": True,
            "learn.noise_sigma": 0.2,
            "learn.noise_range.min": -0.5,
            "learn.noise_range.max": 0.5,
        },
        DDPGPolicy.settings,
    )
