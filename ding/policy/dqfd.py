"""Deep Q-learning from demonstrations."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ding.policy.common_utils import bootstraps
from ding.policy.dqn import DQNPolicy, HeadInputs, TDError
from ding.policy.settings import positive
from ding.rl_utils.td import dqfd_nstep_td_data, dqfd_nstep_td_error
from ding.utils.batch_methods import accepts_pieces
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, integer, number
from ding.utils.data.samples import Column, Items, Kind, like, rows_of, table_of, values_of
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("dqfd")
class DQFDPolicy(DQNPolicy):
    """DQfD (https://arxiv.org/abs/1704.03732): double DQN with one-step and n-step losses and an expert margin loss.

    Train it with `serial_pipeline_dqfd`, which marks the expert's samples with `is_expert` = 1; all others count as the
    policy's own.

    Example:
        >>> cfg = DQFDPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = DQFDPolicy(cfg, enable_field=["collect"])
        >>> steps = [dict(obs=i, next_obs=i + 1, reward=torch.ones(1), done=i == 1) for i in range(2)]
        >>> [(s["next_obs"], s["next_obs_1"], s["done_1"]) for s in policy.collect_mode.get_train_sample(steps)]
        [(2, 1, False), (2, 2, True)]
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "dqfd",
            "priority": True,
            "priority_IS_weight": True,
            "discount_factor": 0.99,
            "nstep": 10,
            "model.action_shape": NO_DEFAULT,
            "learn.lambda1": Setting(1.0, number(0), "Weight of the n-step loss."),
            "learn.lambda2": Setting(1.0, number(0), "Weight of the margin loss."),
            "learn.lambda3": Setting(1e-5, number(0), "Weight decay of the optimizer."),
            "learn.margin_function": Setting(0.8, positive, "Margin between the demonstrated action and all others."),
            "learn.per_train_iter_k": Setting(10, integer(0), "Number of iterations on demonstrations only."),
            "learn.expert_replay_buffer_size": Setting(rule=integer(1), doc="Capacity for demonstrations."),
            "collect.pho": Setting(0.5, number(0, 1), "Fraction of demonstrations in a batch."),
        },
        DQNPolicy.settings,
    )

    _learn_keys = (*DQNPolicy._learn_keys, "next_obs_1", "done_1")

    def _adam_options(self) -> dict[str, Any]:
        return {**super()._adam_options(), "weight_decay": self._cfg.learn.lambda3, "optim_type": "adamw"}

    def _prepare(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super()._prepare(data)
        batch["next_obs_1"] = self._model_input(batch["next_obs_1"])
        done = batch["done"]
        batch["done_1"] = torch.zeros_like(done) if self._cfg.learn.ignore_done else batch["done_1"].to(done.dtype)
        is_expert = values_of(data, "is_expert")
        marks = [None] * len(done) if is_expert is None else is_expert
        # A sample without the flag is not an expert's.
        batch["is_expert"] = torch.tensor([0.0 if mark is None else float(mark) for mark in marks]).to(done)
        return batch

    def _forward_networks(self, batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
        """Forward as DQN does, with `one_step` in `next_output`: target values and greedy actions one step later."""
        output, next_output, next_action = super()._forward_networks(batch)
        with torch.no_grad():
            q = self._target_model.forward(batch["next_obs_1"])["logit"]
            action = self._learn_model.forward(batch["next_obs_1"])["action"]
        return output, {**next_output, "one_step": (q, action)}, next_action

    def _head_error(self, head: HeadInputs) -> TDError:
        """Return lambda1 * n-step + one-step + lambda2 * margin loss, and the error; see `dqfd_nstep_td_error`."""
        learn, batch = self._cfg.learn, head.batch
        next_q, next_action = head.next_output["one_step"]
        data = dqfd_nstep_td_data(
            q=head.output["logit"],
            next_n_q=head.next_output["logit"],
            action=head.action.view(-1),
            next_n_action=head.next_action,
            reward=batch["reward"],
            done=batch["done"],
            done_one_step=batch["done_1"],
            weight=batch["weight"],
            new_n_q_one_step=next_q,
            next_n_action_one_step=next_action,
            is_expert=batch["is_expert"],
        )
        loss, error, _ = dqfd_nstep_td_error(
            data,
            self._gamma,
            learn.lambda1,
            learn.lambda2,
            learn.margin_function,
            nstep=self._nstep,
            value_gamma=batch.get("value_gamma"),
            criterion=self._criterion,
        )
        return loss, error, {}

    @accepts_pieces
    def _get_train_sample(self, transitions: Items) -> Any:
        """Return n-step samples with `next_obs_1`, the next observation, and `done_1`, whether its value is 0."""
        if not transitions:
            return []
        ends = ~bootstraps(transitions)
        table = table_of(transitions)
        if table is not None:
            table = table.with_columns(next_obs_1=table.columns["next_obs"], done_1=Column(Kind.BOOL, ends))
            transitions = like(transitions, table)
        else:
            transitions = [
                {**transition, "next_obs_1": transition["next_obs"], "done_1": end}
                for transition, end in zip(rows_of(transitions), ends.tolist(), strict=True)
            ]
        return super()._get_train_sample(transitions)
