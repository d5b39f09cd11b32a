"""Deep Q-learning: double, dueling, n-step, prioritized, with or without noisy layers; BDQ and DQfD.

Related policies, such as C51, override `_head_error`, the loss of one head.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ding.model.wrapper.model_wrappers import mask_logits
from ding.policy.base_policy import BatchPolicy
from ding.policy.common_utils import bootstraps, set_noise_mode
from ding.policy.training_step import Learned
from ding.rl_utils.adder import get_nstep_return_data, get_train_sample
from ding.rl_utils.td import (
    bdq_nstep_td_error,
    dqfd_nstep_td_data,
    dqfd_nstep_td_error,
    q_nstep_td_data,
    q_nstep_td_error,
)
from ding.torch_utils.network.fast_modules import set_training
from ding.torch_utils.network.nn_module import NoiseLinearLayer
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.batch_methods import accepts_fragments
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, boolean, integer, number, one_of, positive, value_at
from ding.utils.data.nested import is_container
from ding.utils.data.samples import Column, Items, Kind, like, node_items, pack, rows_of, table_of, values_of
from ding.utils.default_helper import one_time_warning
from ding.utils.registry_factory import POLICY_REGISTRY

_CRITERIA: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": lambda value, target: (value - target).square(),
    "huber": partial(F.huber_loss, reduction="none"),
}
_CRITERION = "mse"

# The loss [], the error [B] of each sample, and values to log.
TDError = tuple[Tensor, Tensor, dict[str, Tensor]]


class HeadInputs(NamedTuple):
    """What the loss of one head is computed from, for B samples. Only multi-discrete actions have several heads.

    Attributes:
        batch: the samples, with `reward` [n, B], `done` [B], and `weight` [B] or None.
        output: the output of the network for `obs`.
        next_output: the output of the target network for `next_obs`.
        action: [B], of the samples.
        next_action: [B], by which `next_output` is evaluated.
    """

    batch: dict[str, Any]
    output: dict[str, Any]
    next_output: dict[str, Any]
    action: Tensor
    next_action: Tensor


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
            "learn.criterion": Setting(
                _CRITERION, one_of(*_CRITERIA), "Loss of the TD error; 'huber' is linear beyond 1."
            ),
            "learn.grad_clip_type": None,
            "learn.grad_clip_value": None,
            "learn.lr_scheduler": None,
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

    _learn_keys = (*BatchPolicy._learn_keys, "value_gamma")
    _uses_nstep = True
    _collect_wrapper = "eps_greedy_sample"
    _eval_wrapper = "argmax_sample"
    # The name under which the mean value of the target network is logged.
    _target_value_name: ClassVar[str] = "target_q_value"

    def default_model(self) -> tuple[str, list[str]]:
        return "dqn", ["ding.model.template.q_learning"]

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss", "q_value", "target_q_value"]

    # --- learn ---

    def _init_learn(self) -> None:
        self._init_importance_weights()
        self._gamma = self._cfg.discount_factor
        self._nstep = int(self._cfg.nstep)
        self._criterion = _CRITERIA[self._cfg.learn.get("criterion", _CRITERION)]
        self._init_optimizers()
        freq, theta = self._target_update()
        self._init_target(freq, theta)
        self._learn_model = self._wrapped("argmax_sample")

    def _init_optimizers(self) -> None:
        learn = self._cfg.learn
        self._optimizer = Adam(
            self._model.parameters(),
            lr=learn.learning_rate,
            grad_clip_type=learn.get("grad_clip_type"),
            clip_value=learn.get("grad_clip_value"),
            **self._adam_options(),
        )

    def _adam_options(self) -> dict[str, Any]:
        """Return further options of the optimizer."""
        return {}

    def _target_update(self) -> tuple[int | None, float | None]:
        """Return frequency and rate of the target update, one of which counts.

        It is the key that is set; of two, theta only if it alone is not the default.
        """
        learn = self._cfg.learn
        freq, theta = learn.get("target_update_freq"), learn.get("target_theta")
        if freq is None and theta is None:
            raise RuntimeError(
                f"{type(self).__name__}: set learn.target_update_freq (iterations) or learn.target_theta (a rate)"
            )
        defaults = self._merged_config()
        default_freq = value_at(defaults, "learn.target_update_freq")
        default_theta = value_at(defaults, "learn.target_theta")
        if freq is None or (theta is not None and freq == default_freq and theta != default_theta):
            return None, theta
        if theta not in (None, default_theta):
            one_time_warning(
                f"{type(self).__name__}: learn.target_theta = {theta} has no effect beside learn.target_update_freq = "
                f"{freq}; set the one that you do not want to None"
            )
        return freq, theta

    def _update(self, batch: dict[str, Any]) -> Learned:
        """Take one step; `priority` is the (by default squared) error of each sample."""
        if self._cfg.noisy_net:
            renew_noise(self._model)
            renew_noise(self._target_net)
        loss, error, logged = self._td_error(self._heads(batch))
        self._backward_and_step(loss, self._optimizer, self._model)
        return Learned({"total_loss": loss, **logged}, error)

    def calculate_priority(self, data: list[dict[str, Any]], update_target_model: bool = False) -> dict[str, Any]:
        """Return `{'priority': [...]}` of train samples without learning from them."""
        if update_target_model:
            self._target_model.update(self._learn_model)
        batch = self._prepare(data)
        set_training(self._model, False)
        set_training(self._target_net, False)
        with torch.no_grad():
            _, error, _ = self._td_error(self._heads(batch))
        return {"priority": error.tolist()}

    def _forward_networks(self, batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
        """Return the output of the network, the target network's for the next observations, and the next action."""
        output = self._model(batch["obs"])
        with torch.set_grad_enabled(False):  # equivalent to `no_grad`, at half its cost
            next_output = self._target_model.forward(batch["next_obs"])
            next_action = self._learn_model.forward(batch["next_obs"])["action"]
        return output, next_output, next_action

    def _heads(self, batch: dict[str, Any]) -> list[HeadInputs]:
        """Forward the networks, and return what each head has of their output."""
        output, next_output, next_action = self._forward_networks(batch)
        if isinstance(output["logit"], Tensor):
            return [HeadInputs(batch, output, next_output, batch["action"].long(), next_action)]
        outputs, next_outputs, actions = split_heads(output), split_heads(next_output), head_actions(batch["action"])
        return [HeadInputs(batch, outputs[i], next_outputs[i], actions[i], next_action[i]) for i in range(len(outputs))]

    def _td_error(self, heads: list[HeadInputs]) -> TDError:
        """Return loss, error [B] and values to log, averaged over the heads."""
        losses, errors, values = [], [], []
        for head in heads:
            loss, error, logged = self._head_error(head)
            means = {"q_value": head.output["logit"].detach().mean()}
            means[self._target_value_name] = head.next_output["logit"].mean()
            losses.append(loss)
            errors.append(error.detach())
            values.append({**means, **logged})
        if len(heads) == 1:
            return losses[0], errors[0], values[0]
        mean_values = {name: torch.stack([logged[name] for logged in values]).mean() for name in values[0]}
        return torch.stack(losses).mean(), torch.stack(errors).mean(0), mean_values

    def _head_error(self, head: HeadInputs) -> TDError:
        """Return loss, error [B] and additional values to log of one head.

        The target is r + gamma (1 - done) q'(s', argmax_a q(s', a)) with q' of the target network.
        """
        batch, q, next_q = head.batch, head.output["logit"], head.next_output["logit"]
        data = q_nstep_td_data(
            q, next_q, head.action, head.next_action, batch["reward"], batch["done"], batch["weight"]
        )
        loss, error = q_nstep_td_error(
            data, self._gamma, self._nstep, value_gamma=batch.get("value_gamma"), criterion=self._criterion
        )
        return loss, error, {}

    # --- collect ---

    def _init_collect(self) -> None:
        self._gamma = self._cfg.discount_factor
        self._nstep = int(self._cfg.nstep)
        super()._init_collect()

    def _act_collect(  # type: ignore[override]
        self, obs: Any, env_ids: list[int], eps: float
    ) -> dict[str, Any]:
        """Act epsilon-greedily, and return per env `action` [1] int64 and `logit` [N] (multi-discrete: tuples)."""
        if self._cfg.noisy_net:
            set_noise_mode(self._model, True)
        return self._forward_batch(self._collect_model, obs, eps=eps, **self._collect_kwargs)

    @accepts_fragments
    def _get_train_sample(self, transitions: Items) -> Any:
        samples = get_nstep_return_data(transitions, self._nstep, gamma=self._gamma)
        return get_train_sample(samples, self._unroll_len)

    # --- eval ---

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


