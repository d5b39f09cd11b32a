"""Munchausen DQN: Q-learning with the log-policy added to the reward."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ding.policy.dqn import DQNPolicy, Head, TDError, legal_logit
from ding.policy.settings import positive
from ding.rl_utils.td import m_q_1step_td_data, m_q_1step_td_error
from ding.utils.config_helper import Setting, Settings, number, one_of
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("mdqn")
class MDQNPolicy(DQNPolicy):
    """Munchausen DQN (https://arxiv.org/abs/2007.14430).

    Returns are one-step. Logged are `action_gap`, the difference between the two best values of the target network, and
    `clip_frac`, the fraction of samples whose log-policy is clipped.

    Example:
        >>> cfg = MDQNPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> MDQNPolicy(cfg, enable_field=["learn"]).learn_mode.monitor_vars()
        ['cur_lr', 'total_loss', 'q_value', 'action_gap', 'clip_frac']
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "mdqn",
            "entropy_tau": Setting(0.03, positive, "Temperature of the policy, softmax(q / entropy_tau)."),
            "m_alpha": Setting(0.9, number(0, 1), "Weight of the log-policy that is added to the reward."),
            "nstep": Setting(rule=one_of(1)),
            "collect.n_sample": 4,
        },
        DQNPolicy.settings,
    )

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss", "q_value", "action_gap", "clip_frac"]

    def _adam_options(self) -> dict[str, Any]:
        return {"eps": 3.125e-4}

    def _forward_networks(self, batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
        output, next_output, next_action = super()._forward_networks(batch)
        with torch.no_grad():
            output["target_logit"] = self._target_model.forward(batch["obs"])["logit"]
        return output, next_output, next_action

    def _head_error(self, head: Head) -> TDError:
        """Return the loss, the error and values to log for the Munchausen target.

        It is r + alpha [tau log pi(a|s)] + gamma (1 - done) sum_a' pi(a'|s') (q' - tau log pi(a'|s')).
        """
        reward, done, weight = head.outcome
        target_q = legal_logit({**head.output, "logit": head.output["target_logit"]})
        q, next_q = head.output["logit"], legal_logit(head.next_output)
        data = m_q_1step_td_data(q, target_q, next_q, head.action, reward.squeeze(0), done, weight)
        loss, error, action_gap, clipped = m_q_1step_td_error(
            data, self._gamma, self._cfg.entropy_tau, self._cfg.m_alpha, self._criterion
        )
        return loss, error, {"action_gap": action_gap, "clip_frac": clipped.mean()}
