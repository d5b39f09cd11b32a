"""Soft actor-critic for continuous and for discrete actions, and CQL for data sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ding.model.common.head import ReparameterizationHead
from ding.model.wrapper.model_wrappers import (
    DeterministicSampleWrapper,
    ReparamSampleWrapper,
    mask_logits,
    register_wrapper,
)
from ding.policy.on_policy_data import take
from ding.policy.q_actor_critic import CriticTerms, QActorCriticPolicy, q_values, smaller
from ding.rl_utils.log_prob import SquashedSample, mu_and_sigma, squashed_gaussian_sample
from ding.rl_utils.td import q_v_1step_td_data, q_v_1step_td_error
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.config_helper import NO_DEFAULT, ConfigError, Setting, Settings, boolean, integer, number, one_of
from ding.utils.random_draws import draw_normal, draw_uniform
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
                "set policy.learn.target_entropy, or policy.model.action_shape, from which the default is computed"
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
        return -float(np.prod(self._action_shape()))

    def _critic_terms(self, batch: dict[str, Any]) -> CriticTerms:
        """Return the terms for the target r + gamma (1 - done) (min_i Q'_i(s', a') - alpha log pi(a'|s')), a' ~ pi."""
        with torch.no_grad():
            next_obs = batch["next_obs"]
            next_action, next_log_prob = self._draw_action(self._model(next_obs, mode="compute_actor")["logit"])
            next_q = self._target_model.forward({"obs": next_obs, "action": next_action}, mode="compute_critic")
            next_value = smaller(q_values(next_q)) - self._target_alpha() * next_log_prob
        q = self._model({"obs": batch["obs"], "action": batch["action"]}, mode="compute_critic")
        losses, error = self._critic_loss(q_values(q), next_value, batch)
        return CriticTerms(losses, error, {"target_q_value": next_value.mean()})

    def _policy_terms(self, batch: dict[str, Any], alpha: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the terms; the loss is the mean of alpha log pi(a|s) - min_i Q_i(s, a), reparameterized a ~ pi(s)."""
        obs = batch["obs"]
        action, log_prob = self._draw_action(self._model(obs, mode="compute_actor")["logit"])
        q = smaller(q_values(self._model({"obs": obs, "action": action}, mode="compute_critic")))
        logged = {"transformed_log_prob": log_prob.mean() + self._temperature.target_entropy}
        return (alpha * log_prob - q).mean(), log_prob, logged

    def _draw_action(self, mu_sigma: Any) -> SquashedSample:
        mu, _ = mu_and_sigma(mu_sigma)
        return squashed_gaussian_sample(mu_sigma, noise=draw_normal(self._rng, mu.shape, like=mu))

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
            for layer in (head.mu, head.log_sigma_layer):
                if layer is not None:
                    layer.weight.uniform_(-bound, bound)
                    layer.bias.uniform_(-bound, bound)


# Target entropy as a fraction of the largest possible entropy.
_ENTROPY_SHARE = 0.98


@POLICY_REGISTRY.register("discrete_sac")
class DiscreteSACPolicy(SoftActorCriticPolicy):
    """SAC for discrete actions (https://arxiv.org/abs/1910.07207), with exact expectations over actions.

    The `action_mask` of a dict observation masks illegal actions, both in acting and in learning.

    Example:
        >>> cfg = DiscreteSACPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = DiscreteSACPolicy(cfg, enable_field=["collect"])
        >>> output = policy.collect_mode.forward({0: torch.zeros(4), 3: torch.zeros(4)}, eps=0.1)
        >>> {env_id: out["action"].shape for env_id, out in output.items()}
        {0: torch.Size([1]), 3: torch.Size([1])}
    """

    settings: ClassVar[Settings] = Settings(
        {"type": "discrete_sac", "model.action_shape": NO_DEFAULT}, SoftActorCriticPolicy.settings
    )
    _output_keys: Sequence[str] = ("action", "logit")
    has_discrete_actions: ClassVar[bool | None] = True
    _collect_wrapper = "eps_greedy_multinomial_sample"
    _eval_wrapper = "argmax_sample"
    model_type: ClassVar[tuple[str, str]] = ("discrete_qac", "ding.model.template.qac")

    def _monitor_vars_learn(self) -> list[str]:
        names = [*super()._monitor_vars_learn(), "target_value", "entropy", "q_value_1"]
        return [*names, "q_value_2"] if self._has_twin_critic else names

    # --- learn ---

    def _target_entropy(self) -> float:
        """Return 0.98 times the entropy of uniformly random actions, as in section 5.1 of the paper."""
        return _ENTROPY_SHARE * math.log(np.prod(self._action_shape()))

    def _policy(self, obs: Any) -> tuple[Tensor, Tensor]:
        """Return the probabilities and log-probabilities of all actions, [B, N]."""
        output = self._model(obs, mode="compute_actor")
        mask_logits(output)
        log_prob = torch.log_softmax(output["logit"], -1)
        return log_prob.exp(), log_prob

    def _critic_terms(self, batch: dict[str, Any]) -> CriticTerms:
        """Return the terms for the target r + gamma (1 - done) V(s').

        V(s') = sum_a pi(a|s') (min_i Q'_i(s', a) - alpha log pi(a|s')).
        """
        with torch.no_grad():
            probability, log_prob = self._policy(batch["next_obs"])
            next_q = q_values(self._target_model.forward(batch["next_obs"], mode="compute_critic"), of_choices=True)
            next_value = (probability * (smaller(next_q) - self._target_alpha() * log_prob)).sum(-1)
        q = q_values(self._model(batch["obs"], mode="compute_critic"), of_choices=True)
        action, reward, done, weight = batch["action"].long(), batch["reward"], batch["done"], batch["weight"]
        terms = [
            q_v_1step_td_error(q_v_1step_td_data(one, next_value, action, reward, done, weight), self._gamma)
            for one in q
        ]
        losses, error = self._by_critic(terms)
        logged = {name: value.mean() for name, value in zip(("q_value_1", "q_value_2"), next_q, strict=False)}
        return CriticTerms(losses, error, {**logged, "target_value": next_value.mean()})

    def _policy_terms(self, batch: dict[str, Any], alpha: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the terms; the loss is the mean of sum_a pi(a|s) (alpha log pi(a|s) - min_i Q_i(s, a)), Q detached."""
        obs = batch["obs"]
        with torch.no_grad():
            q = smaller(q_values(self._model(obs, mode="compute_critic"), of_choices=True))
        probability, log_prob = self._policy(obs)
        negative_entropy = (probability * log_prob).sum(-1)
        loss = alpha * negative_entropy - (probability * q).sum(-1)
        return loss.mean(), negative_entropy, {"entropy": -negative_entropy.mean()}

    # --- collect and eval ---

    def _act_collect(self, obs: Any, env_ids: list[int], eps: float = 0.0) -> dict[str, Any]:
        """Sample `action` [1] per env, uniformly with probability `eps`, and return it with `logit` [N]."""
        return self._forward_batch(self._collect_model, obs, eps=eps, **self._collect_kwargs)


# Upper bound of the Lagrange multiplier.
_MAX_MULTIPLIER = 1e6


@POLICY_REGISTRY.register("cql")
class CQLPolicy(SACPolicy):
    """CQL(H) (https://arxiv.org/abs/2006.04779): SAC with a penalty on the values of actions outside the data set.

    Train it with `serial_pipeline_offline`. The loss of each critic is that of SAC plus `min_q_weight` times
    log of the integral of exp Q(s, a) over all actions, minus Q(s, a) of the data. The integral is estimated from
    `num_actions` uniform actions, and as many of the actor at s and at s'. With `with_lagrange` a multiplier is learned
    that keeps this term at `lagrange_thresh`.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "cql",
            "model.actor_head_hidden_size": 256,
            "model.critic_head_hidden_size": 256,
            "learn.num_actions": Setting(10, integer(1), "Actions sampled per state in the conservative term."),
            "learn.with_lagrange": Setting(False, boolean, "Learn the weight of the conservative term."),
            "learn.lagrange_thresh": Setting(-1, number(), "Target of the conservative term, with `with_lagrange`."),
            "learn.min_q_weight": 1.0,
            "learn.with_q_entropy": Setting(False, boolean, "Include the entropy of the next action in targets."),
        },
        SACPolicy.settings,
    )
    _optional_parts: ClassVar[tuple[str, ...]] = ("log_alpha", "alpha", "log_alpha_prime", "optimizer_alpha_prime")

    def _monitor_vars_learn(self) -> list[str]:
        names = [*super()._monitor_vars_learn(), "conservative_loss"]
        return [*names, "alpha_prime", "alpha_prime_loss"] if self._cfg.learn.with_lagrange else names

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        if learn.with_lagrange:
            self._log_alpha_prime = torch.zeros(1, device=self._device, requires_grad=True)
            self._optimizer_alpha_prime = Adam([self._log_alpha_prime], lr=learn.learning_rate_q)

    def _target_alpha(self) -> Tensor:
        alpha = super()._target_alpha()
        return alpha if self._cfg.learn.with_q_entropy else torch.zeros_like(alpha)

    def _critic_terms(self, batch: dict[str, Any]) -> CriticTerms:
        learn = self._cfg.learn
        losses, error, logged = super()._critic_terms(batch)
        gaps = [learn.min_q_weight * gap for gap in self._conservative_gaps(batch)]
        logged["conservative_loss"] = torch.stack(gaps).mean()
        if learn.with_lagrange:
            excess = [gap - learn.lagrange_thresh for gap in gaps]
            multiplier = self._log_alpha_prime.exp().clamp(max=_MAX_MULTIPLIER)
            gaps = [multiplier.detach().squeeze() * one for one in excess]
            loss = -(multiplier * torch.stack(excess).mean().detach()).sum()
            self._backward_and_step(loss, self._optimizer_alpha_prime)
            logged |= {"alpha_prime": multiplier.mean(), "alpha_prime_loss": loss}
        summed = {name: loss + gap for (name, loss), gap in zip(losses.items(), gaps, strict=True)}
        return CriticTerms(summed, error, logged)

    def _conservative_gaps(self, batch: dict[str, Any]) -> list[Tensor]:
        """Return for each critic the mean of log sum_j exp(Q(s, a_j) - log p(a_j)) - Q(s, a), for drawn actions a_j.

        Actions are weighted by 1 / p, so that the sum estimates the integral (up to a factor).
        """
        obs, action = batch["obs"], batch["action"]
        size, number = len(action), self._cfg.learn.num_actions
        action = action.reshape(size, -1)
        rows = torch.arange(size, device=action.device)
        with torch.no_grad():
            uniform = draw_uniform(self._rng, (size, number, action.shape[1]), like=action) * 2 - 1
            actions, log_densities = [uniform], [torch.full((size, number), -action.shape[1] * math.log(2))]
            for observations in (obs, batch["next_obs"]):
                logit = self._model(observations, mode="compute_actor")["logit"]
                drawn = self._draw_action(take(logit, rows.repeat_interleave(number)))
                actions.append(drawn.action.view_as(uniform))
                log_densities.append(drawn.log_prob.view(size, number))
            log_density = torch.cat([one.to(action.device) for one in log_densities], 1)
        repeated = take(obs, rows.repeat_interleave(3 * number))
        every = torch.cat(actions, 1).flatten(0, 1)
        q_every = q_values(self._model({"obs": repeated, "action": every}, mode="compute_critic"))
        q_data = q_values(self._model({"obs": obs, "action": action}, mode="compute_critic"))
        return [
            (torch.logsumexp(many.view(size, -1) - log_density, 1) - one).mean()
            for many, one in zip(q_every, q_data, strict=True)
        ]

    def _learn_parts(self) -> dict[str, Any]:
        parts = super()._learn_parts()
        if self._cfg.learn.with_lagrange:
            parts |= {"optimizer_alpha_prime": self._optimizer_alpha_prime, "log_alpha_prime": self._log_alpha_prime}
        return parts
