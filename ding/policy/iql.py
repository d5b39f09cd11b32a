"""Implicit Q-learning, for data sets."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding.policy.q_actor_critic import CriticTerms, QActorCriticPolicy, q_values, smaller
from ding.policy.sac import SACPolicy, SoftActorCriticPolicy, shrink_gaussian_heads
from ding.rl_utils.log_prob import squashed_gaussian_log_prob
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.config_helper import ConfigError, Setting, Settings, number, one_of, positive
from ding.utils.registry_factory import POLICY_REGISTRY

# Upper bounds of the advantage weights: with `learn.beta`, as in DI-engine, and with `learn.inverse_temperature`, as in
# the paper.
_MAX_WEIGHT = 20.0
_MAX_WEIGHT_OF_PAPER = 100.0


@POLICY_REGISTRY.register("iql")
class IQLPolicy(QActorCriticPolicy):
    """IQL (https://arxiv.org/abs/2110.06169): expectile values, and an actor by advantage-weighted regression.

    Train it with `serial_pipeline_offline`. The critics are only evaluated on actions of the data set. Actions are tanh
    of a Gaussian, in (-1, 1).

    Example:
        >>> cfg = IQLPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 3, 1
        >>> policy = IQLPolicy(cfg, enable_field=["eval"])
        >>> policy.eval_mode.forward({0: torch.zeros(3)})[0]["action"].shape
        torch.Size([1])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "iql",
            "random_collect_size": 10000,
            "model.twin_critic": True,
            "model.action_space": Setting("reparameterization", one_of("reparameterization")),
            "model.actor_head_hidden_size": 512,
            "model.actor_head_layer_num": 3,
            "model.critic_head_hidden_size": 512,
            "model.critic_head_layer_num": 2,
            "learn.learning_rate_q": Setting(3e-4, doc="Learning rate of the critics and the values."),
            "learn.learning_rate_policy": 3e-4,
            "learn.init_w": 3e-3,
            "learn.tau": Setting(0.7, number(0, 1), "Expectile of the action values that is the state value."),
            "learn.beta": Setting(
                1.0, positive, "Temperature of the advantage weights exp(advantage / beta), which are at most 20."
            ),
            "learn.inverse_temperature": Setting(
                None,
                number(0, optional=True),
                "The paper's beta, instead of `beta`: weights are exp(inverse_temperature * advantage), at most 100.",
            ),
        },
        QActorCriticPolicy.settings,
    )
    has_discrete_actions: ClassVar[bool | None] = False
    model_type: ClassVar[tuple[str, str]] = ("continuous_qvac", "ding.model.template.qac")
    _optimizer_names = SoftActorCriticPolicy._optimizer_names
    _optional_parts: ClassVar[tuple[str, ...]] = ("target_model",)
    _collect_wrapper = SACPolicy._collect_wrapper
    _eval_wrapper = SACPolicy._eval_wrapper

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        if learns:  # before rank 0 broadcasts its parameters
            shrink_gaussian_heads(model, self._cfg.learn.init_w)
        super()._set_up_model(model, learns)

    def _monitor_vars_learn(self) -> list[str]:
        names = ["cur_lr_q", "cur_lr_p", "total_loss", "critic_loss", "value_loss", "policy_loss", "td_error"]
        names += ["q_value", "value", "advantage_weight"]
        return [*names, "twin_critic_loss"] if self._has_twin_critic else names

    # --- learn ---

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        self._optimizer_q = Adam(self._part("critic").parameters(), lr=learn.learning_rate_q)
        self._optimizer_policy = Adam(self._part("actor").parameters(), lr=learn.learning_rate_policy)
        if learn.get("inverse_temperature") is not None and learn.beta != IQLPolicy.config["learn"]["beta"]:
            raise ConfigError(
                f"policy.learn.beta = {learn.beta} and policy.learn.inverse_temperature = {learn.inverse_temperature} "
                "are not allowed together: weights are exp(advantage / beta) or exp(inverse_temperature * advantage)"
            )

    def _critic_terms(self, batch: dict[str, Any]) -> CriticTerms:
        """Return the terms of critics and values, and keep the advantages for the actor."""
        inputs = {"obs": batch["obs"], "action": batch["action"]}
        with torch.no_grad():
            target_q = smaller(q_values(self._target_model.forward(inputs, mode="compute_critic")))
            next_value = self._model(batch["next_obs"], mode="compute_value")["v_value"]
        output = self._model(inputs, mode="compute_critic")
        q, value = q_values(output), output["v_value"]
        losses, error = self._critic_loss(q, next_value, batch)
        losses["value_loss"] = expectile_loss(target_q - value, self._cfg.learn.tau)
        batch["advantage"] = (target_q - value).detach()
        return CriticTerms(losses, error, {"q_value": q[0].mean(), "value": value.mean()})

    def _update_actor(self, batch: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        beta, inverse = self._cfg.learn.beta, self._cfg.learn.get("inverse_temperature")
        scaled = batch["advantage"] / beta if inverse is None else inverse * batch["advantage"]
        weight = scaled.exp().clamp(max=_MAX_WEIGHT if inverse is None else _MAX_WEIGHT_OF_PAPER)
        log_prob = squashed_gaussian_log_prob(
            self._model(batch["obs"], mode="compute_actor")["logit"], batch["action"].reshape(len(weight), -1)
        )
        loss = -(weight * log_prob).mean()
        self._step(loss, self._optimizer_policy)
        return {"policy_loss": loss}, {"advantage_weight": weight.mean()}


def expectile_loss(difference: Tensor, tau: float) -> Tensor:
    """Return the mean of |tau - [d < 0]| d^2, minimal if the subtrahend of `difference` is the `tau` expectile."""
    return ((tau - (difference < 0).to(difference.dtype)).abs() * difference.square()).mean()
