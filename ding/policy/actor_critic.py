"""Base classes of policy gradient methods: acting, samples with advantages, value normalization."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ding.model.wrapper.model_wrappers import mask_logits
from ding.policy.base_policy import BatchPolicy
from ding.policy.common_utils import (
    batch_observations,
    bootstraps,
    drop_column,
    drop_last_axis,
    is_end,
    model_input,
)
from ding.policy.on_policy_data import OnPolicyData
from ding.rl_utils.adder import get_train_sample, stacked
from ding.rl_utils.log_prob import ActionTerms, categorical_terms, gaussian_terms
from ding.rl_utils.returns import gae, gae_data
from ding.torch_utils.data_helper import to_device
from ding.torch_utils.network.fast_modules import dtype_of, set_training
from ding.utils.batch_methods import accepts_fragments
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, one_of, value_at
from ding.utils.data.samples import Items, column_of, last_rows, with_columns
from ding.utils.module_state import load_parts, parts_state
from ding.utils.pytorch_ddp_dist_helper import allreduce_data, smallest_over_ranks
from ding.utils.running_stats import RunningMeanStd

BoolArray = npt.NDArray[np.bool_]


class ActionKind(NamedTuple):
    """How actions of one kind are sampled and evaluated.

    Attributes:
        collect_wrapper, eval_wrapper: the model wrappers that add the action.
        terms: computes, from a logit and actions, the terms of each part with its own loss.
        is_discrete: None if actions have parts of both kinds.
    """

    collect_wrapper: str
    eval_wrapper: str
    terms: Callable[[Any, Any], list[ActionTerms]]
    is_discrete: bool | None


def _discrete(logit: Any, action: Any) -> list[ActionTerms]:
    if isinstance(logit, Tensor) and logit.dim() == action.dim():
        logit = logit.unsqueeze(-1)  # [B, 1] of a single action is stacked to [B], like other columns of one number
    return [categorical_terms(logit, action)]


def _continuous(logit: Any, action: Any) -> list[ActionTerms]:
    return [gaussian_terms(logit, action)]


def _hybrid(logit: Any, action: Any) -> list[ActionTerms]:
    """Treat the action type and its arguments as separate policies, as H-PPO does (https://arxiv.org/abs/1903.01344)."""
    return [
        categorical_terms(logit["action_type"], action["action_type"]),
        gaussian_terms(logit["action_args"], action["action_args"]),
    ]


ACTION_KINDS = {
    "discrete": ActionKind("multinomial_sample", "argmax_sample", _discrete, True),
    "continuous": ActionKind("reparam_sample", "deterministic_sample", _continuous, False),
    "hybrid": ActionKind("hybrid_reparam_multinomial_sample", "hybrid_deterministic_argmax_sample", _hybrid, None),
}


class ValueNorm(RunningMeanStd):
    """The running standard deviation of returns, by which the targets of the critic are divided.

    Example:
        >>> import torch
        >>> norm = ValueNorm()
        >>> norm.take_in(torch.tensor([-10.0, 10.0]), all_ranks=False)
        >>> round(float(norm.std))
        10
    """

    def take_in(self, returns: Tensor, all_ranks: bool) -> None:
        """Update with the returns [*B]; with `all_ranks` use those of all processes, so that they share one scale."""
        returns = returns.detach().double()
        number = float(returns.numel())
        sums = returns.new_tensor([number, 0.0, 0.0])
        sums[1], sums[2] = returns.sum(), returns.square().sum()
        if all_ranks:
            allreduce_data(sums, "sum")
        number, total, squares = sums.tolist()
        mean = total / number
        self.merge(mean, max(squares / number - mean * mean, 0.0), number)


class KLLimit:
    """The end of the epochs on a collection once the policy has moved too far from the one that collected.

    As in Stable-Baselines3, that is a divergence of more than 1.5 times `learn.target_kl` (None for no limit) in a
    minibatch, estimated as 'k3' of `kl_estimate` before a step on it. A step on the first minibatch is always taken.
    Several ranks compare their mean.

    Attributes:
        is_reached: whether that is the case.

    Example:
        >>> limit = KLLimit(target=0.01, all_ranks=False)
        >>> [limit.check([torch.tensor(divergence)]) for divergence in (0.0, 0.015, 0.016)]
        [False, False, True]
    """

    def __init__(self, target: float | None, all_ranks: bool) -> None:
        self._target, self._all_ranks, self._is_first = target, all_ranks, True
        self.is_reached = False

    def check(self, divergences: Iterable[Tensor]) -> bool:
        """Return `is_reached`, given the divergence 0-d of each part of the actions in a minibatch."""
        if self._target is not None and not self._is_first:
            divergence = float(sum(map(float, divergences)))
            if self._all_ranks:
                divergence = allreduce_data(divergence, "avg")
            self.is_reached = divergence > 1.5 * self._target
        self._is_first = False
        return self.is_reached


class MinibatchStep(NamedTuple):
    """What is logged of a step on a minibatch.

    Attributes:
        loss: 0-d, detached.
        values: what `_loss` returned to log beside it.
        norm: that of the gradients before clipping, 0-d, if `learn.grad_norm` limits it.
    """

    loss: Tensor
    values: Any
    norm: Tensor


class StochasticPolicy(BatchPolicy):
    """Base of policies that sample actions from a distribution given by the model's `logit`.

    The config of a subclass may have `action_space`; the default is 'discrete'.
    """

    @property
    def _kind(self) -> ActionKind:
        return ACTION_KINDS[value_at(self._cfg, "action_space", "discrete")]

    @property
    def has_discrete_actions(self) -> bool | None:  # type: ignore[override]
        """Whether actions are discrete; None for hybrid actions."""
        return self._kind.is_discrete

    def _model_arguments(self) -> Mapping[str, Any]:
        return {"action_space": value_at(self._cfg, "action_space", "discrete")}

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        self._action_space = value_at(self._cfg, "action_space", "discrete")
        super()._set_up_model(model, learns)

    @property
    def _collect_wrapper(self) -> str:  # type: ignore[override]
        return self._kind.collect_wrapper

    @property
    def _eval_wrapper(self) -> str:  # type: ignore[override]
        return self._kind.eval_wrapper

    # --- learn on policy ---

    def _learn_epoch(
        self,
        batch: OnPolicyData,
        keys: Sequence[str],
        loss: Callable[[Any, dict[str, Any]], tuple[Tensor, Any]],
        is_too_far: Callable[[Any], bool] | None = None,
    ) -> list[MinibatchStep]:
        """Take one step on each of the shuffled minibatches of a collection.

        Several ranks take equally many steps: one with fewer minibatches begins again with its first.

        Args:
            keys: the columns of a minibatch, beside the observations.
            loss: returns the loss of a minibatch from the model's output, and what to log beside it.
            is_too_far: returns, from what is logged of a minibatch, whether to end the epoch before a step on it.
        """
        learn, dtype = self._cfg.learn, dtype_of(self._model)
        max_norm = learn.get("grad_norm", math.inf)
        set_training(self._model, True)
        steps = []
        minibatches = batch.minibatches(keys, int(learn.batch_size), self._rng)
        if self._cfg.multi_gpu:
            most = -smallest_over_ranks(-math.ceil(batch.size / int(learn.batch_size)))
            minibatches = itertools.islice(itertools.cycle(minibatches), most)
        for minibatch in minibatches:
            output = self._learn_model.forward(model_input(minibatch["obs"], dtype), **self._collect_kwargs)
            mask_logits(output)
            total, values = loss(output, minibatch)
            if is_too_far is not None and is_too_far(values):
                break
            norm = self._backward_and_step(total, self._optimizer, self._model, max_grad_norm=max_norm)
            steps.append(MinibatchStep(total.detach(), values, norm))
        return steps


class ActorCriticPolicy(StochasticPolicy):
    """Base of policies whose model has the modes of `VAC`, and whose samples have an advantage.

    The settings of a subclass have `action_space`, and may have `multi_agent, recompute_adv` and `learn.value_norm`.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "priority": Setting(False, one_of(False), "Must be False: samples have no priorities."),
            "priority_IS_weight": Setting(False, one_of(False), "Must be False, like `priority`."),
            "n_sample": NO_DEFAULT,
            "learn.batch_size": 64,
            "learn.value_weight": 0.5,
            "learn.entropy_weight": 0.01,
            "learn.adv_norm": False,
            "learn.ignore_done": False,
            "collect.unroll_len": 1,
            "collect.discount_factor": 0.99,
            "collect.gae_lambda": 0.95,
            "collect.n_sample": NO_DEFAULT,
            "eval": {},
        },
        StochasticPolicy.settings,
    )
    _optional_parts: ClassVar[tuple[str, ...]] = ("value_norm",)
    _collect_kwargs: ClassVar[Mapping[str, Any]] = {"mode": "compute_actor_critic"}
    _eval_kwargs: ClassVar[Mapping[str, Any]] = {"mode": "compute_actor"}
    _output_keys: Sequence[str] = ("action", "logit", "value")
    # Whether samples have `next_obs` even if it is not needed to recompute their advantages.
    _keeps_next_obs: ClassVar[bool] = True

    def default_model(self) -> tuple[str, list[str]]:
        name = "mavac" if value_at(self._cfg, "multi_agent", False) else "vac"
        return name, ["ding.model.template.vac"]

    def _set_up_model(self, model: nn.Module, learns: bool) -> None:
        cfg = self._cfg
        self._gamma, self._gae_lambda = cfg.collect.discount_factor, cfg.collect.gae_lambda
        self._recompute_adv = value_at(cfg, "recompute_adv", False)
        self._value_norm = value_at(cfg, "learn.value_norm", False)
        self._running_mean_std = ValueNorm()
        super()._set_up_model(model, learns)

    def _value_scale(self) -> float:
        return float(self._running_mean_std.std) if self._value_norm else 1.0

    def _values(self, observations: Any) -> Tensor:
        """Return the values [B] of the critic, in evaluation mode and without gradients."""
        set_training(self._model, False)
        with torch.no_grad():
            output = self._model(self._model_input(observations), mode="compute_critic")
        value: Tensor = drop_last_axis(output["value"])
        return value

    def _learn_parts(self) -> dict[str, Any]:
        return {**super()._learn_parts(), **self._value_parts()}

    def _value_parts(self) -> dict[str, Any]:
        return {"value_norm": self._running_mean_std} if self._value_norm else {}

    # --- collect ---

    @accepts_fragments
    def _get_train_sample(self, transitions: Items) -> Any:
        """Add `adv` [1], in units of the reward, and `traj_flag`, whether the trajectory fragment ends there.

        A list of transitions is modified in place.
        """
        return get_train_sample(self._with_advantages(transitions), self._unroll_len) if transitions else []

    def _with_advantages(self, transitions: Items) -> Any:
        ends, last = is_end(transitions), last_rows(transitions)
        added: dict[str, Any] = {}
        if self._cfg.learn.ignore_done:
            added["done"] = ends.copy()
            added["done"][last] = False
            goes_on = np.ones_like(ends)
        else:
            goes_on = bootstraps(transitions)
        ends[last] = True
        # Generalized advantages [T, *value_shape] from the values at collection; the last rows of fragments that go on
        # bootstrap from the value of their next observation.
        value, reward = stacked(transitions, "value") * self._value_scale(), stacked(transitions, "reward")
        flag = torch.from_numpy(ends)
        next_value = torch.cat([value[1:], torch.zeros_like(value[:1])])
        next_value[flag] = 0
        rows = np.flatnonzero(ends & goes_on)
        if rows.size:
            observations = batch_observations(transitions, "next_obs", rows)
            if self._cuda:
                observations = to_device(observations, self._device)
            values = to_device(self._values(observations), "cpu")
            next_value[rows] = values.reshape(next_value[rows].shape) * self._value_scale()
        if reward.shape[1:] == (1,):
            reward = reward.squeeze(1)
        advantages = gae(gae_data(value, next_value, reward, None, flag), self._gamma, self._gae_lambda)
        added.update(traj_flag=ends, adv=advantages)
        transitions = with_columns(transitions, **{key: column_of(values) for key, values in added.items()})
        keeps_next_obs = self._keeps_next_obs or self._recompute_adv
        return transitions if keeps_next_obs else drop_column(transitions, "next_obs")

    def _state_dict_collect(self) -> dict[str, Any]:
        return {**super()._state_dict_collect(), **parts_state(self._value_parts())}

    def _load_state_dict_collect(self, state_dict: dict[str, Any]) -> None:
        load_parts({"model": self._collect_model, **self._value_parts()}, state_dict, self._optional_parts)
