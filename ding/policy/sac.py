"""Soft actor-critic for continuous actions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding.model.common.head import ReparameterizationHead
from ding.model.wrapper.model_wrappers import DeterministicSampleWrapper, ReparamSampleWrapper, register_wrapper
from ding.policy.q_actor_critic import CriticTerms, QActorCriticPolicy, q_values, smaller
from ding.rl_utils.log_prob import squashed_gaussian_sample
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.config_helper import ConfigError, Setting, Settings, boolean, number, one_of
from ding.utils.registry_factory import POLICY_REGISTRY


class Temperature:
    """Weight alpha of the entropy in soft actor-critic: fixed, or learned so that the entropy reaches a target.

    With `log_space` its logarithm is learned, otherwise alpha itself, clipped at 0. See
    https://arxiv.org/abs/1812.05905, section 5.

    Args:
        learn: the section `learn` of a policy: `alpha` (the initial value), `auto_alpha`, `log_space` and
            `learning_rate_alpha`.
        target_entropy: the target of the entropy.

    Raises:
        ConfigError: `alpha` is not positive but its logarithm is learned.

    Example:
        >>> learn = {"alpha": 0.5, "auto_alpha": True, "log_space": True, "learning_rate_alpha": 0.1}
        >>> temperature = Temperature(learn, target_entropy=-1.0)
        >>> round(temperature.value.item(), 2), round(temperature.loss(torch.tensor([2.0])).item(), 2)
        (0.5, 0.69)
    """

    def __init__(self, learn: Mapping[str, Any], target_entropy: float, device: str = "cpu") -> None:
        start = float(learn["alpha"])
        self.is_learned = bool(learn["auto_alpha"])
        self.target_entropy = target_entropy
        self._log_space = self.is_learned and bool(learn["log_space"])
        if self._log_space:
            if start <= 0:
                raise ConfigError(f"learn.alpha = {start} is not allowed with learn.log_space; it must be above 0")
            start = math.log(start)
        self.parameter = torch.tensor([start], device=device, requires_grad=self.is_learned)
        self.optimizer = Adam([self.parameter], lr=learn["learning_rate_alpha"]) if self.is_learned else None

    @property
    def value(self) -> Tensor:
        """The value alpha [1], without gradient."""
        parameter = self.parameter.detach()
        return parameter.exp() if self._log_space else parameter.clone()

    def loss(self, log_prob: Tensor) -> Tensor:
        """Return the scalar loss that raises alpha while the entropy, the mean of -log_prob [B], is too low."""
        return -(self.parameter * (log_prob.detach() + self.target_entropy).mean()).sum()

    @torch.no_grad()
    def keep_in_range(self) -> None:
        """Clip alpha at 0; call it after each optimizer step."""
        if not self._log_space:
            self.parameter.clamp_(min=0)

    def learned(self) -> dict[str, Tensor]:
        """Return the parameter as `{'log_alpha': [1]}` or `{'alpha': [1]}`, or an empty dict if alpha is fixed."""
        return {"log_alpha" if self._log_space else "alpha": self.parameter} if self.is_learned else {}


class SoftActorCriticPolicy(QActorCriticPolicy):
    """Base of `SACPolicy` and `DiscreteSACPolicy`: update order, temperature, settings and state.

    A subclass defines `_critic_terms`, `_policy_terms` and `_target_entropy`.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "random_collect_size": 10000,
            "transition_with_policy_data": True,
            "model.twin_critic": True,
            "learn.learning_rate_q": 3e-4,
            "learn.learning_rate_policy": 3e-4,
            "learn.learning_rate_alpha": 3e-4,
            "learn.alpha": Setting(0.2, number(0), "Weight of the entropy, at first with `auto_alpha`."),
            "learn.auto_alpha": Setting(True, boolean, "Learn the weight of the entropy."),
            "learn.log_space": Setting(True, boolean, "Learn the logarithm of alpha."),
            "learn.target_entropy": Setting(None, number(optional=True), "Target of the entropy, with `auto_alpha`."),
            "learn.init_w": 3e-3,
            "collect.n_sample": 1,
            "collect.collector_logit": Setting(False, boolean, "Store the actor's output in samples, as 'logit'."),
            "other.replay_buffer.replay_buffer_size": 1000000,
        },
        QActorCriticPolicy.settings,
    )

    _optimizer_names: ClassVar[Mapping[str, tuple[str, str]]] = {
        "_optimizer_q": ("optimizer_q", "cur_lr_q"),
        "_optimizer_policy": ("optimizer_policy", "cur_lr_p"),
    }
    _optional_parts: ClassVar[tuple[str, ...]] = ("log_alpha", "alpha")

    def _monitor_vars_learn(self) -> list[str]:
        names = ["total_loss", "critic_loss", "policy_loss", "cur_lr_q", "cur_lr_p", "alpha", "td_error"]
        if self._has_twin_critic:
            names.append("twin_critic_loss")
        if self._cfg.learn.auto_alpha:
            names.append("alpha_loss")
        return names

    # --- learn ---

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        self._optimizer_q = Adam(self._part("critic").parameters(), lr=learn.learning_rate_q)
        self._optimizer_policy = Adam(self._part("actor").parameters(), lr=learn.learning_rate_policy)
        goal = learn.target_entropy if learn.auto_alpha else 0.0
        if goal is None:
            goal = self._target_entropy()
        self._temperature = Temperature(learn, float(goal), self._device)

    def _target_entropy(self) -> float:
        """Return the default target entropy."""
        raise NotImplementedError

    def _action_shape(self) -> Any:
        shape = self._cfg.model.get("action_shape")
        if shape is None:
            raise ConfigError(
                "set policy.learn.target_entropy, or policy.model.action_shape, from which the default follows"
            )
        return shape

    def _update_actor(self, batch: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Take one step of the actor, and one of the temperature if it is learned."""
        loss, log_prob, logged = self._policy_terms(batch, self._temperature.value)
        self._step(loss, self._optimizer_policy)
        losses, temperature = {"policy_loss": loss}, self._temperature
        if temperature.optimizer is not None:
            losses["alpha_loss"] = temperature.loss(log_prob)
            self._backward_and_step(losses["alpha_loss"], temperature.optimizer)
            temperature.keep_in_range()
        return losses, {**logged, "alpha": temperature.value.squeeze()}

    def _policy_terms(self, batch: dict[str, Any], alpha: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the actor's loss, the log-probability of its actions [B] (a mean), and scalars to log."""
        raise NotImplementedError

    def _target_alpha(self) -> Tensor:
        """Return the weight [1] of the entropy in the targets of the critics."""
        return self._temperature.value

    def _learn_parts(self) -> dict[str, Any]:
        temperature = self._temperature
        optimizer = {} if temperature.optimizer is None else {"optimizer_alpha": temperature.optimizer}
        return {**super()._learn_parts(), **optimizer, **temperature.learned()}


@POLICY_REGISTRY.register("sac")
class SACPolicy(SoftActorCriticPolicy):
    """SAC (https://arxiv.org/abs/1812.05905) with one or two critics, and a temperature that may be learned.

    Actions are tanh of a Gaussian, in (-1, 1).

    Example:
        >>> cfg = SACPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 3, 1
        >>> policy = SACPolicy(cfg, enable_field=["collect"])
        >>> output = policy.collect_mode.forward({0: torch.zeros(3), 3: torch.zeros(3)})
        >>> {env_id: out["action"].shape for env_id, out in output.items()}
        {0: torch.Size([1]), 3: torch.Size([1])}
    """

    settings: ClassVar[Settings] = Settings(
        {"type": "sac", "model.action_space": Setting("reparameterization", one_of("reparameterization"))},
        SoftActorCriticPolicy.settings,
    )
    has_discrete_actions: ClassVar[bool | None] = False
    _collect_wrapper = "squashed_sample"
    _eval_wrapper = "squashed_mean"

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        if learns:  # before rank 0 broadcasts its parameters
            shrink_gaussian_heads(model, self._cfg.learn.init_w)
        super()._set_up_model(model, learns)

    def _monitor_vars_learn(self) -> list[str]:
        return [*super()._monitor_vars_learn(), "target_q_value", "transformed_log_prob"]

    # --- learn ---

    def _target_entropy(self) -> float:
        """Return -1 for each dimension of an action, as in the paper's table 1."""
        shape = self._action_shape()
        return -float(shape if isinstance(shape, int) else math.prod(shape))

    def _critic_terms(self, batch: dict[str, Any]) -> CriticTerms:
        """Return the terms for the target r + gamma (1 - done) (min_i Q'_i(s', a') - alpha log pi(a'|s')), a' ~ pi."""
        with torch.no_grad():
            next_obs = batch["next_obs"]
            next_action, next_log_prob = squashed_gaussian_sample(self._model(next_obs, mode="compute_actor")["logit"])
            next_q = self._target_model.forward({"obs": next_obs, "action": next_action}, mode="compute_critic")
            next_value = smaller(q_values(next_q)) - self._target_alpha() * next_log_prob
        q = self._model({"obs": batch["obs"], "action": batch["action"]}, mode="compute_critic")
        losses, error = self._critic_loss(q_values(q), next_value, batch)
        return CriticTerms(losses, error, {"target_q_value": next_value.mean()})

    def _policy_terms(self, batch: dict[str, Any], alpha: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the terms; the loss is the mean of alpha log pi(a|s) - min_i Q_i(s, a), reparameterized a ~ pi(s)."""
        obs = batch["obs"]
        action, log_prob = squashed_gaussian_sample(self._model(obs, mode="compute_actor")["logit"])
        q = smaller(q_values(self._model({"obs": obs, "action": action}, mode="compute_critic")))
        logged = {"transformed_log_prob": log_prob.mean() + self._temperature.target_entropy}
        return (alpha * log_prob - q).mean(), log_prob, logged

    # --- collect and eval ---

    @property
    def _output_keys(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("action", "logit") if self._cfg.collect.collector_logit else ("action",)


class SquashedSampleWrapper(ReparamSampleWrapper):
    """Wrapper that adds `action`, tanh of a draw from Normal(mu, sigma); `logit` is the pair or `{'mu', 'sigma'}`."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        output = super().forward(*args, **kwargs)
        output["action"] = torch.tanh(output["action"])
        return output


class SquashedMeanWrapper(DeterministicSampleWrapper):
    """Wrapper that returns `{'action': tanh(mu)}`; `logit` is the pair (mu, sigma) or `{'mu', 'sigma'}`."""

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"action": torch.tanh(super().forward(*args, **kwargs)["action"])}


register_wrapper("squashed_sample", SquashedSampleWrapper)
register_wrapper("squashed_mean", SquashedMeanWrapper)


@torch.no_grad()
def shrink_gaussian_heads(model: nn.Module, bound: float) -> None:
    """Initialize the last layers of all Gaussian heads uniformly in [-bound, bound]."""
    for head in model.modules():
        if isinstance(head, ReparameterizationHead):
            for layer in (head.mu, getattr(head, "log_sigma_layer", None)):
                if layer is not None:
                    layer.weight.uniform_(-bound, bound)
                    layer.bias.uniform_(-bound, bound)
