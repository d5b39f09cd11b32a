"""Policy gradients: REINFORCE and PPO without a critic, with the returns of whole episodes, and A2C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding.policy.actor_critic import ACTION_KINDS, ActorCriticPolicy, KLLimit, StochasticPolicy
from ding.policy.common_utils import drop_last_axis, is_end
from ding.policy.on_policy_data import OnPolicyData
from ding.policy.ppo import INIT_GAINS, initialise_actor_critic, initialise_by_gains, normalised
from ding.policy.settings import COMPATIBLE
from ding.policy.training_step import Learned
from ding.rl_utils.adder import get_train_sample, stacked
from ding.rl_utils.log_prob import mu_and_sigma
from ding.rl_utils.ppo import a2c_data, a2c_terms_error, clipped_surrogate, kl_estimate
from ding.rl_utils.returns import gae, gae_data, weighted_mean
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.batch_methods import accepts_fragments
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, anything, boolean, number, one_of
from ding.utils.data.samples import Items, column_of, last_rows, with_columns
from ding.utils.registry_factory import POLICY_REGISTRY


class EpisodePolicy(StochasticPolicy):
    """Base of policies without a critic, which learn from the discounted returns of whole episodes."""

    settings: ClassVar[Settings] = Settings(
        {
            "on_policy": True,
            "action_space": Setting("discrete", one_of("discrete", "continuous")),
            "n_episode": NO_DEFAULT,
            "learn.batch_size": 64,
            "learn.ignore_done": Setting(False, one_of(False), COMPATIBLE),
            "collect.unroll_len": 1,
            "collect.discount_factor": 0.99,
            "collect.n_episode": NO_DEFAULT,
            "eval": {},
        },
        StochasticPolicy.settings,
    )
    _records_next_obs: ClassVar[bool] = False

    # The columns of a minibatch, beside the observations.
    _minibatch_keys: ClassVar[tuple[str, ...]] = ("action", "return", "weight")

    def default_model(self) -> tuple[str, list[str]]:
        return "pg", ["ding.model.template.vac"]

    def _prepare(self, data: list[dict[str, Any]]) -> OnPolicyData:
        return OnPolicyData(data, ignore_done=False, device=self._device if self._cuda else None)

    def _forward_learn(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Learn from the samples of whole episodes, and return the values to log of each optimizer step."""
        batch, rows = self._prepare(data), []
        limit = KLLimit(self._cfg.learn.get("target_kl"), all_ranks=self._cfg.multi_gpu)
        for _ in range(self._cfg.learn.get("epoch_per_collect", 1)):
            steps = self._learn_epoch(batch, self._minibatch_keys, self._loss, lambda logged: limit.check(logged[-1:]))
            rows += [torch.stack([step.loss, *step.values, step.norm]).detach() for step in steps]
            if limit.is_reached:
                break
        names, rates = self._monitor_vars_learn()[1:], self._learning_rates()
        # Policies that clip in the optimizer do not log the norm.
        return [{**rates, **dict(zip(names, row, strict=False))} for row in torch.stack(rows).tolist()]

    def _loss(self, output: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, list[Tensor]]:
        """Return the loss of a minibatch, and the values to log beside it, in the order of `_monitor_vars_learn`.

        With `target_kl` the last one is the divergence from the policy that collected.
        """
        raise NotImplementedError(f"{type(self).__name__} must define _loss")

    @accepts_fragments
    def _get_train_sample(self, transitions: Items) -> Any:
        """Add `return` [1], the discounted sum of the rewards from each step to the end of its episode.

        A list of transitions is modified in place.

        Raises:
            AssertionError: the last transition does not end an episode.
        """
        if not transitions:
            return []
        done = is_end(transitions)
        if not done[last_rows(transitions)].all():
            raise AssertionError(
                f"{type(self).__name__} learns from whole episodes, but the last transition is not done; set "
                "policy.collect.collector = {'type': 'episode', 'get_train_sample': True} and policy.collect.n_episode"
            )
        reward = stacked(transitions, "reward").reshape(len(done), 1)
        zeros = torch.zeros_like(reward)
        discount = self._cfg.collect.discount_factor
        returns = gae(gae_data(zeros, zeros, reward, None, torch.from_numpy(done[:, None])), discount, 1.0)
        return get_train_sample(with_columns(transitions, **{"return": column_of(returns)}), self._unroll_len)