def split_heads(output: dict[str, Any]) -> list[dict[str, Any]]:
    """Split the output of a multi-head model, whose entries are lists, into one output per head."""
    return [
        {name: value[head] for name, value in output.items() if is_container(value)}
        for head in range(len(output["logit"]))
    ]


def legal_logit(output: dict[str, Any]) -> Tensor:
    """Return the `logit` of one head, with illegal actions (by `action_mask`) set far below all others."""
    logit: Tensor = output["logit"]
    if "action_mask" in output:
        logit = logit.clone()
        mask_logits({"logit": logit, "action_mask": output["action_mask"]})
    return logit


def head_actions(action: Any) -> list[Tensor]:
    """Return the actions [B] per head, from a tensor [B, K] or K tensors [B] or [B, 1]."""
    heads = action.unbind(-1) if isinstance(action, Tensor) else action
    return [head.reshape(-1).long() for head in heads]


@POLICY_REGISTRY.register("bdq")
class BDQPolicy(DQNPolicy):
    """BDQ (https://arxiv.org/abs/1711.08946): an action [D] chooses one bin in each of D branches.

    The mean value of each branch is logged as `q_value_b_<branch>`.

    Example:
        >>> cfg = BDQPolicy.default_config()
        >>> cfg.model.update(obs_shape=4, num_branches=2, action_bins_per_branch=5)
        >>> policy = BDQPolicy(cfg, enable_field=["collect"])
        >>> policy.collect_mode.forward({0: torch.zeros(4)}, eps=0.1)[0]["action"].shape
        torch.Size([2])
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "bdq",
            "model.num_branches": Setting(rule=integer(1), doc="Number of branches, the dimensions of an action."),
            "model.action_bins_per_branch": Setting(rule=integer(1), doc="Number of bins of each branch."),
        },
        DQNPolicy.settings,
    )

    def default_model(self) -> tuple[str, list[str]]:
        return "bdq", ["ding.model.template.q_learning"]

    def _monitor_vars_learn(self) -> list[str]:
        branches = self._cfg.model.get("num_branches", 1)
        return ["cur_lr", "total_loss", "q_value", *[f"q_value_b_{i}" for i in range(branches)]]

    def _head_error(self, head: HeadInputs) -> TDError:
        """Return the loss, the error [B] and values to log; see `DQNPolicy`. The error is the mean over the branches.

        All branches have the target r + gamma (1 - done) mean_d q'_d(s', argmax_a q_d(s', a)).
        """
        batch, q, next_q = head.batch, head.output["logit"], head.next_output["logit"]
        action = head.action.view(q.shape[:2])
        data = q_nstep_td_data(q, next_q, action, head.next_action, batch["reward"], batch["done"], batch["weight"])
        loss, error = bdq_nstep_td_error(
            data, self._gamma, self._nstep, value_gamma=batch.get("value_gamma"), criterion=self._criterion
        )
        return loss, error, {f"q_value_b_{i}": branch.mean() for i, branch in enumerate(q.detach().unbind(1))}

    @accepts_fragments
    def _get_train_sample(self, transitions: Items) -> Any:
        """Return n-step samples whose action is one tensor [D], even if a random policy gave a list."""
        table = table_of(transitions)
        if table is None:
            joined = [{**transition, "action": _joined(transition["action"])} for transition in rows_of(transitions)]
            return super()._get_train_sample(joined)
        action = table.columns["action"]
        if not isinstance(action, Column) or action.kind is not Kind.TENSOR or action.steps:
            table = table.with_columns(action=pack([_joined(item) for item in node_items(action)]))
            transitions = like(transitions, table)
        return super()._get_train_sample(transitions)


def _joined(action: Any) -> Tensor:
    return action if isinstance(action, Tensor) else torch.cat(list(action))


@POLICY_REGISTRY.register("dqfd")
class DQFDPolicy(DQNPolicy):
    """DQfD (https://arxiv.org/abs/1704.03732): double DQN with one-step and n-step losses and an expert margin loss.

    Train it with `serial_pipeline_dqfd`, which marks the expert's samples with `is_expert` = 1; all others count as the
    policy's own.

    Example:
        >>> cfg = DQFDPolicy.default_config()
        >>> cfg.model.obs_shape, cfg.model.action_shape = 4, 2
        >>> policy = DQFDPolicy(cfg, enable_field=["collect"])
        >>> steps = [dict(obs=i, next_obs=i + 1, reward=torch.ones(1), done=i == 1) for i in range(2)]
        >>> [(s["next_obs"], s["next_obs_1"], s["done_1"]) for s in policy.collect_mode.get_train_sample(steps)]
        [(2, 1, False), (2, 2, True)]
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "dqfd",
            "priority": True,
            "priority_IS_weight": True,
            "discount_factor": 0.99,
            "nstep": 10,
            "model.action_shape": NO_DEFAULT,
            "learn.lambda1": Setting(1.0, number(0), "Weight of the n-step loss."),
            "learn.lambda2": Setting(1.0, number(0), "Weight of the margin loss."),
            "learn.lambda3": Setting(1e-5, number(0), "Weight decay of the optimizer."),
            "learn.margin_function": Setting(0.8, positive, "Margin between the demonstrated action and all others."),
            "learn.per_train_iter_k": Setting(10, integer(0), "Number of iterations on demonstrations only."),
            "learn.expert_replay_buffer_size": Setting(rule=integer(1), doc="Capacity for demonstrations."),
            "collect.pho": Setting(0.5, number(0, 1), "Fraction of demonstrations in a batch."),
        },
        DQNPolicy.settings,
    )

    _learn_keys = (*DQNPolicy._learn_keys, "next_obs_1", "done_1")

    def _adam_options(self) -> dict[str, Any]:
        return {**super()._adam_options(), "weight_decay": self._cfg.learn.lambda3, "optim_type": "adamw"}

    def _prepare(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = super()._prepare(data)
        batch["next_obs_1"] = self._model_input(batch["next_obs_1"])
        done = batch["done"]
        batch["done_1"] = torch.zeros_like(done) if self._cfg.learn.ignore_done else batch["done_1"].to(done.dtype)
        is_expert = values_of(data, "is_expert")
        marks = [None] * len(done) if is_expert is None else is_expert
        # A sample without the flag is not an expert's.
        batch["is_expert"] = torch.tensor([0.0 if mark is None else float(mark) for mark in marks]).to(done)
        return batch

    def _forward_networks(self, batch: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
        """Forward as DQN does, with `one_step` in `next_output`: target values and greedy actions one step later."""
        output, next_output, next_action = super()._forward_networks(batch)
        with torch.no_grad():
            q = self._target_model.forward(batch["next_obs_1"])["logit"]
            action = self._learn_model.forward(batch["next_obs_1"])["action"]
        return output, {**next_output, "one_step": (q, action)}, next_action

    def _head_error(self, head: HeadInputs) -> TDError:
        """Return lambda1 * n-step + one-step + lambda2 * margin loss, and the error; see `dqfd_nstep_td_error`."""
        learn, batch = self._cfg.learn, head.batch
        next_q, next_action = head.next_output["one_step"]
        data = dqfd_nstep_td_data(
            q=head.output["logit"],
            next_n_q=head.next_output["logit"],
            action=head.action.view(-1),
            next_n_action=head.next_action,
            reward=batch["reward"],
            done=batch["done"],
            done_one_step=batch["done_1"],
            weight=batch["weight"],
            new_n_q_one_step=next_q,
            next_n_action_one_step=next_action,
            is_expert=batch["is_expert"],
        )
        loss, error, _ = dqfd_nstep_td_error(
            data,
            self._gamma,
            learn.lambda1,
            learn.lambda2,
            learn.margin_function,
            nstep=self._nstep,
            value_gamma=batch.get("value_gamma"),
            criterion=self._criterion,
        )
        return loss, error, {}

    @accepts_fragments
    def _get_train_sample(self, transitions: Items) -> Any:
        """Return n-step samples with `next_obs_1`, the next observation, and `done_1`, whether its value is 0."""
        if not transitions:
            return []
        ends = ~bootstraps(transitions)
        table = table_of(transitions)
        if table is not None:
            table = table.with_columns(next_obs_1=table.columns["next_obs"], done_1=Column(Kind.BOOL, ends))
            transitions = like(transitions, table)
        else:
            transitions = [
                {**transition, "next_obs_1": transition["next_obs"], "done_1": end}
                for transition, end in zip(rows_of(transitions), ends.tolist(), strict=True)
            ]
        return super()._get_train_sample(transitions)
