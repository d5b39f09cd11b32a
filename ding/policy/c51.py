"""C51 and Rainbow: Q-learning of categorical value distributions."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ding.policy.dqn import DQNPolicy, HeadInputs, TDError, renew_noise
from ding.rl_utils.distributional import dist_nstep_td_data, dist_nstep_td_error
from ding.utils.config_helper import Setting, Settings
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("c51")
class C51Policy(DQNPolicy):
    """C51 (https://arxiv.org/abs/1707.06887), with the double-Q choice of the next action.

    `priority` is the cross-entropy of each sample.

    Example:
        >>> import torch
        >>> cfg = C51Policy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = C51Policy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)}, eps=0.1)[0]["distribution"].shape
        torch.Size([2, 51])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "c51",
            "model.v_min": -10,
            "model.v_max": 10,
            "model.n_atom": 51,
        },
        DQNPolicy.settings,
        without=["learn.criterion"],
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "c51dqn", ["ding.model.template.q_learning"]

    def _head_error(self, head: HeadInputs) -> TDError:
        """Return the cross-entropy to the distribution of r + gamma (1 - done) z', with z' of the next action."""
        model, batch = self._cfg.model, head.batch
        dist, next_dist = head.output["distribution"], head.next_output["distribution"]
        data = dist_nstep_td_data(
            dist, next_dist, head.action, head.next_action, batch["reward"], batch["done"], batch["weight"]
        )
        loss, error = dist_nstep_td_error(
            data, self._gamma, model.v_min, model.v_max, model.n_atom, self._nstep, batch.get("value_gamma")
        )
        return loss, error, {}


@POLICY_REGISTRY.register("rainbow")
class RainbowDQNPolicy(C51Policy):
    """Rainbow (https://arxiv.org/abs/1710.02298): C51 with noisy networks, n-step returns and priorities.

    The noise of the networks is resampled in each iteration, and that of the online network once more for choosing the
    next action. Collecting uses the current noise, evaluation none.

    Example:
        >>> cfg = RainbowDQNPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = RainbowDQNPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)}, eps=0.0)[0]["action"].shape
        torch.Size([1])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "rainbow",
            "priority": True,
            "priority_IS_weight": True,
            "discount_factor": 0.99,
            "nstep": 3,
            "noisy_net": True,
            "learn.update_per_collect": 1,
            "learn.batch_size": 32,
            "other.eps.start": 0.05,
            "other.eps.end": 0.05,
            "other.eps.decay": 100000,
            "other.replay_buffer.replay_buffer_size": 100000,
            "other.replay_buffer.alpha": Setting(0.6, doc="Exponent of the priorities."),
            "other.replay_buffer.beta": Setting(0.4, doc="Initial exponent of the importance weights."),
            "other.replay_buffer.anneal_step": Setting(100000, doc="Number of draws until `beta` is 1."),
        },
        C51Policy.settings,
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "rainbowdqn", ["ding.model.template.q_learning"]

    def _forward_networks(self, batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
        # The noise for the gradient is sampled last: it must not change until backward.
        with torch.no_grad():
            next_action = self._learn_model.forward(batch["next_obs"])["action"]
            next_output = self._target_model.forward(batch["next_obs"])
        if self._cfg.noisy_net and self._model.training:
            renew_noise(self._model)
        return self._model(batch["obs"]), next_output, next_action
