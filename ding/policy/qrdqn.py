"""QR-DQN: Q-learning of the quantiles of values."""

from __future__ import annotations

from typing import ClassVar

from ding.policy.dqn import DQNPolicy, Head, TDError
from ding.rl_utils.distributional import qrdqn_nstep_td_data, qrdqn_nstep_td_error
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, one_of
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("qrdqn")
class QRDQNPolicy(DQNPolicy):
    """QR-DQN (https://arxiv.org/abs/1710.10044), with the double-Q choice of the next action.

    `priority` is the quantile regression loss of each sample.

    Example:
        >>> import torch
        >>> cfg = QRDQNPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = QRDQNPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)}, eps=0.1)[0]["q"].shape
        torch.Size([2, 32])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "qrdqn",
            "model.num_quantiles": NO_DEFAULT,
            "learn.criterion": Setting(rule=one_of("mse")),
        },
        DQNPolicy.settings,
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "qrdqn", ["ding.model.template.q_learning"]

    def _head_error(self, head: Head) -> TDError:
        """Regress quantiles at fixed fractions: the error is summed over them, averaged over target quantiles."""
        reward, done, weight = head.outcome
        actions, fractions = (head.action, head.next_action), head.output["tau"]
        data = qrdqn_nstep_td_data(*head.values("q"), *actions, reward, done, fractions, weight)
        loss, error = qrdqn_nstep_td_error(data, self._gamma, self._nstep, head.batch.get("value_gamma"))
        return loss, error, {}
