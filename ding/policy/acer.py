"""ACER: an actor-critic that learns from replayed sequences, within a trust region."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding.model.wrapper.model_wrappers import mask_logits
from ding.policy.sequence_policy import (
    SequenceActorPolicy,
    forward_steps,
    map_tensors,
    sequence_ends,
    with_last_observation,
)
from ding.policy.settings import COMPATIBLE, positive
from ding.policy.steps import Learned
from ding.rl_utils.acer import acer_policy_error, acer_trust_region_update, acer_value_error, compute_q_retraces
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.config_helper import Setting, Settings, anything, boolean, integer
from ding.utils.default_helper import one_time_warning
from ding.utils.registry_factory import POLICY_REGISTRY

# Settings without an effect, as in DI-engine.
_NO_EFFECT = (
    ("learn", "lambda_", "Retrace has no such factor"),
    ("collect", "gae_lambda", "Retrace has no such factor"),
    ("learn", "value_weight", "actor and critic have an optimizer each"),
)


@POLICY_REGISTRY.register("acer")
class ACERPolicy(SequenceActorPolicy):
    """ACER (https://arxiv.org/abs/1611.01224) for discrete actions.

    A sample is a sequence of `collect.unroll_len` steps of an episode. Padding after its end
    is masked out of the loss. The critic learns Retrace targets; the gradient of the actor, with respect to its
    log-probabilities, is kept near an average policy, which follows at the rate `learn.target_theta`. With
    `priority` the priority of a sequence is the mean distance of its Q values from their targets.

    Example:
        >>> cfg = ACERPolicy.default_config()
        >>> cfg.model.update(obs_shape=4, action_shape=2)
        >>> policy = ACERPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)})[0]["logit"].shape
        torch.Size([2])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "acer",
            "learn.clip_value": None,
            "learn.value_weight": Setting(doc=COMPATIBLE),
            "learn.discount_factor": 0.9,
            "learn.lambda_": Setting(0.95, doc=COMPATIBLE),
            "learn.unroll_len": Setting(32, doc=COMPATIBLE),
            "learn.c_clip_ratio": Setting(10, positive, "Truncation of the importance ratio in the actor's loss."),
            "learn.trust_region": Setting(True, boolean, "Limit the divergence from the average policy."),
            "learn.trust_region_value": Setting(1.0, positive, "Limit of this divergence in an update."),
            "learn.learning_rate_actor": 0.0005,
            "learn.learning_rate_critic": 0.0005,
            "learn.target_theta": Setting(0.01, doc="Rate of the average policy's update per iteration."),
            "collect.unroll_len": Setting(32, integer(2), "Number of steps of a sequence."),
            "collect.discount_factor": Setting(0.9, anything, COMPATIBLE),
            "collect.gae_lambda": Setting(0.95, anything, COMPATIBLE),
            "collect.collector.type": "sample",
            "collect.collector.collect_print_freq": 1000,
            "eval.evaluator.eval_freq": 200,
        },
        SequenceActorPolicy.settings,
    )

    _optimizer_names: ClassVar[Mapping[str, tuple[str, str]]] = {
        "_optimizer_actor": ("actor_optimizer", "cur_actor_lr"),
        "_optimizer_critic": ("critic_optimizer", "cur_critic_lr"),
    }

    def default_model(self) -> tuple[str, list[str]]:
        return "acer", ["ding.model.template.vac"]

    def _monitor_vars_learn(self) -> list[str]:
        return ["actor_loss", "bc_loss", "policy_loss", "critic_loss", "entropy_loss", "kl_div"]

    # --- learn ---

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        for section, key, reason in _NO_EFFECT:
            if self._cfg[section].get(key) not in (None, ACERPolicy.config[section][key]):
                one_time_warning(f"ACER: policy.{section}.{key} has no effect: {reason}; leave it out")
        model: Any = self._model
        clipping = {"grad_clip_type": learn.grad_clip_type, "clip_value": learn.clip_value}
        self._optimizer_actor = Adam(model.actor.parameters(), lr=learn.learning_rate_actor, **clipping)
        self._optimizer_critic = Adam(model.critic.parameters(), lr=learn.learning_rate_critic, **clipping)
        self._init_target(theta=learn.target_theta)
        self._learn_model = self._wrapped("base")

    def _update(self, batch: dict[str, Any]) -> Learned:
        """Take one step of critic and actor on B sequences.

        The actor maximizes `policy_loss`: `actor_loss`, `bc_loss` (the bias correction) and the weighted entropy.
        """
        learn, model = self._cfg.learn, self._learn_model.forward
        ends = sequence_ends(batch)
        reward, action = batch["reward"], batch["action"].long()  # [T, B]
        obs = with_last_observation(batch, ends)
        acted_on = map_tensors(obs, lambda tensor: tensor[:-1])
        # Logarithms of probabilities, and Q values: [T + 1, B, N], except those of the others [T, B, N].
        all_log_prob = _log_probs(model, obs)
        all_q = forward_steps(model, obs, mode="compute_critic")["q_value"]
        log_prob, q = all_log_prob[:-1], all_q[:-1]
        with torch.no_grad():
            average = _log_probs(self._target_model.forward, acted_on)
            all_value = (all_log_prob.exp() * all_q).sum(-1, keepdim=True)
            # After the end of a trajectory the trace is cut, and the step before bootstraps from the next value. There
            # ratios may be infinite: the observation is zeros, with another action mask than that of `logit`.
            ratio = (log_prob - batch["logit"].log_softmax(-1)).exp()
            ratio = torch.where(ends.is_valid.unsqueeze(-1) > 0, ratio, 0.0)
            retraces = compute_q_retraces(
                all_q, all_value, reward, action, ends.bootstraps, ratio, learn.discount_factor
            )[:-1]

        weight = ends.is_valid / ends.is_valid.sum()  # of each step in a mean
        if batch["weight"] is not None:
            weight = weight * batch["weight"]
        weight = weight.unsqueeze(-1)  # [T, B, 1]
        critic_loss = (acer_value_error(q, retraces, action) * weight).sum()
        actor_term, bc_term = acer_policy_error(
            q, retraces, all_value[:-1], log_prob, action, ratio, learn.c_clip_ratio
        )
        entropy = -(log_prob.exp() * log_prob).sum(-1, keepdim=True)
        objective = actor_term + bc_term + learn.entropy_weight * entropy
        (gradient,) = torch.autograd.grad(-objective.sum(), log_prob, retain_graph=True)
        if learn.trust_region:
            (gradient,) = acer_trust_region_update([gradient], log_prob, average, learn.trust_region_value)
        self._backward_and_step(critic_loss, self._optimizer_critic)
        # The gradient of this product with respect to the log-probabilities is `gradient * weight`.
        self._backward_and_step((log_prob * gradient * weight).sum(), self._optimizer_actor)
        kl_div = (average.exp() * (average - log_prob)).sum(-1, keepdim=True)
        actor_loss, bc_loss, entropy_loss, kl = (
            (term.detach() * weight).sum() for term in (actor_term, bc_term, entropy, kl_div)
        )
        values = {
            "actor_loss": actor_loss,
            "bc_loss": bc_loss,
            "policy_loss": actor_loss + bc_loss + learn.entropy_weight * entropy_loss,
            "critic_loss": critic_loss,
            "entropy_loss": entropy_loss,
            "kl_div": kl,
        }
        distance = (retraces - q.detach().gather(-1, action.unsqueeze(-1))).abs().squeeze(-1) * ends.is_valid
        return Learned(values, distance.sum(0) / ends.is_valid.sum(0) if self._priority else None)


def _log_probs(forward: Callable[..., Any], obs: Any) -> Tensor:
    """Return the log-probabilities [L, B, N] of all actions for observations [L, B, ...]."""
    output = forward_steps(forward, obs, mode="compute_actor")
    mask_logits(output)
    log_probs: Tensor = output["logit"].log_softmax(-1)
    return log_probs
