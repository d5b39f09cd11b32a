"""Soft actor-critic for discrete actions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding.model.wrapper.model_wrappers import mask_logits
from ding.policy.q_actor_critic import CriticTerms, q_values, smaller
from ding.policy.sac import SoftActorCriticPolicy
from ding.rl_utils.td import q_v_1step_td_data, q_v_1step_td_error
from ding.utils.config_helper import Settings
from ding.utils.registry_factory import POLICY_REGISTRY

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

    settings: ClassVar[Settings] = Settings({"type": "discrete_sac"}, SoftActorCriticPolicy.settings)
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
        actions = self._action_shape()
        if not isinstance(actions, int):
            actions = math.prod(actions)
        return _ENTROPY_SHARE * math.log(actions)

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
            next_q = q_values(self._target_model.forward(batch["next_obs"], mode="compute_critic"))
            next_value = (probability * (smaller(next_q) - self._target_alpha() * log_prob)).sum(-1)
        q = q_values(self._model(batch["obs"], mode="compute_critic"))
        rest = next_value, batch["action"].long(), batch["reward"], batch["done"], batch["weight"]
        losses, errors = zip(
            *[q_v_1step_td_error(q_v_1step_td_data(one, *rest), self._gamma) for one in q], strict=True
        )
        logged = {name: value.mean() for name, value in zip(("q_value_1", "q_value_2"), next_q, strict=False)}
        return CriticTerms(*self._by_critic(losses, errors), {**logged, "target_value": next_value.mean()})

    def _policy_terms(self, batch: dict[str, Any], alpha: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the terms; the loss is the mean of sum_a pi(a|s) (alpha log pi(a|s) - min_i Q_i(s, a)), Q detached."""
        obs = batch["obs"]
        with torch.no_grad():
            q = smaller(q_values(self._model(obs, mode="compute_critic")))
        probability, log_prob = self._policy(obs)
        negative_entropy = (probability * log_prob).sum(-1)
        loss = alpha * negative_entropy - (probability * q).sum(-1)
        return loss.mean(), negative_entropy, {"entropy": -negative_entropy.mean()}

    # --- collect and eval ---

    def _act_collect(self, obs: Any, env_ids: list[int], eps: float = 0.0) -> dict[str, Any]:
        """Sample `action` [1] per env, uniformly with probability `eps`, and return it with `logit` [N]."""
        return self._forward_batch(self._collect_model, obs, eps=eps, **self._collect_kwargs)
