"""Deterministic policy gradients off policy: DDPG, also for hybrid actions, TD3, D4PG, and TD3+BC for data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ding.policy.ppo import normalised
from ding.policy.q_actor_critic import CriticTerms, QActorCriticPolicy, q_values, smaller
from ding.rl_utils.adder import get_nstep_return_data
from ding.rl_utils.distributional import dist_nstep_td_data, dist_nstep_td_error
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.batch_methods import accepts_fragments
from ding.utils.config_helper import (
    ConfigError,
    Setting,
    Settings,
    boolean,
    instance_of,
    integer,
    number,
    one_of,
    positive,
)
from ding.utils.data.samples import Items
from ding.utils.registry_factory import POLICY_REGISTRY

# The action space of the model for that of the policy.
_MODEL_SPACES = {"continuous": "regression", "hybrid": "hybrid"}


@POLICY_REGISTRY.register("ddpg")
class DDPGPolicy(QActorCriticPolicy):
    """DDPG (https://arxiv.org/abs/1509.02971) with one or two critics; actions are in [-1, 1].

    A hybrid action is a type with arguments, as in https://arxiv.org/abs/1511.04143: the critic
    evaluates the probabilities of the types and the arguments. While collecting, noise is added to the arguments, and
    types are sampled by their probabilities, or uniformly with probability `eps`.

    Example:
        >>> cfg = DDPGPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 3, 1
        >>> policy = DDPGPolicy(cfg, enable_field=["collect"])
        >>> output = policy.collect_mode.forward({0: torch.zeros(3), 3: torch.zeros(3)})
        >>> {env_id: out["action"].shape for env_id, out in output.items()}
        {0: torch.Size([1]), 3: torch.Size([1])}
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "ddpg",
            "random_collect_size": Setting(25000, doc="Number of samples collected at random before training begins."),
            "transition_with_policy_data": False,
            "action_space": Setting("continuous", one_of(*_MODEL_SPACES)),
            "reward_batch_norm": Setting(False, boolean, "Normalize the rewards of each batch."),
            "learn.learning_rate_actor": 1e-3,
            "learn.learning_rate_critic": 1e-3,
            "learn.actor_update_freq": Setting(1, integer(1), "Number of critic updates per actor update."),
            "learn.noise": Setting(False, boolean, "Add noise to target actions (target policy smoothing)."),
            "learn.noise_sigma": Setting(rule=number(0), doc="Standard deviation of this noise."),
            "learn.noise_range": Setting(rule=instance_of(Mapping, optional=True), doc="Limits of this noise."),
            "learn.noise_range.min": Setting(rule=number(), doc="Lower limit of this noise."),
            "learn.noise_range.max": Setting(rule=number(), doc="Upper limit of this noise."),
            "collect.noise_sigma": Setting(0.1, number(0), "Standard deviation of the exploration noise."),
            "other.replay_buffer.replay_buffer_size": 100000,
        },
        QActorCriticPolicy.settings,
    )

    _saved = ("_target_actor",)
    _target_actor: Any = None
    _optimizer_names: ClassVar[Mapping[str, tuple[str, str]]] = {
        "_optimizer_critic": ("optimizer_critic", "cur_lr_critic"),
        "_optimizer_actor": ("optimizer_actor", "cur_lr_actor"),
    }
    _critic_loss_names: ClassVar[tuple[str, str]] = ("critic_loss", "critic_twin_loss")

    @property
    def _is_hybrid(self) -> bool:
        return bool(self._cfg.action_space == "hybrid")

    @property
    def has_discrete_actions(self) -> bool | None:  # type: ignore[override]
        """Whether actions are discrete: False, or None for hybrid actions."""
        return None if self._is_hybrid else False

    def _model_arguments(self) -> Mapping[str, Any]:
        return {"action_space": _MODEL_SPACES[self._cfg.action_space]}

    def _monitor_vars_learn(self) -> list[str]:
        names = ["cur_lr_actor", "cur_lr_critic", "critic_loss", "actor_loss", "total_loss", "q_value"]
        names += ["target q_value", "action", "td_error"]
        return [*names, "critic_twin_loss", "q_value_twin"] if self._has_twin_critic else names

    # --- learn ---

    def _init_learn(self) -> None:
        super()._init_learn()
        learn = self._cfg.learn
        self._optimizer_actor = Adam(self._part("actor").parameters(), lr=learn.learning_rate_actor)
        self._optimizer_critic = Adam(self._part("critic").parameters(), lr=learn.learning_rate_critic)
        self._target_actor = self._target_model
        if learn.noise:  # target policy smoothing, see TD3
            if "noise_sigma" not in learn:
                raise ConfigError(
                    "policy.learn.noise = True requires policy.learn.noise_sigma, the standard deviation of the noise"
                )
            self._target_actor = self._with_noise(self._target_model, learn.noise_sigma, learn.get("noise_range"))

    def _with_noise(self, model: Any, sigma: float, limits: Mapping[str, float] | None) -> Any:
        """Return a model with Gaussian noise on its actions."""
        noise = {"mu": 0.0, "sigma": sigma}
        return self._wrapped("action_noise", model, noise_type="gauss", noise_kwargs=noise, noise_range=limits)

    def _prepare(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super()._prepare(data)
        if self._cfg.reward_batch_norm:
            batch["reward"] = normalised(batch["reward"])
        return batch

    def _critic_terms(self, batch: dict[str, Any]) -> CriticTerms:
        """Return the terms of a step of the critics.

        The target is r + gamma (1 - done) min_i Q'_i(s', mu'(s')).
        """
        next_obs = batch["next_obs"]
        with torch.no_grad():
            next_output = self._target_actor.forward(next_obs, mode="compute_actor")
            next_q = q_values(self._target_model.forward(self._judged(next_obs, next_output), mode="compute_critic"))
            next_value = smaller(next_q)
        q = q_values(self._model({key: batch[key] for key in self._judged_keys}, mode="compute_critic"))
        losses, error = self._critic_loss(q, next_value, batch)
        logged = {name: value.mean() for name, value in zip(("q_value", "q_value_twin"), q, strict=False)}
        return CriticTerms(
            losses, error, {**logged, "target q_value": next_value.mean(), "action": self._mean_action(batch)}
        )

    def _mean_action(self, batch: Mapping[str, Any]) -> Tensor:
        action = batch["action"]["action_args"] if self._is_hybrid else batch["action"]
        mean: Tensor = action.mean()
        return mean

    def _update_actor(self, batch: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        loss = self._actor_loss(batch)
        self._step(loss, self._optimizer_actor)
        return {"actor_loss": loss}, {}

    def _actor_loss(self, batch: dict[str, Any]) -> Tensor:
        """Return the mean of -Q_1(s, mu(s))."""
        obs = batch["obs"]
        output = self._model(obs, mode="compute_actor")
        return -q_values(self._model(self._judged(obs, output), mode="compute_critic"))[0].mean()

    def _judged(self, obs: Any, output: Mapping[str, Any]) -> dict[str, Any]:
        """Return the critic's input for an actor's output."""
        if self._is_hybrid:
            return {"obs": obs, "logit": output["logit"], "action": {"action_args": output["action_args"]}}
        return {"obs": obs, "action": output["action"]}

    @property
    def _judged_keys(self) -> tuple[str, ...]:
        return ("obs", "action", "logit") if self._is_hybrid else ("obs", "action")

    # --- collect and eval ---

    @property
    def _output_keys(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("action", "logit") if self._is_hybrid else ("action",)

    def _init_collect(self) -> None:
        self._collect_model = self._with_noise(self._model, self._cfg.collect.noise_sigma, None)
        if self._is_hybrid:
            self._cfg.transition_with_policy_data = True  # samples require the logit, which random actions do not have
            self._collect_model = self._wrapped("hybrid_eps_greedy_multinomial_sample", self._collect_model)

    def _act_collect(self, obs: Any, env_ids: list[int], eps: float = 0.0) -> dict[str, Any]:
        """Act with noise, and return `action` [A] per env.

        A hybrid action is `{'action_type': [1], 'action_args': [A]}`; the output then also has `logit` [N] and
        `action_args`.
        """
        kwargs: dict[str, Any] = {"eps": eps} if self._is_hybrid else {}
        return self._forward_batch(self._collect_model, obs, **self._collect_kwargs, **kwargs)

    @property
    def _eval_wrapper(self) -> str:  # type: ignore[override]
        return "hybrid_argmax_sample" if self._is_hybrid else "base"


@POLICY_REGISTRY.register("td3")
class TD3Policy(DDPGPolicy):
    """TD3 (https://arxiv.org/abs/1802.09477): DDPG with settings against overestimation by the critic.

    The minimum of two critics is the target, target actions have clipped noise, and the actor takes one step per two
    steps of the critics.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "td3",
            "model.twin_critic": True,
            "learn.actor_update_freq": 2,
            "learn.noise": True,
            "learn.noise_sigma": 0.2,
            "learn.noise_range.min": -0.5,
            "learn.noise_range.max": 0.5,
        },
        DDPGPolicy.settings,
    )


@POLICY_REGISTRY.register("td3_bc")
class TD3BCPolicy(TD3Policy):
    """TD3+BC (https://arxiv.org/abs/2106.06860): TD3 with a behaviour cloning term for the actor.

    As in DI-engine, the norms of the gradients of actor and critic are clipped at 1.

    Train it with `serial_pipeline_offline`; the paper normalizes observations (`collect.normalize_states` of the data
    set, `env.norm_obs` of the env).
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "td3_bc",
            "model.action_space": "regression",
            "model.actor_head_hidden_size": 256,
            "model.critic_head_hidden_size": 256,
            "learn.alpha": Setting(2.5, positive, "Weight of the values relative to the behaviour cloning term."),
            "eval.evaluator.eval_freq": 5000,
            "other.replay_buffer.replay_buffer_size": 1000000,
        },
        TD3Policy.settings,
    )
    _max_grad_norm: ClassVar[float] = 1.0

    def _actor_loss(self, batch: dict[str, Any]) -> Tensor:
        """Return the mean of (mu(s) - a)^2 - lambda Q_1(s, mu(s)), with lambda = alpha / mean |Q_1|."""
        obs, action = batch["obs"], batch["action"]
        output = self._model(obs, mode="compute_actor")
        q = q_values(self._model(self._judged(obs, output), mode="compute_critic"))[0]
        weight: Tensor = self._cfg.learn.alpha / q.detach().abs().mean()
        return F.mse_loss(output["action"].reshape(action.shape), action) - weight * q.mean()


@POLICY_REGISTRY.register("d4pg")
class D4PGPolicy(DDPGPolicy):
    """D4PG (https://arxiv.org/abs/1804.08617): DDPG with a categorical critic, n-step returns and priorities.

    The critic represents returns between `model.v_min` and `model.v_max`, and cannot tell apart states whose returns
    lie outside: choose bounds that include the returns at the start of training.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "d4pg",
            "priority": True,
            "priority_IS_weight": True,
            "nstep": 3,
            "action_space": Setting(rule=one_of("continuous")),
            "model.v_min": -10,
            "model.v_max": 10,
            "model.n_atom": 51,
            "eval.evaluator.eval_freq": 1000,
            "other.replay_buffer.replay_buffer_size": 1000000,
        },
        DDPGPolicy.settings,
    )
    model_type: ClassVar[tuple[str, str]] = ("qac_dist", "ding.model.template.qac")
    _learn_keys = (*DDPGPolicy._learn_keys, "value_gamma")
    _uses_nstep = True

    def _monitor_vars_learn(self) -> list[str]:
        names = ["cur_lr_actor", "cur_lr_critic", "critic_loss", "actor_loss", "total_loss", "q_value"]
        return [*names, "action", "td_error"]

    # --- learn ---

    def _critic_terms(self, batch: dict[str, Any]) -> CriticTerms:
        """Return the terms; the loss is the cross-entropy of Z(s, a) to the n-step target.

        The target is the projection of r_1 + ... + gamma^n Z'(s_n, mu'(s_n)).
        """
        next_obs, model = batch["next_obs"], self._cfg.model
        with torch.no_grad():
            next_output = self._target_actor.forward(next_obs, mode="compute_actor")
            next_critic = self._target_model.forward(self._judged(next_obs, next_output), mode="compute_critic")
        critic = self._model({key: batch[key] for key in self._judged_keys}, mode="compute_critic")
        distribution = critic["distribution"]
        # The action is an input of the critic, so it returns one distribution.
        index = torch.zeros(len(distribution), dtype=torch.int64, device=distribution.device)
        reward, done, weight, value_gamma = batch["reward"], batch["done"], batch["weight"], batch.get("value_gamma")
        data = dist_nstep_td_data(distribution, next_critic["distribution"], index, index, reward, done, weight)
        loss, error = dist_nstep_td_error(
            data, self._gamma, model.v_min, model.v_max, model.n_atom, int(self._cfg.nstep), value_gamma
        )
        logged = {"q_value": critic["q_value"].mean(), "action": self._mean_action(batch)}
        return CriticTerms({"critic_loss": loss}, error.detach(), logged)

    # --- collect ---

    @accepts_fragments
    def _get_train_sample(self, transitions: Items) -> Any:
        samples = get_nstep_return_data(transitions, int(self._cfg.nstep), gamma=self._cfg.learn.discount_factor)
        return super()._get_train_sample(samples)
