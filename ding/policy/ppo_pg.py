"""Proximal policy optimization without a critic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from ding.policy.on_policy_data import OnPolicyData
from ding.policy.pg import EpisodePolicy
from ding.policy.ppo import initialise_actor_critic
from ding.policy.settings import COMPATIBLE
from ding.rl_utils.ppo import clipped_surrogate
from ding.rl_utils.returns import weighted_mean
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.config_helper import Setting, Settings, one_of
from ding.utils.registry_factory import POLICY_REGISTRY


@POLICY_REGISTRY.register("ppo_pg")
class PPOPGPolicy(EpisodePolicy):
    """The clipped policy loss of PPO (https://arxiv.org/abs/1707.06347) with returns instead of advantages.

    Each collection of episodes is learned from in `epoch_per_collect` passes, in shuffled minibatches with the loss

        -mean(min(r R, clip(r, 1 - clip_ratio, 1 + clip_ratio) R)) - entropy_weight mean(H(p(.|s)))

    where r = p(a|s) / p_old(a|s), and R is the discounted return from s to the end of the episode, including an end by
    a time limit. The collector must collect whole episodes: `policy.collect.collector.type = 'episode'`.

    Example:
        >>> cfg = PPOPGPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = PPOPGPolicy(cfg, enable_field=["eval"])
        >>> policy.eval_mode.forward({0: torch.zeros(4)})[0]["action"].shape
        torch.Size([1])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "ppo_pg",
            "multi_agent": Setting(False, one_of(False), COMPATIBLE),
            "transition_with_policy_data": True,
            "learn.epoch_per_collect": 10,
            "learn.learning_rate": 3e-4,
            "learn.entropy_weight": 0.0,
            "learn.clip_ratio": 0.2,
            "learn.ppo_param_init": True,
            "learn.grad_clip_type": "clip_norm",
            "learn.grad_clip_value": 0.5,
        },
        EpisodePolicy.settings,
    )
    _output_keys: Sequence[str] = ("action", "logit")
    _minibatch_keys: ClassVar[tuple[str, ...]] = ("action", "log_prob_old", "return", "weight")

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        if learns and self._cfg.learn.ppo_param_init:  # before rank 0 broadcasts its parameters
            initialise_actor_critic(model, is_gaussian=self._cfg.action_space == "continuous")
        super()._set_up_model(model, learns)

    def _monitor_vars_learn(self) -> list[str]:
        names = ["cur_lr", "total_loss", "policy_loss", "entropy_loss", "approx_kl", "clipfrac"]
        return [*names, "act", "mu_mean", "sigma_mean"] if self._cfg.action_space == "continuous" else names

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._optimizer = Adam(
            self._model.parameters(),
            lr=learn.learning_rate,
            grad_clip_type=learn.grad_clip_type,
            clip_value=learn.grad_clip_value,
        )
        self._learn_model = self._wrapped("base")

    def _prepare(self, data: list[dict[str, Any]]) -> OnPolicyData:
        batch = super()._prepare(data)
        (old,) = self._kind.terms(batch.columns["logit"], batch.columns["action"])
        batch.columns["log_prob_old"] = old.log_prob
        return batch

    def _loss(self, output: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, list[Tensor]]:
        learn, logit, action, weight = self._cfg.learn, output["logit"], batch["action"], batch["weight"]
        (terms,) = self._kind.terms(logit, action)
        surrogate = clipped_surrogate(terms.log_prob, batch["log_prob_old"], batch["return"], weight, learn.clip_ratio)
        entropy = weighted_mean(terms.entropy, weight)
        total = surrogate.loss - learn.entropy_weight * entropy
        logged = [total, surrogate.loss, entropy, surrogate.approx_kl, surrogate.clipfrac]
        if self._cfg.action_space == "continuous":
            logged += [action.mean(), logit["mu"].mean(), logit["sigma"].mean()]
        return total, logged
