"""Proximal policy optimization with a replay buffer."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding.model.wrapper.model_wrappers import mask_logits
from ding.policy.actor_critic import ACTION_KINDS, ActorCriticPolicy
from ding.policy.common_utils import drop_last_axis
from ding.policy.ppo import initialise_actor_critic, normalised
from ding.policy.training_step import Learned
from ding.rl_utils.adder import get_nstep_return_data, get_train_sample, stacked
from ding.rl_utils.log_prob import mu_and_sigma
from ding.rl_utils.ppo import clipped_surrogate, ppo_value_data, ppo_value_error
from ding.rl_utils.returns import nstep_return, nstep_return_data, weighted_mean
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.batch_methods import accepts_pieces
from ding.utils.config_helper import Setting, Settings, boolean, one_of
from ding.utils.data.samples import Items, column_of, with_columns
from ding.utils.registry_factory import POLICY_REGISTRY

_NSTEP_KEYS = ("next_obs", "reward", "done", "terminated", "truncated", "value_gamma")
# Initial log standard deviation of Gaussian actions.
_LOG_SIGMA = -2.0


@POLICY_REGISTRY.register("ppo_offpolicy")
class PPOOffPolicy(ActorCriticPolicy):
    """PPO (https://arxiv.org/abs/1707.06347) on samples of a replay buffer, for all kinds of actions.

    Each call takes one optimizer step on a batch of the buffer with the loss of PPO: the clipped policy loss, the value
    loss and the entropy. Advantages (https://arxiv.org/abs/1506.02438) and log-probabilities are those of collecting
    time. The critic's target is the return at collecting time (advantage plus value), or with `nstep_return` the n-step
    return, bootstrapped from the current critic. With `value_norm` the critic predicts returns divided by their running
    deviation.

    Example:
        >>> cfg = PPOOffPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = PPOOffPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)})[0]["value"].shape
        torch.Size([1])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "ppo",
            "action_space": Setting("discrete", one_of(*ACTION_KINDS)),
            "nstep_return": Setting(False, boolean, "Train the critic on n-step returns."),
            "nstep": 3,
            "transition_with_policy_data": True,
            "learn.update_per_collect": 5,
            "learn.learning_rate": 0.001,
            "learn.weight_decay": 0.0,
            "learn.clip_ratio": 0.2,
            "learn.value_norm": True,
            "learn.ppo_param_init": True,
            "learn.grad_clip_type": "clip_norm",
            "learn.grad_clip_value": 0.5,
            "other.replay_buffer.replay_buffer_size": 10000,
        },
        ActorCriticPolicy.settings,
    )

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        if learns and self._cfg.learn.ppo_param_init:  # before rank 0 broadcasts its parameters
            initialise_actor_critic(model, self._cfg.action_space != "discrete", _LOG_SIGMA)
        self._nstep, self._nstep_return = self._cfg.nstep, self._cfg.nstep_return
        super()._set_up_model(model, learns)

    def _monitor_vars_learn(self) -> list[str]:
        names = ["policy_loss", "value", "value_loss", "entropy_loss", "adv_abs_max", "approx_kl", "clipfrac"]
        if self._cfg.action_space == "continuous":
            names += ["act", "mu_mean", "sigma_mean"]
        return ["cur_lr", "total_loss", *names]

    # --- learn ---

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._optimizer = Adam(
            self._model.parameters(),
            lr=learn.learning_rate,
            weight_decay=learn.weight_decay,
            grad_clip_type=learn.grad_clip_type,
            clip_value=learn.grad_clip_value,
        )
        self._learn_model = self._wrapped("base")

    @property
    def _learn_keys(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("obs", "adv", "return", "weight", *(_NSTEP_KEYS if self._nstep_return else ()))

    @property
    def _uses_nstep(self) -> bool:  # type: ignore[override]
        return bool(self._nstep_return)

    def _update(self, batch: dict[str, Any]) -> Learned:
        learn = self._cfg.learn
        output = self._learn_model.forward(batch["obs"], mode="compute_actor_critic")
        mask_logits(output)
        weight, action, logit = batch["weight"], batch["action"], output["logit"]
        adv = normalised(batch["adv"]) if learn.adv_norm else batch["adv"]
        terms = self._kind.terms(logit, action)
        old_terms = self._kind.terms(batch["logit"], action)
        surrogates = [
            clipped_surrogate(new.log_prob, old.log_prob, adv, weight, learn.clip_ratio)
            for new, old in zip(terms, old_terms, strict=True)
        ]
        policy_loss = torch.stack([part.loss for part in surrogates]).sum()
        entropy = torch.stack([weighted_mean(term.entropy, weight) for term in terms]).sum()
        value_loss = self._value_loss(drop_last_axis(output["value"]), batch)
        total = policy_loss + learn.value_weight * value_loss - learn.entropy_weight * entropy
        self._backward_and_step(total, self._optimizer, self._model)
        logged = {
            "total_loss": total,
            "policy_loss": policy_loss,
            "value": batch["value"].mean(),
            "value_loss": value_loss,
            "entropy_loss": entropy,
            "adv_abs_max": adv.abs().max(),
            "approx_kl": torch.stack([part.approx_kl for part in surrogates]).max(),
            "clipfrac": torch.stack([part.clipfrac for part in surrogates]).max(),
        }
        if self._cfg.action_space == "continuous":
            mu, sigma = mu_and_sigma(logit)
            logged |= {"act": action.mean(), "mu_mean": mu.mean(), "sigma_mean": sigma.mean()}
        return Learned(logged)

    def _value_loss(self, value: Tensor, batch: dict[str, Any]) -> Tensor:
        """Return the loss of predictions [B] in units of the value scale, after an update of the scale."""
        scale, weight = self._value_scale(), batch["weight"]
        if self._nstep_return:
            with torch.no_grad():
                next_value = drop_last_axis(self._model(batch["next_obs"], mode="compute_critic")["value"]) * scale
                data = nstep_return_data(batch["reward"], next_value, batch["done"])
                returns = nstep_return(data, self._gamma, self._nstep, batch.get("value_gamma"))
            loss = weighted_mean((value - returns / scale).square(), weight)
        else:
            # Samples from elsewhere may have no return; the scale at their collection is then not known.
            returns = batch["return"] if "return" in batch else batch["value"] * scale + batch["adv"]
            value_data = ppo_value_data(value, batch["value"], returns / scale, weight)
            loss = ppo_value_error(value_data, self._cfg.learn.clip_ratio)
        if self._value_norm:
            self._running_mean_std.take_in(returns, all_ranks=self._cfg.multi_gpu)
        return loss

    # --- collect ---

    @accepts_pieces
    def _get_train_sample(self, transitions: Items) -> Any:
        """Add `adv` [1] and `traj_flag`; with `nstep_return` make n-step transitions.

        With `value_norm` also add `return` [1] in units of the reward: `value` is in units of a scale that changes
        while the sample waits in the buffer. A list of transitions is modified in place.
        """
        if not transitions:
            return []
        samples = self._with_advantages(transitions)
        if self._nstep_return:
            samples = get_nstep_return_data(samples, self._nstep, gamma=self._gamma)
        elif self._value_norm:
            returns = stacked(samples, "value") * self._value_scale() + stacked(samples, "adv")
            samples = with_columns(samples, **{"return": column_of(returns)})
        return get_train_sample(samples, self._unroll_len)
