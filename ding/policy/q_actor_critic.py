"""Base class of off-policy actor-critic methods: networks, target networks, batches, the critic loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding.policy.base_policy import BatchPolicy
from ding.policy.common_utils import default_preprocess_learn
from ding.rl_utils.td import v_1step_td_data, v_1step_td_error
from ding.utils.config_helper import NO_DEFAULT, ConfigError, Setting, Settings, boolean


class QActorCriticPolicy(BatchPolicy):
    """Base of policies that learn off policy with a model like `ding.model.template.qac.ContinuousQAC`.

    Such a model has the modes `compute_actor` and `compute_critic`, and the attributes `actor` and `critic`, modules
    that hold the parameters of each. The target networks follow at the rate `learn.target_theta`.

    A subclass creates its optimizers in `_init_learn` after calling the base method, and lists them in `_optimizers`.
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
    # Keys of samples, in addition to `_output_keys` and importance weights.
    learn_keys: ClassVar[tuple[str, ...]] = ("obs", "next_obs", "reward", "done", "terminated", "weight")
    uses_nstep: ClassVar[bool] = False
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
        return bool(getattr(self._model, "twin_critic", self._cfg.model.get("twin_critic", False)))

    # --- learn ---

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._init_importance_weights()
        self._gamma = learn.discount_factor
        self._batch_keys = frozenset(self.learn_keys + (("IS", "priority_IS") if self._priority_IS_weight else ()))
        # Created once: a model of another structure needs a new policy.
        self._actor_parameters, self._critic_parameters = (
            list(part.parameters()) for part in (self._part("actor"), self._part("critic"))
        )
        self._init_target("momentum", theta=learn.target_theta)
        self._learn_model = self._wrapped("base")

    def _part(self, name: str) -> Any:
        part = getattr(self._model, name, None)
        if part is None:
            raise ConfigError(
                f"{type(self).__name__} needs a model with the attributes actor and critic, the modules that hold the "
                f"parameters of each; {type(self._model).__name__} has no {name}"
            )
        return part

    def _prepare(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate the samples on the device of the model, and set both networks to training mode."""
        batch = default_preprocess_learn(
            data,
            use_priority_IS_weight=self._priority_IS_weight,
            use_priority=self._priority,
            use_nstep=self.uses_nstep,
            ignore_done=self._cfg.learn.ignore_done,
            keys=self._batch_keys.union(self._output_keys),
        )
        batch = self._on_model(batch, "obs", "next_obs")
        if self.has_discrete_actions is not True:
            batch["action"] = self._real_valued(batch["action"])
        self._mode_of(self._model, self._target_net).set(True)
        return batch

    def _real_valued(self, action: Any) -> Any:
        """Convert `action` to the dtype of the model; for a hybrid action, its arguments."""
        if isinstance(action, Mapping):
            return {**action, "action_args": self._model_input(action["action_args"], integers=True)}
        return self._model_input(action, integers=True)

    def _critic_loss(self, q: list[Tensor], next_value: Tensor, batch: dict[str, Any]) -> tuple[list[Tensor], Tensor]:
        """Return the loss of each critic and the squared TD error [B], averaged over the critics.

        Args:
            q: [B] for each critic.
            next_value: [B], of `next_obs`; used if the sample is not `done`.
        """
        reward, done, weight = batch["reward"], batch["done"], batch["weight"]
        losses, errors = zip(
            *[v_1step_td_error(v_1step_td_data(one, next_value, reward, done, weight), self._gamma) for one in q],
            strict=True,
        )
        error = errors[0] if len(errors) == 1 else torch.stack(errors).mean(0)
        return list(losses), error.detach()

    def _step_critic(self, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
        parameters = self._critic_parameters
        self._backward_and_step(loss, optimizer, parameters, parameters, self._max_grad_norm)

    def _step_actor(self, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
        """Take one step on a loss that passes through the critic, without gradients for the critic's parameters."""
        parameters = self._actor_parameters
        self._backward_and_step(loss, optimizer, parameters, parameters, self._max_grad_norm)

    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Return the optimizers by their keys in the state."""
        raise NotImplementedError(f"{type(self).__name__} must define _optimizers")

    def _learn_parts(self) -> dict[str, Any]:
        return {"model": self._learn_model, "target_model": self._target_model, **self._optimizers()}


def q_values(output: Mapping[str, Any]) -> list[Tensor]:
    """Return the values of each critic from the output of a model."""
    q = output["q_value"]
    return list(q) if isinstance(q, list | tuple) else [q]


def smaller(q: list[Tensor]) -> Tensor:
    """Return the minimum over the critics; see https://arxiv.org/abs/1802.09477."""
    return q[0] if len(q) == 1 else torch.minimum(q[0], q[1])
