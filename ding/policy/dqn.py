"""Deep Q-learning: double, dueling, n-step, prioritized, with or without noisy layers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding.model.wrapper.model_wrappers import model_wrap
from ding.policy.base_policy import Policy
from ding.policy.common_utils import default_preprocess_learn, set_noise_mode
from ding.policy.modes import plain_transition
from ding.policy.settings import positive, setting
from ding.rl_utils.adder import get_nstep_return_data, get_train_sample
from ding.rl_utils.td import q_nstep_td_data, q_nstep_td_error
from ding.torch_utils.data_helper import to_device
from ding.torch_utils.network.noise_layer import NoiseLinearLayer
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.config_helper import ConfigError, Rule, boolean, integer, number
from ding.utils.default_helper import one_time_warning
from ding.utils.registry_factory import POLICY_REGISTRY

_LEARN_KEYS = ("obs", "next_obs", "action", "reward", "done", "terminated", "value_gamma", "weight")
_WEIGHT_KEYS = ("IS", "priority_IS")


@POLICY_REGISTRY.register("dqn")
class DQNPolicy(Policy):
    """Double DQN (https://arxiv.org/abs/1509.06461) for discrete and multi-discrete actions.

    The target network is copied every `learn.target_update_freq` iterations, or follows with the rate
    `learn.target_theta` where the frequency is None, or where only `target_theta` differs from its default.

    Example:
        >>> cfg = DQNPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = DQNPolicy(cfg, enable_field=["collect"])
        >>> output = policy.collect_mode.forward({0: torch.zeros(4), 3: torch.zeros(4)}, eps=0.1)
        >>> {env_id: out["action"].shape for env_id, out in output.items()}
        {0: torch.Size([1]), 3: torch.Size([1])}
    """

    config: ClassVar[dict[str, Any]] = {
        "type": "dqn",
        "cuda": False,
        "on_policy": False,
        # Sample by priority, and correct for it with importance weights (which needs priority).
        "priority": False,
        "priority_IS_weight": False,
        "discount_factor": 0.97,
        "nstep": 1,
        # Explore with noisy linear layers; the model must have them (model.noise=True).
        "noisy_net": False,
        "model": {"encoder_hidden_size_list": [128, 128, 64]},
        "learn": {
            # Iterations per collection.
            "update_per_collect": 3,
            "batch_size": 64,
            "learning_rate": 0.001,
            # Iterations between two copies to the target network; None: target_theta decides.
            "target_update_freq": 100,
            # Share of the online network that flows into the target network per iteration.
            "target_theta": 0.005,
            # Bootstrap from terminal states too.
            "ignore_done": False,
        },
        "collect": {
            # Train samples per collection.
            "n_sample": 8,
            "unroll_len": 1,
        },
        "eval": {},
        "other": {
            # Epsilon over env steps; type is 'exp' or 'linear'.
            "eps": {"type": "exp", "start": 0.95, "end": 0.1, "decay": 10000},
            "replay_buffer": {"replay_buffer_size": 10000},
        },
    }
    has_discrete_actions: ClassVar[bool | None] = True
    setting_rules: ClassVar[Mapping[str, Rule]] = {
        "priority_IS_weight": boolean,
        "discount_factor": number(0, 1),
        "nstep": integer(1),
        "noisy_net": boolean,
        "batch_size": integer(1),
        "n_sample": integer(1, optional=True),
        "learn.update_per_collect": integer(1),
        "learn.batch_size": integer(1),
        "learn.learning_rate": positive,
        "learn.target_update_freq": integer(1, optional=True),
        "learn.target_theta": number(0, 1, optional=True),
        "learn.ignore_done": boolean,
        "collect.n_sample": integer(1, optional=True),
    }

    def default_model(self) -> tuple[str, list[str]]:
        return "dqn", ["ding.model.template.q_learning"]

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss", "q_value", "target_q_value"]

    # --- learn ---

    def _init_learn(self) -> None:
        self._priority_IS_weight = self._cfg.priority_IS_weight
        if self._priority_IS_weight and not self._priority:
            raise ConfigError(f"{type(self).__name__}: priority_IS_weight = True is not allowed with priority = False")
        self._gamma = self._cfg.discount_factor
        self._nstep = int(self._cfg.nstep)
        self._learn_keys = frozenset(_LEARN_KEYS + (_WEIGHT_KEYS if self._priority_IS_weight else ()))
        self._optimizer = Adam(self._model.parameters(), lr=self._cfg.learn.learning_rate)
        update_type, update_kwargs = self._target_update()
        self._target_net = copy.deepcopy(self._model)
        self._target_model = model_wrap(
            self._target_net, wrapper_name="target", update_type=update_type, update_kwargs=update_kwargs
        )
        self._learn_model = model_wrap(self._model, wrapper_name="argmax_sample")
        self._learn_model.reset()
        self._target_model.reset()

    def _target_update(self) -> tuple[str, dict[str, Any]]:
        """Which update key counts: the one that is set; of two, theta only where it alone is not the default."""
        learn = self._cfg.learn
        freq, theta = learn.get("target_update_freq"), learn.get("target_theta")
        if freq is None and theta is None:
            raise RuntimeError(
                f"{type(self).__name__}: set learn.target_update_freq (iterations) or learn.target_theta (a rate)"
            )
        defaults = self._merged_config()
        default_freq = setting(defaults, "learn.target_update_freq")
        default_theta = setting(defaults, "learn.target_theta")
        if freq is None or (theta is not None and freq == default_freq and theta != default_theta):
            return "momentum", {"theta": theta}
        if theta not in (None, default_theta):
            one_time_warning(
                f"{type(self).__name__}: learn.target_theta = {theta} has no effect beside learn.target_update_freq = "
                f"{freq}; set the one that is not wanted to None"
            )
        return "assign", {"freq": freq}

    def _forward_learn(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        """One double-DQN step; `priority` is the squared TD error of each sample, the rest is to be logged."""
        batch = self._prepare(data)
        self._set_training(True)
        if self._cfg.noisy_net:
            _renew_noise(self._model)
            _renew_noise(self._target_net)
        loss, error, q, target_q = self._td_error(batch)
        self._backward_and_step(loss, self._optimizer, self._model)
        self._target_model.update(self._learn_model)
        logged = [value.view(1) for value in (loss.detach(), _mean(q), _mean(target_q))]
        total_loss, q_value, target_q_value, *priority = torch.cat([*logged, error]).tolist()
        return {
            "cur_lr": self._optimizer.param_groups[0]["lr"],
            "total_loss": total_loss,
            "q_value": q_value,
            "target_q_value": target_q_value,
            "priority": priority,
        }

    def calculate_priority(self, data: list[dict[str, Any]], update_target_model: bool = False) -> dict[str, Any]:
        """`{'priority': [...]}` of train samples, without learning from them."""
        if update_target_model:
            self._target_model.update(self._learn_model)
        batch = self._prepare(data)
        self._set_training(False)
        with torch.no_grad():
            _, error, _, _ = self._td_error(batch)
        return {"priority": error.tolist()}

    def _prepare(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        batch = default_preprocess_learn(
            data,
            use_priority_IS_weight=self._priority_IS_weight,
            use_priority=self._priority,
            use_nstep=True,
            ignore_done=self._cfg.learn.ignore_done,
            keys=self._learn_keys,
        )
        if self._cuda:
            batch = to_device(batch, self._device)
        batch["obs"] = self._model_input(batch["obs"])
        batch["next_obs"] = self._model_input(batch["next_obs"])
        return batch

    def _set_training(self, training: bool) -> None:
        self._mode_of(self._model).set(training)
        self._mode_of(self._target_net).set(training)

    def _td_error(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor, Any, Any]:
        """`(loss, error [B], q, target q)`; for multi-discrete actions loss and error are means over the heads."""
        q = self._model(batch["obs"])["logit"]
        with torch.no_grad():
            target_q = self._target_model.forward(batch["next_obs"])["logit"]
            next_action = self._learn_model.forward(batch["next_obs"])["action"]
        if isinstance(q, Tensor):
            loss, error = self._head_error(batch, q, target_q, _indices(batch["action"]), next_action)
        else:
            heads = zip(q, target_q, _head_actions(batch["action"]), next_action, strict=True)
            losses, errors = zip(*[self._head_error(batch, *head) for head in heads], strict=True)
            loss, error = torch.stack(losses).mean(), torch.stack(errors).mean(0)
        return loss, error.detach(), q, target_q

    def _head_error(
        self, batch: dict[str, Any], q: Tensor, target_q: Tensor, action: Tensor, next_action: Tensor
    ) -> tuple[Tensor, Tensor]:
        td_data = q_nstep_td_data(q, target_q, action, next_action, batch["reward"], batch["done"], batch["weight"])
        return q_nstep_td_error(td_data, self._gamma, nstep=self._nstep, value_gamma=batch.get("value_gamma"))

    def _state_dict_learn(self) -> dict[str, Any]:
        return {
            "model": self._learn_model.state_dict(),
            "target_model": self._target_model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }

    def _load_state_dict_learn(self, state_dict: dict[str, Any]) -> None:
        self._learn_model.load_state_dict(state_dict["model"], strict=True)
        self._target_model.load_state_dict(state_dict["target_model"], strict=True)
        self._optimizer.load_state_dict(state_dict["optimizer"])

    # --- collect ---

    def _init_collect(self) -> None:
        self._gamma = self._cfg.discount_factor
        self._nstep = int(self._cfg.nstep)
        self._collect_model = model_wrap(self._model, wrapper_name="eps_greedy_sample")
        self._collect_model.reset()

    def _forward_collect(self, data: dict[int, Any], eps: float) -> dict[int, Any]:
        """Act epsilon-greedily; per env `action` [1] int64 and `logit` [N], or tuples of them (multi-discrete)."""
        if self._cfg.noisy_net:
            set_noise_mode(self._model, True)
        return self._forward_envs(self._collect_model, data, eps=eps)

    @plain_transition("action")
    def _process_transition(self, obs: Any, policy_output: dict[str, Any], timestep: Any) -> dict[str, Any]:
        return {
            "obs": obs,
            "next_obs": timestep.obs,
            "action": policy_output["action"],
            "reward": timestep.reward,
            "done": timestep.done,
        }

    def _get_train_sample(self, transitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        samples = get_nstep_return_data(transitions, self._nstep, gamma=self._gamma)
        return get_train_sample(samples, self._unroll_len)

    # --- eval ---

    def _init_eval(self) -> None:
        self._eval_model = model_wrap(self._model, wrapper_name="argmax_sample")
        self._eval_model.reset()

    def _forward_eval(self, data: dict[int, Any]) -> dict[int, Any]:
        """Act greedily; output as `_forward_collect`."""
        set_noise_mode(self._model, False)
        return self._forward_envs(self._eval_model, data)


def _renew_noise(module: nn.Module) -> None:
    """Switch the noise of every noisy layer on, and draw it anew."""
    for layer in module.modules():
        if isinstance(layer, NoiseLinearLayer):
            layer.enable_noise = True
            layer.reset_noise()


def _mean(logit: Any) -> Tensor:
    """The mean over all values; of several heads, the mean of their means."""
    if isinstance(logit, Tensor):
        return logit.detach().mean()
    return torch.stack([head.detach().mean() for head in logit]).mean()


def _indices(action: Tensor) -> Tensor:
    return action if action.dtype is torch.int64 else action.long()


def _head_actions(action: Any) -> list[Tensor]:
    """Per head the actions [B], from a tensor [B, K] or K tensors [B] or [B, 1]."""
    heads = action.unbind(-1) if isinstance(action, Tensor) else action
    return [_indices(head.reshape(-1)) for head in heads]
