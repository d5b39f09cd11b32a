"""Proximal policy optimization: on policy, with a replay buffer, and the initialization of parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import add
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ding.model.common.head import DiscreteHead, RegressionHead, ReparameterizationHead
from ding.model.template.vac import MAVAC
from ding.model.wrapper.model_wrappers import mask_logits
from ding.policy.actor_critic import ACTION_KINDS, ActorCriticPolicy, KLLimit, MinibatchStep
from ding.policy.common_utils import drop_last_axis
from ding.policy.on_policy_data import OnPolicyData
from ding.policy.settings import COMPATIBLE
from ding.policy.training_step import Learned
from ding.rl_utils.adder import get_nstep_return_data, get_train_sample, stacked
from ding.rl_utils.log_prob import mu_and_sigma
from ding.rl_utils.ppo import (
    KL_TYPES,
    clipped_surrogate,
    is_clipped,
    kl_estimate,
    ppo_value_data,
    ppo_value_error,
)
from ding.rl_utils.returns import nstep_return, nstep_return_data, weighted_mean
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.batch_methods import accepts_fragments
from ding.utils.config_helper import NO_DEFAULT, ConfigError, Setting, Settings, boolean, instance_of, number, one_of
from ding.utils.data.samples import Items, column_of, with_columns
from ding.utils.default_helper import one_time_warning
from ding.utils.file_helper import read_file
from ding.utils.registry_factory import POLICY_REGISTRY

LOGGED = (
    *("total_loss", "policy_loss", "value_loss", "entropy_loss"),
    *("adv_max", "adv_mean", "value_mean", "value_max", "approx_kl", "clipfrac", "kl_div"),
)
LOGGED_CONTINUOUS = ("act", "mu_mean", "sigma_mean")
# Maximum batch size of forwards without gradients.
_ROWS = 1024
_MINIBATCH_KEYS = ("action", "log_prob_old", "log_prob_pretrained", "value", "adv", "return_", "weight")
# Initialization of a Gaussian policy: log standard deviation, on and off policy, and the scale of the last layer.
_LOG_SIGMA, _OFF_POLICY_LOG_SIGMA = -0.5, -2.0
_MU_SCALE = 0.01
# What is collated of samples for n-step returns off policy.
_NSTEP_KEYS = ("next_obs", "reward", "done", "terminated", "truncated", "value_gamma")


def _three_gains(value: Any) -> str | None:
    """Return None if `value` is None or three numbers of at least 0, else what is expected."""
    is_given = isinstance(value, list | tuple) and len(value) == 3 and not any(map(number(0), value))
    return None if value is None or is_given else "three numbers of at least 0, or None"


INIT_GAINS = Setting(
    rule=_three_gains,
    doc="Gains of orthogonal initialization: of hidden layers, the actor's last layer and the critic's last layer; "
    "`[2**0.5, 0.01, 1]` are those of Stable-Baselines3 and CleanRL.",
)


def _above_one(value: Any) -> str | None:
    """Return None if `value` is None or a number above 1, else what is expected."""
    return None if value is None or (number()(value) is None and value > 1) else "a number above 1 or None"


class PPOTerms(NamedTuple):
    """Terms of the loss of a minibatch that are logged, detached."""

    losses: list[Tensor]  # policy, value, entropy, and the divergence from the pretrained policy if there is one
    means: list[Tensor]  # of `LOGGED_CONTINUOUS`
    adv: Tensor  # [B, ...], as the loss uses it
    value: Tensor  # [B, ...]
    moves: list[tuple[Tensor, Tensor]]  # of each part of the action, log p_new - log p_old and p_new / p_old


@POLICY_REGISTRY.register("ppo")
class PPOPolicy(ActorCriticPolicy):
    """PPO (https://arxiv.org/abs/1707.06347) for discrete, continuous and hybrid actions.

    Advantages are those of https://arxiv.org/abs/1506.02438. At the end of a trajectory fragment they
    bootstrap from the value of the next observation, unless the episode is over (`terminated` if the env reports it,
    `done` otherwise). With `recompute_adv` each epoch recomputes them from the current values; see
    https://arxiv.org/abs/2006.05990. With `value_norm` the critic predicts returns divided by their running deviation.

    The `action_mask` of a dict observation masks illegal actions, both in acting and in learning.

    Example:
        >>> cfg = PPOPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = PPOPolicy(cfg, enable_field=["collect"])
        >>> output = policy.collect_mode.forward({0: torch.zeros(4), 3: torch.zeros(4)})
        >>> {env_id: (out["action"].shape, out["value"].shape) for env_id, out in output.items()}
        {0: (torch.Size([1]), torch.Size([1])), 3: (torch.Size([1]), torch.Size([1]))}
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "ppo",
            "on_policy": True,
            "recompute_adv": Setting(True, boolean, "Recompute the advantages in each epoch."),
            "action_space": Setting("discrete", one_of(*ACTION_KINDS)),
            "nstep_return": Setting(False, boolean, COMPATIBLE),
            "multi_agent": Setting(False, boolean, "Give logits and values an axis of agents."),
            "transition_with_policy_data": True,
            "learn.epoch_per_collect": 10,
            "learn.learning_rate": 3e-4,
            "learn.lr_scheduler": None,
            "learn.entropy_weight": 0.0,
            "learn.clip_ratio": 0.2,
            "learn.target_kl": NO_DEFAULT,
            "learn.dual_clip": Setting(None, _above_one, "Bound of the objective for negative advantages."),
            "learn.adv_norm": True,
            "learn.value_norm": True,
            "learn.ppo_param_init": True,
            "learn.init_gains": INIT_GAINS,
            "learn.eps": Setting(rule=number(0), doc="Term added to the denominator of Adam; 1e-8 by default."),
            "learn.value_clip": Setting(
                rule=boolean, doc="Whether the loss of the value is clipped as that of the policy; True by default."
            ),
            "learn.grad_clip_type": "clip_norm",
            "learn.grad_clip_value": 0.5,
            "learn.pretrained_model_path": Setting(
                None, instance_of(str, optional=True), "Checkpoint of a policy to stay close to."
            ),
            "learn.kl_beta": Setting(0.0, number(), "Weight of the divergence from this policy in the loss."),
            "learn.kl_type": Setting("k1", one_of(*KL_TYPES), "Estimator of this divergence."),
        },
        ActorCriticPolicy.settings,
    )

    # Not needed without `recompute_adv`, and it would be carried with the samples.
    _keeps_next_obs = False

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        gains = self._cfg.learn.get("init_gains")
        if learns and gains is not None:  # before rank 0 broadcasts its parameters
            initialise_by_gains(model, hidden=gains[0], actor=gains[1], critic=gains[2])
        elif learns and self._cfg.learn.ppo_param_init:
            initialise_actor_critic(model, is_gaussian=self._cfg.action_space != "discrete")
        super()._set_up_model(model, learns)

    def _monitor_vars_learn(self) -> list[str]:
        names = ["cur_lr", *LOGGED]
        if self._cfg.learn.pretrained_model_path is None:
            names.remove("kl_div")
        if self._cfg.action_space == "continuous":
            names += [*LOGGED_CONTINUOUS, "sigma_grad"]
        return names

    # --- learn ---

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._priority_IS_weight = self._cfg.priority_IS_weight
        if self._cfg.nstep_return:
            one_time_warning("policy.nstep_return has no effect on policy; collect.gae_lambda blends n-step returns")
        self._value_weight, self._entropy_weight = learn.value_weight, learn.entropy_weight
        self._clip_ratio, self._adv_norm = learn.clip_ratio, learn.adv_norm
        self._optimizer = Adam(
            self._model.parameters(),
            lr=learn.learning_rate,
            eps=learn.get("eps", 1e-8),
            grad_clip_type=learn.grad_clip_type,
            clip_value=learn.grad_clip_value,
        )
        if isinstance(self._model, MAVAC):
            # In DI-engine's saved states the parameters are in the order encoders, critic, actor.
            names = ("actor_encoder", "critic_encoder", "critic_head", "actor_head")
            parts = [getattr(self._model, name).parameters() for name in names]
            self._optimizer.accept_order(dict.fromkeys(chain.from_iterable(parts)))
        self._learn_model = self._wrapped("base")
        self._pretrained_model: nn.Module | None = None
        if learn.pretrained_model_path is not None:
            state = read_file(learn.pretrained_model_path)
            self._pretrained_model = copy.deepcopy(self._model).requires_grad_(False).eval()
            self._pretrained_model.load_state_dict(state.get("model", state))

    def _forward_learn(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run `epoch_per_collect` epochs of minibatches on the samples of a collection, in trajectory order.

        With `target_kl` they end early, see `KLLimit`. The result has the values to log of each optimizer step.
        """
        batch, rows = self._prepare(data), []
        limit = KLLimit(self._cfg.learn.get("target_kl"), all_ranks=self._cfg.multi_gpu)

        def is_too_far(terms: PPOTerms) -> bool:
            return limit.check(kl_estimate(-log_ratio, "k3") for log_ratio, _ in terms.moves)

        for _ in range(int(self._cfg.learn.epoch_per_collect)):
            # The targets of the epoch: advantages in units of the reward, returns in units of their deviation.
            scale = self._value_scale()
            if self._recompute_adv:
                values = torch.cat([self._values(part) for part in batch.parts(batch.observations, _ROWS)])
                batch.estimate(values, scale, self._gamma, self._gae_lambda)
            returns = batch.columns["unscaled_return"]
            batch.columns["return_"] = returns / scale
            if self._value_norm:
                self._running_mean_std.take_in(returns, all_ranks=self._cfg.multi_gpu)
            steps = self._learn_epoch(batch, _MINIBATCH_KEYS, self._loss, is_too_far)
            if steps:
                rows.append(self._logged(steps))
            if limit.is_reached:
                break
        rates = self._learning_rates()
        names = LOGGED + LOGGED_CONTINUOUS  # the latter exist for continuous actions only
        return [{**rates, **dict(zip(names, row, strict=False))} for row in torch.cat(rows).tolist()]

    def _prepare(self, data: list[dict[str, Any]]) -> OnPolicyData:
        device = self._device if self._cuda else None
        batch = OnPolicyData(data, self._cfg.learn.ignore_done, with_next=self._recompute_adv, device=device)
        columns = batch.columns
        columns["log_prob_old"] = self._log_prob(columns.pop("logit"), columns["action"])
        if self._pretrained_model is not None:
            parts = []
            for observations, action in batch.parts([batch.acted_on, columns["action"]], _ROWS):
                with torch.no_grad():
                    output = self._pretrained_model(self._model_input(observations), mode="compute_actor")
                    mask_logits(output)
                    parts.append(self._log_prob(output["logit"], action))
            columns["log_prob_pretrained"] = [torch.cat(pieces) for pieces in zip(*parts, strict=True)]
        if not self._recompute_adv:
            columns["unscaled_return"] = columns["adv"] + columns["value"] * self._value_scale()
        return batch

    def _log_prob(self, logit: Any, action: Any) -> list[Tensor]:
        return [terms.log_prob for terms in self._kind.terms(logit, action)]

    def _loss(self, output: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, PPOTerms]:
        """Return the loss of a minibatch, on which the optimizer steps and which is logged, and its terms to log.

        It is policy + value_weight value - entropy_weight entropy + kl_beta KL (https://arxiv.org/abs/1707.06347). For
        actions with several parts, the losses of the parts are added. Override it for another loss.

        Args:
            output: the model's `logit` and `value`.
            batch: `action, log_prob_old, value, adv, return_, weight`, and `log_prob_pretrained` or None.
        """
        learn, adv, weight, value = self._cfg.learn, batch["adv"], batch["weight"], drop_last_axis(output["value"])
        if self._adv_norm:
            adv = normalised(adv)
        terms = self._kind.terms(output["logit"], batch["action"])
        surrogates = [
            clipped_surrogate(term.log_prob, old, adv, weight, self._clip_ratio, learn.get("dual_clip"))
            for term, old in zip(terms, batch["log_prob_old"], strict=True)
        ]
        policy_loss = reduce(add, [surrogate.loss for surrogate in surrogates])
        value_data = ppo_value_data(value, batch["value"], batch["return_"], weight)
        value_loss = ppo_value_error(value_data, self._clip_ratio, learn.get("value_clip", True))
        entropies = [term.entropy if term.entropy.shape == adv.shape else term.entropy.mean(1) for term in terms]
        entropy = reduce(add, [weighted_mean(entropy, weight) for entropy in entropies])
        total = policy_loss + self._value_weight * value_loss
        if self._entropy_weight:
            total = total - self._entropy_weight * entropy
        losses, means = [policy_loss, value_loss, entropy], []
        if batch["log_prob_pretrained"] is not None:
            pairs = zip(terms, batch["log_prob_pretrained"], strict=True)
            kl_type = learn.get("kl_type", "k1")
            kl_div = reduce(add, [kl_estimate(term.log_prob - other, kl_type) for term, other in pairs])
            total = total + learn.get("kl_beta", 0.0) * kl_div
            losses.append(kl_div)
        if self._kind.is_discrete is False:
            means = [part.mean() for part in (batch["action"].float(), *mu_and_sigma(output["logit"]))]
        return total, PPOTerms(
            losses=[loss.detach() for loss in losses],
            means=[mean.detach() for mean in means],
            adv=adv,
            value=value.detach(),
            moves=[(surrogate.log_ratio, surrogate.ratio) for surrogate in surrogates],
        )

    def _logged(self, steps: Sequence[MinibatchStep]) -> Tensor:
        """Return the values of `LOGGED`, and of `LOGGED_CONTINUOUS` for continuous actions, of each step, [M, K].

        Statistics of all minibatches at once cost little; those of each took 4 % of an update of a small network.
        """
        terms: list[PPOTerms] = [step.values for step in steps]
        losses = torch.stack([torch.stack([step.loss, *step.values.losses]) for step in steps])
        adv = torch.stack([term.adv for term in terms]).flatten(1)
        value = torch.stack([term.value for term in terms]).flatten(1)
        changes = []
        for part in range(len(terms[0].moves)):
            log_ratio = torch.stack([term.moves[part][0] for term in terms]).flatten(1)
            ratio = torch.stack([term.moves[part][1] for term in terms]).flatten(1)
            changes.append(torch.stack([-log_ratio.mean(1), is_clipped(ratio, self._clip_ratio).mean(1)], 1))
        statistics = torch.stack([adv.amax(1), adv.mean(1), value.mean(1), value.amax(1)], 1)
        kl_div = losses[:, 4:] if losses.shape[1] > 4 else torch.zeros_like(losses[:, :1])
        columns = [losses[:, :4], statistics, reduce(torch.maximum, changes), kl_div]
        if terms[0].means:
            columns.append(torch.stack([torch.stack(term.means) for term in terms]))
        return torch.cat(columns, 1)


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
            initialise_actor_critic(model, self._cfg.action_space != "discrete", _OFF_POLICY_LOG_SIGMA)
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

    @accepts_fragments
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


def normalised(adv: Tensor) -> Tensor:
    """Return `adv` with mean 0 and (unbiased) standard deviation 1; a single advantage is unchanged."""
    if adv.numel() == 1:
        return adv
    std, mean = torch.std_mean(adv)
    return (adv - mean) / (std + 1e-8)


# --- the start ---


@torch.no_grad()
def initialise_actor_critic(model: nn.Module, is_gaussian: bool, log_sigma: float = _LOG_SIGMA) -> None:
    """Initialize linear layers orthogonally with zero bias, as in https://arxiv.org/abs/2006.05990.

    With `is_gaussian` those of `model.actor` and `model.critic` have the gain sqrt(2), and the last layer of the policy
    is scaled by 0.01: actions start around zero, with a deviation of exp(`log_sigma`) if it is a parameter.
    """
    for layer in model.modules():
        _make_orthogonal(layer, 1.0)
    if not is_gaussian:
        return
    # A model of a user's own may share one network, or name its parts otherwise.
    actor_critic: Any = [getattr(model, name) for name in ("actor", "critic") if hasattr(model, name)]
    seen: set[int] = set()
    for layer in chain.from_iterable(part.modules() for part in actor_critic):
        if id(layer) not in seen:  # actor and critic may share layers
            seen.add(id(layer))
            _make_orthogonal(layer, math.sqrt(2))
    for head in model.modules():
        if isinstance(head, ReparameterizationHead):
            head.mu.weight.mul_(_MU_SCALE)
            if head.log_sigma_param is not None:
                head.log_sigma_param.fill_(log_sigma)


@torch.no_grad()
def initialise_by_gains(model: nn.Module, hidden: float, actor: float, critic: float) -> None:
    """Initialize linear and convolutional layers orthogonally with zero bias.

    Args:
        hidden: the gain of all layers but the last ones.
        actor, critic: the gains of the last layers of each head of `model.actor_head` and of `model.critic_head`.

    Raises:
        ConfigError: the model, of a user's own, does not have these attributes.
    """
    for layer in model.modules():
        _make_orthogonal(layer, hidden, (nn.Linear, nn.Conv2d))
    for name, gain in (("actor_head", actor), ("critic_head", critic)):
        if not hasattr(model, name):
            raise ConfigError(
                f"policy.learn.init_gains needs a model with the attributes actor_head and critic_head; "
                f"{type(model).__name__} has no {name}: leave init_gains out, or set it to None"
            )
        for head in getattr(model, name).modules():
            if isinstance(head, ReparameterizationHead):
                _make_orthogonal(head.mu, gain)
                _make_orthogonal(head.log_sigma_layer, gain)
            elif isinstance(head, DiscreteHead | RegressionHead):
                _make_orthogonal([layer for layer in head.modules() if isinstance(layer, nn.Linear)][-1], gain)


_Weighted = type[nn.Linear] | type[nn.Conv2d]


def _make_orthogonal(layer: nn.Module | None, gain: float, kinds: tuple[_Weighted, ...] = (nn.Linear,)) -> None:
    if isinstance(layer, kinds):
        nn.init.orthogonal_(layer.weight, gain)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
