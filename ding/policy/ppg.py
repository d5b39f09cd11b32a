"""Phasic policy gradient with two replay buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ding.model.wrapper.model_wrappers import mask_logits
from ding.policy.actor_critic import ActorCriticPolicy
from ding.policy.common_utils import is_end
from ding.policy.on_policy_data import narrow, take
from ding.policy.ppo import normalised
from ding.policy.training_step import Learned
from ding.rl_utils.adder import get_gae_with_default_last_value
from ding.rl_utils.ppo import (
    ppg_data,
    ppg_joint_error,
    ppo_policy_data,
    ppo_policy_error,
    ppo_value_data,
    ppo_value_error,
)
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.batch_methods import accepts_fragments
from ding.utils.config_helper import Setting, Settings, integer, number, one_of
from ding.utils.data.samples import Column, Items, Kind, last_rows, with_columns
from ding.utils.registry_factory import POLICY_REGISTRY

_BUFFERS = ("policy", "value")


@POLICY_REGISTRY.register("ppg_offpolicy")
class PPGOffPolicy(ActorCriticPolicy):
    """Phasic policy gradient (https://arxiv.org/abs/2009.04416) for discrete actions, on samples of replay buffers.

    In the policy phase the actor learns from a batch of the buffer 'policy' by the clipped loss of PPO, and the
    separate critic, `aux_critic` of the model, learns the returns of a batch of the buffer 'value'. After every
    `learn.aux_freq`-th iteration follows an auxiliary phase of `learn.aux_train_epoch` epochs over the batches that the
    buffer 'value' gave since the last one: the critic of the actor's own network learns the returns, too, while a
    divergence term keeps the policy in place.

    Example:
        >>> cfg = PPGOffPolicy.default_config()
        >>> cfg.model.update(obs_shape=4, action_shape=2)
        >>> policy = PPGOffPolicy(cfg, enable_field=["learn", "collect"])
        >>> policy.learn_mode.get_attribute("batch_size")
        {'policy': 64, 'value': 64}
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "ppg_offpolicy",
            "transition_with_policy_data": True,
            "action_space": Setting(rule=one_of("discrete"), doc="Kind of actions."),
            "learn.update_per_collect": 5,
            "learn.batch_size": Setting(doc="Number of samples of each buffer in a batch."),
            "learn.learning_rate": 0.001,
            "learn.entropy_weight": Setting(rule=number(0)),
            "learn.clip_ratio": 0.2,
            "learn.aux_freq": Setting(5, integer(1), "Number of iterations between two auxiliary phases."),
            "learn.aux_train_epoch": Setting(6, integer(1), "Number of epochs of such a phase."),
            "learn.aux_bc_weight": Setting(1, number(0), "Weight of the divergence from the old policy in this phase."),
            "other.replay_buffer.multi_buffer": Setting(True, doc="Use a buffer for each name in this section."),
            "other.replay_buffer.policy.replay_buffer_size": 1000,
            "other.replay_buffer.value.replay_buffer_size": 1000,
        },
        ActorCriticPolicy.settings,
    )

    _learn_keys = ("obs", "adv", "weight")
    _learn_values: ClassVar[tuple[str, ...]] = ("_train_iteration", "_aux_memories")
    _optimizer_names: ClassVar[Mapping[str, tuple[str, str]]] = {
        "_optimizer_ac": ("optimizer_ac", "policy_cur_lr"),
        "_optimizer_aux_critic": ("optimizer_aux_critic", "value_cur_lr"),
    }

    def default_model(self) -> tuple[str, list[str]]:
        return "ppg", ["ding.model.template.vac"]

    def _monitor_vars_learn(self) -> list[str]:
        return [
            *("policy_cur_lr", "value_cur_lr", "policy_loss", "value_loss", "entropy_loss", "policy_adv_abs_max"),
            *("approx_kl", "clipfrac", "aux_value_loss", "auxiliary_loss", "behavioral_cloning_loss"),
        ]

    def _get_batch_size(self) -> dict[str, int]:
        return dict.fromkeys(_BUFFERS, super()._get_batch_size())

    # --- learn ---

    def _init_learn(self) -> None:
        model: Any = self._model
        self._optimizer_ac = Adam(model.actor_critic.parameters(), lr=self._cfg.learn.learning_rate)
        self._optimizer_aux_critic = Adam(model.aux_critic.parameters(), lr=self._cfg.learn.learning_rate)
        self._learn_model = self._wrapped("base")
        self._train_iteration = 0
        self._aux_memories: list[dict[str, Any]] = []  # batches for the auxiliary phase

    def _prepare(self, data: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
        """Collate the samples of each buffer.

        Raises:
            ValueError: one of the two batches is missing or empty.
        """
        if not isinstance(data, Mapping) or any(name not in data for name in _BUFFERS):
            raise ValueError(
                f"{type(self).__name__} learns from a dict with a batch of train samples for each of "
                f"{', '.join(_BUFFERS)}, not from a {type(data).__name__}"
            )
        collate = super()._prepare
        return {name: collate(data[name]) for name in _BUFFERS}

    def _update(self, batch: dict[str, dict[str, Any]]) -> Learned:
        """Take one step of the actor on the samples of `policy`, and one of the critic on those of `value`.

        An auxiliary phase adds `aux_value_loss, auxiliary_loss` and `behavioral_cloning_loss`, averaged over its steps.
        """
        learn, acted, valued = self._cfg.learn, batch["policy"], batch["value"]
        adv = normalised(acted["adv"]) if learn.adv_norm else acted["adv"]
        policy_data = ppo_policy_data(
            self._logit(acted["obs"]), acted["logit"], acted["action"], adv, acted["weight"], None
        )
        loss, info = ppo_policy_error(policy_data, learn.clip_ratio)
        policy_total = loss.policy_loss - learn.entropy_weight * loss.entropy_loss
        self._backward_and_step(policy_total, self._optimizer_ac)
        memory = {key: valued[key] for key in ("obs", "action", "value", "weight")}
        memory["return_"] = valued["value"] + valued["adv"]
        value_loss = learn.value_weight * self._critic_error(memory)
        self._backward_and_step(value_loss, self._optimizer_aux_critic)
        values = {
            "policy_loss": loss.policy_loss,
            "value_loss": value_loss,
            "entropy_loss": loss.entropy_loss,
            "policy_adv_abs_max": adv.abs().max(),
            "total_loss": policy_total + value_loss,
        }
        others = {"approx_kl": info.approx_kl, "clipfrac": info.clipfrac}
        self._train_iteration += 1
        self._aux_memories.append(memory)
        if self._train_iteration % learn.aux_freq == 0:
            others |= self._learn_aux()
        return Learned(values, others=others)

    def _learn_aux(self) -> dict[str, float]:
        """Run the auxiliary phase on all stored batches, and clear them."""
        learn, size = self._cfg.learn, self._cfg.learn.batch_size
        memory = _joined(self._aux_memories)
        self._aux_memories.clear()
        total = len(memory["action"])
        with torch.no_grad():
            parts = [narrow(memory["obs"], start, min(size, total - start)) for start in range(0, total, size)]
            memory["logit"] = torch.cat([self._logit(part) for part in parts])
        losses = []
        for _ in range(learn.aux_train_epoch):
            shuffled = take(memory, torch.from_numpy(self._rng.permutation(total)).to(memory["action"].device))
            for start in range(0, total, size):
                batch = narrow(shuffled, start, min(size, total - start))
                output = self._learn_model.forward(batch["obs"], mode="compute_actor_critic")
                mask_logits(output)
                logit, value, old_value, return_ = output["logit"], output["value"], batch["value"], batch["return_"]
                joint = ppg_joint_error(
                    ppg_data(logit, batch["logit"], batch["action"], value, old_value, return_, batch["weight"]),
                    learn.clip_ratio,
                )
                joint_loss = joint.auxiliary_loss + learn.aux_bc_weight * joint.behavioral_cloning_loss
                self._backward_and_step(joint_loss, self._optimizer_ac)
                value_loss = self._critic_error(batch)
                self._backward_and_step(value_loss, self._optimizer_aux_critic)
                losses.append(torch.stack([value_loss, *joint]).detach())
        means = torch.stack(losses).mean(0).tolist()
        return dict(zip(("aux_value_loss", "auxiliary_loss", "behavioral_cloning_loss"), means, strict=True))

    def _logit(self, obs: Any) -> Tensor:
        output = self._learn_model.forward(obs, mode="compute_actor")
        mask_logits(output)
        logit: Tensor = output["logit"]
        return logit

    def _critic_error(self, batch: Mapping[str, Any]) -> Tensor:
        """Return the loss of `aux_critic` on `obs, value, return_` and `weight`."""
        value = self._learn_model.forward(batch["obs"], mode="compute_critic")["value"]
        value_data = ppo_value_data(value, batch["value"], batch["return_"], batch["weight"])
        return ppo_value_error(value_data, self._cfg.learn.clip_ratio)

    # --- collect ---

    @accepts_fragments
    def _get_train_sample(self, transitions: Items) -> Any:
        """Add `adv` [1] and `buffer_name`, the buffers for which a sample is meant.

        The last transition of an unfinished fragment is dropped: its value serves as the bootstrap value.
        """
        if not transitions:
            return []
        done = is_end(transitions)[last_rows(transitions)] & (not self._cfg.learn.ignore_done)
        samples = get_gae_with_default_last_value(transitions, done, self._gamma, self._gae_lambda, self._cuda)
        return with_columns(samples, buffer_name=Column(Kind.OBJECT, [list(_BUFFERS) for _ in range(len(samples))]))


def _joined(batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Concatenate batches; an entry that is None in one is None in the result."""

    def join(parts: Sequence[Any]) -> Any:
        if isinstance(parts[0], Mapping):
            return {key: join([part[key] for part in parts]) for key in parts[0]}
        return None if parts[0] is None else torch.cat(list(parts))

    return {key: join([batch[key] for batch in batches]) for key in batches[0]}
