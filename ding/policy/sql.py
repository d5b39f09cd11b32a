"""Soft Q-learning of discrete actions."""

from __future__ import annotations

from typing import Any, ClassVar

from ding.policy.dqn import DQNPolicy, Head, TDError, legal_logit
from ding.policy.settings import positive
from ding.rl_utils.td import q_nstep_sql_td_error, q_nstep_td_data
from ding.utils.config_helper import Setting, Settings
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("sql")
class SQLPolicy(DQNPolicy):
    """Soft Q-learning (https://arxiv.org/abs/1702.08165): the next value is alpha log sum_a exp(q'(s', a) / alpha).

    While collecting, actions are drawn from softmax(q / alpha), or uniformly with probability epsilon; evaluation is
    greedy.

    Example:
        >>> import torch
        >>> cfg = SQLPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = SQLPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)}, eps=0.1)[0]["action"].shape
        torch.Size([1])
    """

    settings: ClassVar[Settings] = Settings(
        {"type": "sql", "learn.alpha": Setting(0.1, positive, "Temperature.")}, DQNPolicy.settings
    )

    _collect_wrapper = "eps_greedy_multinomial_sample"

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss", "record_value_function"]

    def _head_error(self, head: Head) -> TDError:
        """Return loss and error for the target r + gamma (1 - done) alpha log sum_a exp(q'(s', a) / alpha)."""
        values = head.output["logit"], legal_logit(head.next_output)
        loss, error, soft_value = q_nstep_sql_td_error(
            q_nstep_td_data(*values, head.action, head.next_action, *head.outcome),
            self._gamma,
            self._cfg.learn.alpha,
            self._nstep,
            value_gamma=head.batch.get("value_gamma"),
            criterion=self._criterion,
        )
        return loss, error, {"record_value_function": soft_value.mean()}

    @property
    def _collect_kwargs(self) -> dict[str, Any]:  # type: ignore[override]
        """The arguments for sampling from softmax(q / alpha), or uniformly with probability `eps`."""
        return {"alpha": self._cfg.learn.alpha}
