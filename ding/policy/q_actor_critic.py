"""Base class of off-policy actor-critic methods: networks, target networks, batches, the critic loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ding.policy.base_policy import BatchPolicy
from ding.policy.common_utils import drop_last_axis
from ding.policy.training_step import Learned, parameters_of
from ding.rl_utils.td import v_1step_td_data, v_1step_td_error
from ding.utils.config_helper import NO_DEFAULT, ConfigError, Setting, Settings, boolean, integer


class CriticTerms(NamedTuple):
    """What is computed for a step of the critics.

    Attributes:
        losses: those of the critics, and others of their optimizer, by the names under which they are logged.
        error: the error of each sample [B], its priority.
        logged: further scalars to log.
    """

    losses: dict[str, Tensor]
    error: Tensor
    logged: dict[str, Tensor]


class QActorCriticPolicy(BatchPolicy):
    """Base of policies that learn off policy with a model like `ding.model.template.qac.ContinuousQAC`.

    Such a model has the modes `compute_actor` and `compute_critic`, and the attributes `actor` and `critic`, modules
    that hold the parameters of each. The target networks follow at the rate `learn.target_theta`, every
    `learn.target_update_freq` training steps.

    A subclass creates its optimizers in `_init_learn` after calling the base method, lists them in `_optimizer_names`,
    that of the critics first, and defines `_critic_terms` and `_update_actor`.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "priority": False,
            "priority_IS_weight": False,
            "random_collect_size": NO_DEFAULT,
            "transition_with_policy_data": Setting(rule=boolean),
            "multi_agent": Setting(False, boolean, "Train several agents; needs a model of your own."),
            "model.twin_critic": Setting(rule=boolean, doc="Use two critics and the smaller of their values."),
            "learn.update_per_collect": 1,
            "learn.batch_size": 256,
            "learn.target_theta": 0.005,
            "learn.target_update_freq": Setting(1, integer(1), "Training steps between two soft target updates."),
            "learn.discount_factor": 0.99,
            "learn.ignore_done": False,
            "collect.n_sample": NO_DEFAULT,
            "collect.unroll_len": 1,
            "eval": {},
        },
        BatchPolicy.settings,
    )
    # The default model, and the module that registers it.
    model_type: ClassVar[tuple[str, str]] = ("continuous_qac", "ding.model.template.qac")
    _learn_values: ClassVar[tuple[str, ...]] = ("_learn_count",)
    # The names under which the losses of the critics are logged.
    _critic_loss_names: ClassVar[tuple[str, str]] = ("critic_loss", "twin_critic_loss")
    _collect_kwargs: ClassVar[Mapping[str, Any]] = {"mode": "compute_actor"}
    _eval_kwargs: ClassVar[Mapping[str, Any]] = {"mode": "compute_actor"}
    # The norm at which the gradients of actor and critic are clipped.
    _max_grad_norm: ClassVar[float] = math.inf

    def default_model(self) -> tuple[str, list[str]]:
        if self._cfg.multi_agent:
            raise ConfigError("policy.multi_agent = True needs a model of your own: set policy.model.type or pass one")
        model_type, module = self.model_type
        return model_type, [module]

    @property
    def _has_twin_critic(self) -> bool:
        # A model of a user's own tells it by the config only.
        return bool(getattr(self._model, "twin_critic", self._cfg.model.get("twin_critic", False)))

    # --- learn ---

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._init_importance_weights()
        self._gamma = learn.discount_factor
        self._init_target(theta=learn.target_theta, theta_freq=learn.target_update_freq)
        self._learn_model = self._wrapped("base")
        self._learn_count = 0

    def _part(self, name: str) -> Any:
        part = getattr(self._model, name, None)
        if part is None:
            raise ConfigError(
                f"{type(self).__name__} needs a model with the attributes actor and critic, the modules that hold the "
                f"parameters of each; {type(self._model).__name__} has no {name}"
            )
        return part

    def _prepare(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super()._prepare(data)
        if self.has_discrete_actions is not True:
            action = batch["action"]
            if isinstance(action, Mapping):  # hybrid: a type and its arguments
                batch["action"] = {**action, "action_args": self._model_input(action["action_args"], integers=True)}
            else:
                batch["action"] = self._model_input(action, integers=True)
        return batch

    def _update(self, batch: dict[str, Any]) -> Learned:
        """Take one step of the critics, and one of the actor if it is due; `priority` is the error of each sample."""
        losses, error, logged = self._critic_terms(batch)
        first, *others = losses.values()
        self._step(sum(others, first), getattr(self, next(iter(self._optimizer_names))))
        self._learn_count += 1
        if self._learn_count % self._cfg.learn.get("actor_update_freq", 1) == 0:
            actor_losses, more = self._update_actor(batch)
            losses, logged = {**losses, **actor_losses}, {**logged, **more}
        total_loss = torch.stack([loss.detach() for loss in losses.values()]).sum()
        return Learned({**losses, **logged, "total_loss": total_loss, "td_error": error.mean()}, error)

    def _step(self, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
        """Take one step on a loss that may pass through other parameters, which get no gradients."""
        self._backward_and_step(loss, optimizer, inputs=parameters_of(optimizer), max_grad_norm=self._max_grad_norm)

    def _critic_terms(self, batch: dict[str, Any]) -> CriticTerms:
        """Return the terms of a step of the critics."""
        raise NotImplementedError(f"{type(self).__name__} must define _critic_terms")

    def _update_actor(self, batch: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Take a step of the actor, and return its losses and further scalars to log, by name."""
        raise NotImplementedError(f"{type(self).__name__} must define _update_actor")

    def _critic_loss(
        self, q: list[Tensor], next_value: Tensor, batch: dict[str, Any]
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Return the loss of each critic by its name, and the squared TD error [B], averaged over the critics.

        Args:
            q: [B] for each critic.
            next_value: [B], of `next_obs`; used if the sample is not `done`.
        """
        reward, done, weight = batch["reward"], batch["done"], batch["weight"]
        return self._by_critic(
            [v_1step_td_error(v_1step_td_data(one, next_value, reward, done, weight), self._gamma) for one in q]
        )

    def _by_critic(self, terms: Sequence[tuple[Tensor, Tensor]]) -> tuple[dict[str, Tensor], Tensor]:
        """Return, of loss and errors [B] of each critic, the losses by name, and the mean of the errors, detached."""
        error = terms[0][1] if len(terms) == 1 else torch.stack([error for _, error in terms]).mean(0)
        losses = {name: loss for name, (loss, _) in zip(self._critic_loss_names, terms, strict=False)}
        return losses, error.detach()


def q_values(output: Mapping[str, Any], of_choices: bool = False) -> list[Tensor]:
    """Return the values [B] of each critic from the output of a model, or [B, N] of the choices among N actions."""
    q = output["q_value"]
    every = list(q) if isinstance(q, list | tuple) else [q]
    return every if of_choices else list(map(drop_last_axis, every))


def smaller(q: list[Tensor]) -> Tensor:
    """Return the minimum over the critics; see https://arxiv.org/abs/1802.09477."""
    return q[0] if len(q) == 1 else torch.minimum(q[0], q[1])
