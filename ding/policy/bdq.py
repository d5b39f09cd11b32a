"""Branching dueling Q-learning, for several simultaneous actions."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ding.policy.dqn import DQNPolicy, Head, TDError
from ding.rl_utils.td import bdq_nstep_td_error, q_nstep_td_data
from ding.utils.batch_methods import accepts_pieces
from ding.utils.config_helper import Setting, Settings, integer
from ding.utils.data.samples import Column, Items, Kind, like, node_items, pack, rows_of, table_of
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("bdq")
class BDQPolicy(DQNPolicy):
    """BDQ (https://arxiv.org/abs/1711.08946): an action [D] chooses one bin in each of D branches.

    The mean value of each branch is logged as `q_value_b_<branch>`.

    Example:
        >>> cfg = BDQPolicy.default_config()
        >>> cfg.model.update(obs_shape=4, num_branches=2, action_bins_per_branch=5)
        >>> policy = BDQPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)}, eps=0.1)[0]["action"].shape
        torch.Size([2])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "bdq",
            "model.num_branches": Setting(rule=integer(1), doc="Number of branches, the dimensions of an action."),
            "model.action_bins_per_branch": Setting(rule=integer(1), doc="Number of bins of each branch."),
        },
        DQNPolicy.settings,
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "bdq", ["ding.model.template.q_learning"]

    def _monitor_vars_learn(self) -> list[str]:
        branches = self._cfg.model.get("num_branches", 1)
        return ["cur_lr", "total_loss", "q_value", *[f"q_value_b_{i}" for i in range(branches)]]

    def _head_error(self, head: Head) -> TDError:
        """Return the loss, the error [B] and values to log; see `DQNPolicy`. The error is the mean over the branches.

        All branches have the target r + gamma (1 - done) mean_d q'_d(s', argmax_a q_d(s', a)).
        """
        q, next_q = head.values("logit")
        data = q_nstep_td_data(q, next_q, head.action.view(q.shape[:2]), head.next_action, *head.outcome)
        loss, error = bdq_nstep_td_error(
            data, self._gamma, self._nstep, value_gamma=head.batch.get("value_gamma"), criterion=self._criterion
        )
        return loss, error, {f"q_value_b_{i}": branch.mean() for i, branch in enumerate(q.detach().unbind(1))}

    @accepts_pieces
    def _get_train_sample(self, transitions: Items) -> Any:
        """Return n-step samples whose action is one tensor [D], even if a random policy gave a list."""
        table = table_of(transitions)
        if table is None:
            joined = [{**transition, "action": _joined(transition["action"])} for transition in rows_of(transitions)]
            return super()._get_train_sample(joined)
        action = table.columns["action"]
        if not isinstance(action, Column) or action.kind is not Kind.TENSOR or action.steps:
            table = table.with_columns(action=pack([_joined(item) for item in node_items(action)]))
            transitions = like(transitions, table)
        return super()._get_train_sample(transitions)


def _joined(action: Any) -> Tensor:
    return action if isinstance(action, Tensor) else torch.cat(list(action))
