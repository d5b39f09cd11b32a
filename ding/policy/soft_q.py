"""Soft Q-learning of discrete actions: SQL, Munchausen DQN, and SQN with a learned temperature."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding.policy.base_policy import BatchPolicy
from ding.policy.dqn import DQNPolicy, HeadInputs, TDError, legal_logit
from ding.policy.settings import COMPATIBLE
from ding.policy.training_step import Learned
from ding.rl_utils.returns import weighted_mean
from ding.rl_utils.td import (
    m_q_1step_td_data,
    m_q_1step_td_error,
    q_nstep_sql_td_error,
    q_nstep_td_data,
    q_v_1step_td_data,
    q_v_1step_td_error,
)
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, number, one_of, positive
from ding.utils.module_state import load_parts
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

    def _head_error(self, head: HeadInputs) -> TDError:
        """Return loss and error for the target r + gamma (1 - done) alpha log sum_a exp(q'(s', a) / alpha)."""
        batch, q, next_q = head.batch, head.output["logit"], legal_logit(head.next_output)
        data = q_nstep_td_data(
            q, next_q, head.action, head.next_action, batch["reward"], batch["done"], batch["weight"]
        )
        loss, error, soft_value = q_nstep_sql_td_error(
            data,
            self._gamma,
            self._cfg.learn.alpha,
            self._nstep,
            value_gamma=batch.get("value_gamma"),
            criterion=self._criterion,
        )
        return loss, error, {"record_value_function": soft_value.mean()}

    @property
    def _collect_kwargs(self) -> dict[str, Any]:  # type: ignore[override]
        """The arguments for sampling from softmax(q / alpha), or uniformly with probability `eps`."""
        return {"alpha": self._cfg.learn.alpha}


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
        return {**super()._adam_options(), "eps": 3.125e-4}

    def _forward_networks(self, batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
        output, next_output, next_action = super()._forward_networks(batch)
        with torch.no_grad():
            output["target_logit"] = self._target_model.forward(batch["obs"])["logit"]
        return output, next_output, next_action

    def _head_error(self, head: HeadInputs) -> TDError:
        """Return the loss, the error and values to log for the Munchausen target.

        It is r + alpha [tau log pi(a|s)] + gamma (1 - done) sum_a' pi(a'|s') (q' - tau log pi(a'|s')).
        """
        batch, q, next_q = head.batch, head.output["logit"], legal_logit(head.next_output)
        target_q = legal_logit({**head.output, "logit": head.output["target_logit"]})
        reward = batch["reward"].squeeze(0)
        data = m_q_1step_td_data(q, target_q, next_q, head.action, reward, batch["done"], batch["weight"])
        loss, error, action_gap, clipped = m_q_1step_td_error(
            data, self._gamma, self._cfg.entropy_tau, self._cfg.m_alpha, self._criterion
        )
        return loss, error, {"action_gap": action_gap, "clip_frac": clipped.mean()}


@POLICY_REGISTRY.register("sqn")
class SQNPolicy(BatchPolicy):
    """SQN: soft Q-learning (https://arxiv.org/abs/1702.08165) as soft actor-critic without an actor.

    The policy is softmax(min(q0, q1) / alpha): it defines the bootstrap value and is used for collecting. As in
    https://arxiv.org/abs/1812.05905, alpha is learned so that the entropy of the policy reaches `learn.target_entropy`
    (nats). Both networks learn the same target, from the minimum of the target networks.

    Example:
        >>> cfg = SQNPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = SQNPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)})[0]["action"].shape
        torch.Size([1])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "sqn",
            "priority": False,
            "priority_IS_weight": False,
            "batch_size": NO_DEFAULT,
            "n_sample": NO_DEFAULT,
            "model.action_shape": NO_DEFAULT,
            "learn.update_per_collect": 16,
            "learn.batch_size": 64,
            "learn.learning_rate_q": 0.001,
            "learn.learning_rate_alpha": 0.001,
            "learn.target_theta": 0.005,
            "learn.alpha": Setting(0.2, positive, "Initial temperature."),
            "learn.target_entropy": Setting(0.2, number(), "Target of the policy's entropy."),
            "learn.discount_factor": 0.99,
            "learn.ignore_done": False,
            "collect.unroll_len": 1,
            "collect.n_sample": NO_DEFAULT,
            "eval": {},
            "other.eps.type": Setting("exp", doc=COMPATIBLE),
            "other.eps.start": Setting(1.0, doc=COMPATIBLE),
            "other.eps.end": Setting(0.8, doc=COMPATIBLE),
            "other.eps.decay": Setting(2000, doc=COMPATIBLE),
            "other.replay_buffer.replay_buffer_size": 100000,
        },
        BatchPolicy.settings,
    )
    has_discrete_actions: ClassVar[bool | None] = True

    _log_alpha: Any = None
    _optimizer_names: ClassVar[Mapping[str, tuple[str, str]]] = {
        "_optimizer_q": ("optimizer_q", "cur_lr_q"),
        "_optimizer_alpha": ("optimizer_alpha", "cur_lr_alpha"),
    }
    _optional_parts: ClassVar[tuple[str, ...]] = ("target_model", "log_alpha")
    _collect_wrapper = "multinomial_sample"
    _eval_wrapper = "argmax_sample"

    def default_model(self) -> tuple[str, list[str]]:
        return "sqn", ["ding.model.template.q_learning"]

    def _monitor_vars_learn(self) -> list[str]:
        return ["alpha_loss", "alpha", "entropy", "q_loss", "q_value"]

    # --- learn ---

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._init_importance_weights()
        self._gamma, self._target_entropy = learn.discount_factor, learn.target_entropy
        self._log_alpha = torch.tensor([math.log(learn.alpha)], device=self._device, requires_grad=True)
        self._optimizer_q = Adam(self._model.parameters(), lr=learn.learning_rate_q)
        self._optimizer_alpha = Adam([self._log_alpha], lr=learn.learning_rate_alpha)
        self._init_target(theta=learn.target_theta)
        self._learn_model = self._wrapped("base")

    def _update(self, batch: dict[str, Any]) -> Learned:
        """Take one step of both networks and one of alpha; `priority` is the mean squared error of each sample."""
        alpha = self._log_alpha.detach().exp()
        next_value, entropy = self._soft_value(batch["next_obs"], alpha)
        q0, q1 = self._learn_model.forward(batch["obs"])["q_value"]
        errors = [self._error(q, next_value, batch) for q in (q0, q1)]
        q_loss = weighted_mean(errors[0], batch["weight"]) + weighted_mean(errors[1], batch["weight"])
        self._backward_and_step(q_loss, self._optimizer_q, self._model)
        alpha_loss = (self._log_alpha * (entropy - self._target_entropy)).mean()
        self._backward_and_step(alpha_loss, self._optimizer_alpha)
        values = {
            "q_loss": q_loss,
            "alpha_loss": alpha_loss,
            "entropy": entropy,
            "alpha": self._log_alpha.exp().squeeze(),
            "q_value": (q0.mean() + q1.mean()) / 2,
        }
        histograms = {"[histogram]action_distribution": batch["action"].cpu().numpy()}
        return Learned(values, (errors[0] + errors[1]).detach() / 2, histograms)

    @torch.no_grad()
    def _soft_value(self, next_obs: Any, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value V [B] of the next observations and the policy's mean entropy there, by the target networks.

        V(s') = sum_a pi(a|s') (min q(s', a) - alpha log pi(a|s'))
        """
        q = legal_logit(self._target_model.forward(next_obs))
        log_policy = torch.log_softmax(q / alpha, -1)
        policy = log_policy.exp()
        value = (policy * (q - alpha * log_policy)).sum(-1)
        return value, -(policy * log_policy).sum(-1).mean()

    def _error(self, q: Tensor, next_value: Tensor, batch: dict[str, Any]) -> Tensor:
        """Return the squared error [B] to r + gamma (1 - done) V(s')."""
        data = q_v_1step_td_data(q, next_value, batch["action"].long(), batch["reward"], batch["done"], None)
        return q_v_1step_td_error(data, self._gamma)[1]

    def _learn_parts(self) -> dict[str, Any]:
        return {**super()._learn_parts(), "log_alpha": self._log_alpha}

    # --- collect ---

    def _init_collect(self) -> None:
        if self._log_alpha is None:  # a policy that also learns acts with the learned temperature
            self._log_alpha = torch.tensor([math.log(self._cfg.learn.alpha)], device=self._device)
        super()._init_collect()

    @property
    def _collect_kwargs(self) -> dict[str, Any]:  # type: ignore[override]
        """The arguments for sampling from softmax(min(q0, q1) / alpha); the output also has the pair `q_value`."""
        return {"alpha": self._log_alpha.detach().exp().item()}

    def _state_dict_collect(self) -> dict[str, Any]:
        return {"model": self._collect_model.state_dict(), "log_alpha": self._log_alpha.detach().clone()}

    def _load_state_dict_collect(self, state_dict: dict[str, Any]) -> None:
        parts = {"model": self._collect_model, "log_alpha": self._log_alpha}
        load_parts(parts, state_dict, self._optional_parts)
