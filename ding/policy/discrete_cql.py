"""Conservative Q-learning for discrete actions."""

from __future__ import annotations

from typing import ClassVar

from ding.policy.dqn import Head, TDError
from ding.policy.qrdqn import QRDQNPolicy
from ding.rl_utils.returns import weighted_mean
from ding.utils.config_helper import Settings
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("discrete_cql")
class DiscreteCQLPolicy(QRDQNPolicy):
    """CQL(H) (https://arxiv.org/abs/2006.04779) on QR-DQN, with a penalty on actions outside the data set.

    Train it with `serial_pipeline_offline`. The loss is that of QR-DQN plus `min_q_weight` times the mean of
    log sum_a exp q(s, a) - q(s, a of the data). `priority` is the quantile regression loss only.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "discrete_cql",
            "learn.update_per_collect": 1,
            "learn.min_q_weight": 1.0,
        },
        QRDQNPolicy.settings,
    )

    _target_value_name: ClassVar[str] = "q_target"

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss", "q_target", "q_value"]

    def _head_error(self, head: Head) -> TDError:
        loss, error, logged = super()._head_error(head)
        q = head.output["logit"]
        gap = q.logsumexp(-1) - q.gather(-1, head.action.unsqueeze(-1)).squeeze(-1)
        return loss + self._cfg.learn.min_q_weight * weighted_mean(gap, head.batch["weight"]), error, logged
