"""Recurrent replay distributed DQN: Q-learning with a recurrent network, on sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ding.model.common.encoder import mask_like
from ding.model.wrapper.model_wrappers import mask_logits
from ding.policy.common_utils import bootstraps
from ding.policy.sequence_policy import SequencePolicy
from ding.policy.training_step import Learned
from ding.rl_utils.adder import append_null_steps, get_nstep_return_data, get_train_sample
from ding.rl_utils.returns import bootstrap_mask
from ding.rl_utils.td import q_nstep_td_data, q_nstep_td_error, q_nstep_td_error_with_rescale
from ding.torch_utils.optimizer_helper import Adam
from ding.utils.action_mask import action_mask_of
from ding.utils.batch_methods import accepts_fragments
from ding.utils.config_helper import NO_DEFAULT, ConfigError, Setting, Settings, boolean, integer, number
from ding.utils.data.nested import map_leaves
from ding.utils.data.samples import END_FLAGS, Items, items_at, last_rows, replaced, table_of
from ding.utils.default_helper import one_time_warning
from ding.utils.registry_factory import POLICY_REGISTRY

# Weight of the maximum error in the priority of a sequence; the rest is the mean's.
_MAX_SHARE = 0.9


@POLICY_REGISTRY.register("r2d2")
class R2D2Policy(SequencePolicy):
    """R2D2 (https://openreview.net/forum?id=r1lyTjAqYX): double DQN over sequences of a recurrent network.

    A sample is a sequence of `burnin_step + learn_unroll_len` steps of an episode. The network starts in the state
    it had when the sequence was collected (or, with `learn.zero_start_state`, in zeros), runs `burnin_step` steps
    without gradients to refresh this state, and learns from the following steps, whose n-step targets (transformed by
    `value_transform` with `learn.value_rescale`) lie within the sequence. The priority of a sequence is 0.9 times its
    largest plus 0.1 times its mean squared TD error.

    A terminated episode is extended by `nstep` null steps, so that its last steps have targets; a short episode is
    padded with null steps. Null steps, and steps that would bootstrap from them, are masked out of the loss.

    The target network follows at the rate `learn.target_update_theta`, or is copied every `learn.target_update_freq`
    iterations if that is set.

    Example:
        >>> cfg = R2D2Policy.default_config()
        >>> cfg.model.update(obs_shape=4, action_shape=2)
        >>> cfg.collect.env_num = 4
        >>> policy = R2D2Policy(cfg, enable_field=["collect"])
        >>> output = policy.collect_mode.forward({0: torch.zeros(4), 3: torch.zeros(4)}, eps=0.1)
        >>> {env_id: out["prev_state"]["h"].shape for env_id, out in output.items()}
        {0: torch.Size([1, 1, 64]), 3: torch.Size([1, 1, 64])}
    """

    settings: ClassVar[Settings] = Settings(
        {
            "type": "r2d2",
            "priority": True,
            "priority_IS_weight": True,
            "discount_factor": 0.997,
            "nstep": 5,
            "burnin_step": Setting(20, integer(0), "Number of first steps that only refresh the recurrent state."),
            "learn_unroll_len": Setting(80, integer(1), "Number of steps to learn from, after these."),
            "transition_with_policy_data": True,
            "batch_size": NO_DEFAULT,
            "n_sample": NO_DEFAULT,
            "model.action_shape": NO_DEFAULT,
            "learn.update_per_collect": 1,
            "learn.batch_size": Setting(64, doc="Number of sequences in a batch."),
            "learn.learning_rate": 0.0001,
            "learn.target_update_theta": Setting(0.001, number(0, 1), "Rate of the soft target update per iteration."),
            "learn.target_update_freq": None,
            "learn.value_rescale": Setting(True, boolean, "Squash values as in https://arxiv.org/abs/1805.11593."),
            "learn.ignore_done": False,
            "learn.zero_start_state": Setting(False, boolean, "Start sequences in a zero state, not the stored one."),
            "collect.n_sample": Setting(32, doc="Number of sequences of one collection."),
            "collect.traj_len_inf": Setting(True, doc="Cut sequences out of whole episodes."),
            "collect.env_num": None,
            "eval.env_num": None,
            "other.eps.type": "exp",
            "other.eps.start": 0.95,
            "other.eps.end": 0.05,
            "other.eps.decay": 10000,
            "other.replay_buffer.replay_buffer_size": Setting(
                10000, doc="Capacity of the replay buffer, in sequences."
            ),
        },
        SequencePolicy.settings,
    )
    _learn_keys = ("obs", "action", "reward", "done", "value_gamma", "null", "weight", *END_FLAGS)
    _output_keys: Sequence[str] = ("action", "prev_state")
    _records_next_obs: ClassVar[bool] = False
    has_discrete_actions: ClassVar[bool | None] = True

    def default_model(self) -> tuple[str, list[str]]:
        return "drqn", ["ding.model.template.q_learning"]

    def _monitor_vars_learn(self) -> list[str]:
        return ["cur_lr", "total_loss", "q_s_taken-a_t0", "target_q_s_max-a_t0", "q_s_a-mean_t0"]

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        cfg = self._cfg
        self._gamma, self._nstep, self._burnin_step = cfg.discount_factor, int(cfg.nstep), int(cfg.burnin_step)
        if self._nstep >= cfg.learn_unroll_len:
            raise ConfigError(
                f"policy.nstep = {self._nstep} must be below policy.learn_unroll_len = {cfg.learn_unroll_len}: the "
                "targets of a sequence lie within it"
            )
        self._sequence_len = self._unroll_len = self._burnin_step + int(cfg.learn_unroll_len)
        super()._set_up_model(model, learns)

    # --- learn ---

    def _init_learn(self) -> None:
        learn = self._cfg.learn
        self._init_importance_weights()
        self._optimizer = Adam(self._model.parameters(), lr=learn.learning_rate)
        self._init_target(learn.target_update_freq, learn.target_update_theta)
        self._learn_model = self._wrapped("argmax_sample")

    def _update(self, batch: dict[str, Any]) -> Learned:
        """Take one step on B sequences; `priority` has one value per sequence."""
        loss, priority, q, q_taken, next_value = self._td_error(batch)
        self._backward_and_step(loss, self._optimizer, self._model)
        values = {
            "total_loss": loss,
            # Of the first step after burn-in.
            "q_s_taken-a_t0": q_taken[0].mean(),
            "target_q_s_max-a_t0": next_value[0].mean(),
            "q_s_a-mean_t0": _legal_mean(q[0], batch["obs"], self._burnin_step),
        }
        return Learned(values, priority)

    def _td_error(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return loss, priority [B], q [T, B, N], q of the actions [T, B], and the bootstrap values [T, B].

        T = L - burnin_step - nstep steps have a target; that of step t bootstraps at step t + nstep.
        """
        start, nstep = self._burnin_step, self._nstep
        stop = len(batch["done"]) - nstep
        steps = slice(start, stop)
        all_q = self._q_values(self._model, batch)
        with torch.no_grad():
            target_q = self._q_values(self._target_net, batch)[nstep:]
        q, next_action = all_q[:-nstep], all_q[nstep:].argmax(-1)
        action = batch["action"][steps].long()
        is_final = torch.zeros_like(batch["done"][steps], dtype=torch.bool)
        if not self._cfg.learn.ignore_done:
            terminated, truncated = (_flat(batch.get(flag), steps) for flag in END_FLAGS)
            done = batch["done"][steps].flatten()
            is_final = ~bootstrap_mask(done, terminated, truncated).view_as(action)

        td_data = q_nstep_td_data(
            q.flatten(0, 1),
            target_q.flatten(0, 1),
            action.flatten(),
            next_action.flatten(),
            batch["reward"][steps].reshape(action.numel(), nstep).t(),
            is_final.flatten().float(),
            None,
        )
        td_error = q_nstep_td_error_with_rescale if self._cfg.learn.value_rescale else q_nstep_td_error
        _, flat_error = td_error(td_data, self._gamma, nstep, value_gamma=_flat(batch.get("value_gamma"), steps))

        is_null = batch["null"]
        is_valid = (~is_null[steps] & (is_final | ~is_null[start + nstep :])).float()
        count = is_valid.sum()
        if count == 0:
            one_time_warning(
                f"a batch of sequences has no step to learn from: episodes are hardly longer than policy.burnin_step = "
                f"{start}; lower it"
            )
        error = flat_error.view_as(is_valid) * is_valid
        weight = batch["weight"]  # [B], or [L, B]
        weight = 1.0 if weight is None else weight if weight.dim() == 1 else weight[steps]
        loss = (error * weight).sum() / count.clamp(min=1)
        mean = error.detach().sum(0) / is_valid.sum(0).clamp(min=1)
        priority = _MAX_SHARE * error.detach().max(0).values + (1 - _MAX_SHARE) * mean
        next_value = target_q.gather(-1, next_action.unsqueeze(-1)).squeeze(-1)
        return loss, priority, q, q.gather(-1, action.unsqueeze(-1)).squeeze(-1), next_value

    def _q_values(self, network: nn.Module, batch: dict[str, Any]) -> Tensor:
        """Return Q values [L - burnin_step, B, N] of the steps after burn-in; those of illegal actions are very low."""
        start, obs = self._burnin_step, batch["obs"]
        state = None if self._cfg.learn.zero_start_state else batch["prev_state"]
        if start:
            with torch.no_grad():
                state = network({"obs": map_leaves(lambda steps: steps[:start], obs), "prev_state": state})[
                    "next_state"
                ]
        output = network({"obs": map_leaves(lambda steps: steps[start:], obs), "prev_state": state})
        mask_logits(output)
        q: Tensor = output["logit"]
        return q

    # --- collect ---

    def _init_collect(self) -> None:
        self._collect_model = self._wrapped("eps_greedy_sample", self._with_state("collect", stack_prev_state=True))

    def _with_state(self, field: str, stack_prev_state: bool = False) -> Any:
        """Return the model with a recurrent state for each env."""
        number = self._cfg[field].get("env_num")
        if number is None:
            raise ConfigError(
                f"policy.{field}.env_num is missing: set it to the number of envs, each of which has a recurrent state"
            )
        return self._wrapped(
            "hidden_state", state_num=number, save_prev_state=stack_prev_state, stack_prev_state=stack_prev_state
        )

    def _act_collect(  # type: ignore[override]
        self, obs: Any, env_ids: list[int], eps: float
    ) -> dict[str, Any]:
        """Act epsilon-greedily, and return per env `action` [1], `logit` [N] and `prev_state`, the previous state."""
        return self._forward_batch(self._collect_model, obs, "obs", data_id=env_ids, inference=True, eps=eps)

    def _reset_collect(self, data_id: list[int] | None = None) -> None:
        self._collect_model.reset(data_id=data_id)

    @accepts_fragments
    def _get_train_sample(self, transitions: Items) -> Any:
        """Return sequences of `burnin_step + learn_unroll_len` steps, with the flag `null`; see the class."""
        if not transitions:
            return []
        table = table_of(transitions)
        if table is not None:
            transitions = replaced(transitions, table.without("next_obs"))  # recorded, but nothing learns from it
        is_final = ~bootstraps(items_at(transitions, last_rows(transitions)))
        steps = get_nstep_return_data(transitions, self._nstep, gamma=self._gamma)
        return get_train_sample(append_null_steps(steps, self._nstep * is_final), self._sequence_len)

    # --- eval ---

    def _init_eval(self) -> None:
        self._eval_model = self._wrapped("argmax_sample", self._with_state("eval"))

    def _act_eval(self, obs: Any, env_ids: list[int]) -> dict[str, Any]:
        """Act greedily, and return per env `action` [1] and `logit` [N]."""
        return self._forward_batch(self._eval_model, obs, "obs", data_id=env_ids, inference=True)

    def _reset_eval(self, data_id: list[int] | None = None) -> None:
        self._eval_model.reset(data_id=data_id)


def _flat(column: Tensor | None, steps: slice) -> Tensor | None:
    """Flatten these steps of a column [L, B]."""
    return None if column is None else column[steps].flatten()


def _legal_mean(q: Tensor, obs: Any, step: int) -> Tensor:
    """Return the mean of values [B, N] of a step, of legal actions if observations [L, B, ...] have a mask."""
    mask = action_mask_of(obs)
    if mask is None:
        return q.mean()
    legal: Tensor = mask_like(q, mask[step]).bool()
    return torch.where(legal, q, 0.0).sum() / legal.sum().clamp(min=1)  # null steps may have no legal action
