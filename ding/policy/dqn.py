"""Deep Q-learning: double, dueling, n-step, prioritized, with or without noisy layers.

Related policies, such as C51, override `_head_error`, the loss of one head.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding.model.wrapper.model_wrappers import mask_logits
from ding.policy.base_policy import BatchPolicy
from ding.policy.common_utils import default_preprocess_learn, linear_lr_scheduler, set_noise_mode
from ding.policy.settings import setting
from ding.rl_utils.adder import get_nstep_return_data, get_train_sample
from ding.rl_utils.td import q_nstep_td_data, q_nstep_td_error
from ding.torch_utils.network.noise_layer import NoiseLinearLayer
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.batch_methods import accepts_pieces
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, boolean, number, one_of
from ding.utils.data.samples import Items
from ding.utils.default_helper import one_time_warning
from ding.utils.registry_factory import POLICY_REGISTRY

_LEARN_KEYS = ("obs", "next_obs", "action", "reward", "done", "terminated", "value_gamma", "weight")
_WEIGHT_KEYS = ("IS", "priority_IS")
_CRITERIA = {"mse": partial(F.mse_loss, reduction="none"), "huber": partial(F.huber_loss, reduction="none")}

# The loss [], the error [B] of each sample, and values to log.
TDError = tuple[Tensor, Tensor, dict[str, Tensor]]


@POLICY_REGISTRY.register("dqn")
class DQNPolicy(BatchPolicy):
    """Double DQN (https://arxiv.org/abs/1509.06461) for discrete and multi-discrete actions.

    The target network is copied every `learn.target_update_freq` iterations, or follows at the rate
    `learn.target_theta` if the frequency is None, or if only `target_theta` differs from its default.

    Example:
        >>> cfg = DQNPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = DQNPolicy(cfg, enable_field=["collect"])
        >>> output = policy.collect_mode.forward({0: torch.zeros(4), 3: torch.zeros(4)}, eps=0.1)
        >>> {env_id: out["action"].shape for env_id, out in output.items()}
        {0: torch.Size([1]), 3: torch.Size([1])}
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "dqn",
            "priority": False,
            "priority_IS_weight": False,
            "discount_factor": 0.97,
            "nstep": 1,
            "noisy_net": Setting(False, boolean, "Explore with noisy layers; needs `model.noise`."),
            "batch_size": NO_DEFAULT,
            "n_sample": NO_DEFAULT,
            "model.encoder_hidden_size_list": Setting([128, 128, 64], doc="Widths of the encoder's layers."),
            "learn.update_per_collect": 3,
            "learn.batch_size": 64,
            "learn.learning_rate": 0.001,
            "learn.target_update_freq": 100,
            "learn.target_theta": Setting(0.005, number(0, 1, optional=True)),
            "learn.ignore_done": False,
            "learn.criterion": Setting("mse", one_of(*_CRITERIA), "Loss of the TD error; 'huber' is linear beyond 1."),
            "learn.grad_clip_type": None,
            "learn.grad_clip_value": None,
            "learn.lr_scheduler": None,
            "learn.lr_scheduler.epoch_num": NO_DEFAULT,
            "learn.lr_scheduler.min_lr_lambda": NO_DEFAULT,
            "collect.n_sample": 8,
            "collect.unroll_len": 1,
            "eval": {},
            "other.eps.type": "exp",
            "other.eps.start": 0.95,
            "other.eps.end": 0.1,
            "other.eps.decay": 10000,
            "other.replay_buffer.replay_buffer_size": 10000,
        },
        BatchPolicy.settings,
    )
    has_discrete_actions: ClassVar[bool | None] = True

    _adam_eps: ClassVar[float] = 1e-8
    _optional_parts: ClassVar[tuple[str, ...]] = ("lr_scheduler",)

    def default_model(self) -> tuple[str, list[str]]:
        return "dqn", ["ding.model.template.q_learning"]

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss", "q_value", "target_q_value"]

    # --- learn ---

    def _init_learn(self) -> None:
        self._init_importance_weights()
        self._gamma = self._cfg.discount_factor
        self._nstep = int(self._cfg.nstep)
        self._learn_keys = frozenset(_LEARN_KEYS + (_WEIGHT_KEYS if self._priority_IS_weight else ()))
        self._criterion = _CRITERIA[self._cfg.learn.get("criterion", "mse")]
        self._init_optimizers()
        update_type, update_kwargs = self._target_update()
        self._init_target(update_type, **update_kwargs)
        self._learn_model = self._wrapped("argmax_sample")

    def _init_optimizers(self) -> None:
        learn = self._cfg.learn
        self._optimizer = Adam(
            self._model.parameters(),
            lr=learn.learning_rate,
            eps=self._adam_eps,
            grad_clip_type=learn.get("grad_clip_type"),
            clip_value=learn.get("grad_clip_value"),
        )
        self._lr_scheduler = linear_lr_scheduler(self._optimizer, learn.get("lr_scheduler"))

    def _target_update(self) -> tuple[str, dict[str, Any]]:
        """Return the target update: that of the key that is set; of two, theta only if it alone is not the default."""
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
        """Take one optimizer step; `priority` is the (by default squared) error of each sample, the rest is logged."""
        batch = self._prepare(data)
        self._mode_of(self._model, self._target_net).set(True)
        if self._cfg.noisy_net:
            renew_noise(self._model)
            renew_noise(self._target_net)
        loss, error, logged = self._td_error(batch, *self._forward_networks(batch))
        self._backward_and_step(loss, self._optimizer, self._model)
        self._target_model.update(self._learn_model)
        cur_lr = self._optimizer.param_groups[0]["lr"]
        if self._lr_scheduler is not None:
            self._lr_scheduler.step()
        total_loss, values, priority = to_numbers(loss, logged, error)
        return {"cur_lr": cur_lr, "total_loss": total_loss, **values, "priority": priority}

    def calculate_priority(self, data: list[dict[str, Any]], update_target_model: bool = False) -> dict[str, Any]:
        """Return `{'priority': [...]}` of train samples without learning from them."""
        if update_target_model:
            self._target_model.update(self._learn_model)
        batch = self._prepare(data)
        self._mode_of(self._model, self._target_net).set(False)
        with torch.no_grad():
            _, error, _ = self._td_error(batch, *self._forward_networks(batch))
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
        return self._on_model(batch, "obs", "next_obs")

    def _forward_networks(self, batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
        """Return the output of the network, the target network's for the next observations, and the next action."""
        output = self._model(batch["obs"])
        with torch.set_grad_enabled(False):  # equivalent to `no_grad`, at half its cost
            next_output = self._target_model.forward(batch["next_obs"])
            next_action = self._learn_model.forward(batch["next_obs"])["action"]
        return output, next_output, next_action

    def _td_error(
        self, batch: dict[str, Any], output: dict[str, Any], next_output: dict[str, Any], next_action: Any
    ) -> TDError:
        """Return loss, error [B] and values to log; for multi-discrete actions, averaged over the heads."""
        q, next_q = output["logit"], next_output["logit"]
        if isinstance(q, Tensor):
            loss, error, logged = self._head_error(batch, output, next_output, batch["action"].long(), next_action)
            means = {"q_value": q.detach().mean(), "target_q_value": next_q.mean()}
        else:
            actions = head_actions(batch["action"])
            heads = zip(split_heads(output), split_heads(next_output), actions, next_action, strict=True)
            errors = [self._head_error(batch, *head) for head in heads]
            loss = torch.stack([head_loss for head_loss, _, _ in errors]).mean()
            error = torch.stack([head_error for _, head_error, _ in errors]).mean(0)
            logged = {name: torch.stack([head[name] for _, _, head in errors]).mean() for name in errors[0][2]}
            means = {"q_value": _mean(q), "target_q_value": _mean(next_q)}
        return loss, error.detach(), {**means, **logged}

    def _head_error(
        self,
        batch: dict[str, Any],
        output: dict[str, Any],
        next_output: dict[str, Any],
        action: Tensor,
        next_action: Tensor,
    ) -> TDError:
        """Return loss, error [B] and additional values to log of one head, whose actions are [B].

        The target is r + gamma (1 - done) q'(s', argmax_a q(s', a)) with q' of the target network.
        """
        td_data = q_nstep_td_data(
            output["logit"], next_output["logit"], action, next_action, batch["reward"], batch["done"], batch["weight"]
        )
        loss, error = q_nstep_td_error(
            td_data, self._gamma, self._nstep, value_gamma=batch.get("value_gamma"), criterion=self._criterion
        )
        return loss, error, {}

    def _learn_parts(self) -> dict[str, Any]:
        parts = {"model": self._learn_model, "target_model": self._target_model, "optimizer": self._optimizer}
        return parts if self._lr_scheduler is None else {**parts, "lr_scheduler": self._lr_scheduler}

    def _state_dict_learn(self) -> dict[str, Any]:
        return {**super()._state_dict_learn(), "target_update_count": self._target_model.update_count}

    def _load_state_dict_learn(self, state_dict: dict[str, Any]) -> None:
        super()._load_state_dict_learn(state_dict)
        self._target_model.reset(target_update_count=state_dict.get("target_update_count"))

    # --- collect ---

    def _init_collect(self) -> None:
        self._gamma = self._cfg.discount_factor
        self._nstep = int(self._cfg.nstep)
        self._collect_model = self._wrapped("eps_greedy_sample")

    def _act_collect(  # type: ignore[override]
        self, obs: Any, env_ids: list[int], eps: float
    ) -> dict[str, Any]:
        """Act epsilon-greedily, and return per env `action` [1] int64 and `logit` [N] (multi-discrete: tuples)."""
        if self._cfg.noisy_net:
            set_noise_mode(self._model, True)
        return self._forward_batch(self._collect_model, obs, eps=eps, **self._collect_kwargs)

    @accepts_pieces
    def _get_train_sample(self, transitions: Items) -> Any:
        samples = get_nstep_return_data(transitions, self._nstep, gamma=self._gamma)
        return get_train_sample(samples, self._unroll_len)

    # --- eval ---

    def _init_eval(self) -> None:
        self._eval_model = self._wrapped("argmax_sample")

    def _act_eval(self, obs: Any, env_ids: list[int]) -> dict[str, Any]:
        """Act greedily; the output is as in `_act_collect`."""
        set_noise_mode(self._model, False)
        return self._forward_batch(self._eval_model, obs)


def renew_noise(module: nn.Module) -> None:
    """Enable the noise of every noisy layer and resample it."""
    for layer in module.modules():
        if isinstance(layer, NoiseLinearLayer):
            layer.enable_noise = True
            layer.reset_noise()


def to_numbers(loss: Tensor, logged: dict[str, Tensor], error: Tensor) -> tuple[float, dict[str, float], list[float]]:
    """Convert a loss, values to log and the errors [B] to Python numbers in one transfer."""
    total_loss, *numbers = torch.cat((torch.stack((loss, *logged.values())), error)).tolist()
    return total_loss, dict(zip(logged, numbers, strict=False)), numbers[len(logged) :]


def split_heads(output: dict[str, Any]) -> list[dict[str, Any]]:
    """Split the output of a multi-head model, whose entries are lists, into one output per head."""
    return [
        {name: value[head] for name, value in output.items() if isinstance(value, list | tuple)}
        for head in range(len(output["logit"]))
    ]


def legal_logit(output: dict[str, Any]) -> Tensor:
    """Return the `logit` of one head, with illegal actions (by `action_mask`) set far below all others."""
    logit: Tensor = output["logit"]
    if "action_mask" in output:
        logit = logit.clone()
        mask_logits({"logit": logit, "action_mask": output["action_mask"]})
    return logit


def _mean(logits: list[Tensor]) -> Tensor:
    """Return the mean of the means of several heads."""
    return torch.stack([logit.detach().mean() for logit in logits]).mean()


def head_actions(action: Any) -> list[Tensor]:
    """Return the actions [B] per head, from a tensor [B, K] or K tensors [B] or [B, 1]."""
    heads = action.unbind(-1) if isinstance(action, Tensor) else action
    return [head.reshape(-1).long() for head in heads]