@POLICY_REGISTRY.register("pg")
class PGPolicy(EpisodePolicy):
    """REINFORCE (https://link.springer.com/article/10.1007/BF00992696) for discrete and continuous actions.

    Each collection of episodes is learned from in one pass, in shuffled minibatches with the loss

        mean(-log p(a|s) R) - entropy_weight mean(H(p(.|s)))

    where R is the discounted return from s to the end of the episode, including an end by a time limit. The collector
    must collect whole episodes: `policy.collect.collector.type = 'episode'`.

    Example:
        >>> cfg = PGPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = PGPolicy(cfg, enable_field=["collect"])
        >>> steps = [{"reward": torch.ones(1), "done": done} for done in (False, False, True)]
        >>> [round(step["return"].item(), 4) for step in policy.collect_mode.get_train_sample(steps)]
        [2.9701, 1.99, 1.0]
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "pg",
            "deterministic_eval": Setting(True, boolean, "Evaluate with the most likely action."),
            "learn.learning_rate": 0.001,
            "learn.entropy_weight": 0.01,
            "learn.grad_norm": 5,
            "collect.collector.get_train_sample": True,
        },
        EpisodePolicy.settings,
    )

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss", "policy_loss", "entropy_loss", "return_abs_max", "grad_norm"]

    def _init_learn(self) -> None:
        self._optimizer = Adam(self._model.parameters(), lr=self._cfg.learn.learning_rate)
        self._learn_model = self._wrapped("base")

    def _loss(self, output: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, list[Tensor]]:
        (terms,) = self._kind.terms(output["logit"], batch["action"])
        return_, weight = batch["return"], batch["weight"]
        policy_loss = -weighted_mean(terms.log_prob * return_, weight)
        entropy_loss = -self._cfg.learn.entropy_weight * weighted_mean(terms.entropy, weight)
        total = policy_loss + entropy_loss
        return total, [policy_loss, entropy_loss, return_.abs().max()]

    @property
    def _eval_wrapper(self) -> str:  # type: ignore[override]
        return self._kind.eval_wrapper if self._cfg.deterministic_eval else self._kind.collect_wrapper


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
            "learn.target_kl": NO_DEFAULT,
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
        logged = [surrogate.loss, entropy, surrogate.approx_kl, surrogate.clipfrac]
        if self._cfg.action_space == "continuous":
            logged += [part.mean() for part in (action, *mu_and_sigma(logit))]
        if learn.get("target_kl") is not None:
            logged.append(kl_estimate(-surrogate.log_ratio, "k3"))
        return total, logged


@POLICY_REGISTRY.register("a2c")
class A2CPolicy(ActorCriticPolicy):
    """A2C (https://arxiv.org/abs/1602.01783) for discrete, continuous and hybrid actions.

    Each collection is learned from in one pass, in shuffled minibatches with the loss

        mean(-log p(a|s) A + value_weight (A + V_old(s) - V(s))^2 - entropy_weight H(p(.|s)))

    The advantages A are those of https://arxiv.org/abs/1506.02438, computed when the samples are made. At the
    end of a trajectory fragment they bootstrap from the value of the next observation, unless the episode is over
    (`terminated` if the env reports it, `done` otherwise).

    Example:
        >>> cfg = A2CPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = A2CPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)})[0]["value"].shape
        torch.Size([1])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "a2c",
            "on_policy": True,
            "action_space": Setting("discrete", one_of(*ACTION_KINDS)),
            "learn.update_per_collect": Setting(1, anything, COMPATIBLE),
            "learn.learning_rate": 0.001,
            "learn.betas": Setting((0.9, 0.999), doc="Decay rates of Adam's averages."),
            "learn.eps": Setting(1e-8, number(0), "Term added to the denominator of Adam."),
            "learn.init_gains": INIT_GAINS,
            "learn.grad_norm": 0.5,
            "collect.discount_factor": 0.9,
        },
        ActorCriticPolicy.settings,
    )
    _output_keys: Sequence[str] = ("action", "value")

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        gains = self._cfg.learn.get("init_gains")
        if learns and gains is not None:  # before rank 0 broadcasts its parameters
            initialise_by_gains(model, hidden=gains[0], actor=gains[1], critic=gains[2])
        super()._set_up_model(model, learns)

    def _monitor_vars_learn(self) -> list[str]:
        names = ["policy_loss", "value_loss", "entropy_loss", "adv_abs_max", "grad_norm"]
        return ["cur_lr", "total_loss", *names]

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        betas = learn.betas[0], learn.betas[1]
        self._optimizer = Adam(self._model.parameters(), lr=learn.learning_rate, betas=betas, eps=learn.eps)
        self._learn_model = self._wrapped("base")

    def _prepare(self, data: list[dict[str, Any]]) -> OnPolicyData:
        return OnPolicyData(data, self._cfg.learn.ignore_done, device=self._device if self._cuda else None)

    def _update(self, batch: OnPolicyData) -> Learned:
        """Learn from the samples of a collection, and return the values to log of the last minibatch."""
        last = self._learn_epoch(batch, ("action", "value", "adv", "weight"), self._loss)[-1]
        return Learned({"total_loss": last.loss, **last.values, "grad_norm": last.norm})

    def _loss(self, output: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a minibatch, on which the optimizer steps, and the values to log beside it."""
        learn, action, value, adv = self._cfg.learn, batch["action"], batch["value"], batch["adv"]
        return_ = value + adv
        if learn.adv_norm:
            adv = normalised(adv)
        loss = a2c_terms_error(
            self._kind.terms(output["logit"], action),
            a2c_data(output["logit"], action, drop_last_axis(output["value"]), adv, return_, batch["weight"]),
        )
        total = loss.policy_loss + learn.value_weight * loss.value_loss - learn.entropy_weight * loss.entropy_loss
        return total, {**loss._asdict(), "adv_abs_max": adv.abs().max()}
