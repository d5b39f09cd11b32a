"""Learning from sequences: their batches, where trajectories end, and the base of actor-critic methods on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ding.policy.actor_critic import StochasticPolicy
from ding.policy.common_utils import check_not_empty, importance_weight
from ding.rl_utils.adder import append_null_steps, get_train_sample
from ding.rl_utils.returns import bootstrap_mask
from ding.utils.batch_methods import accepts_pieces
from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, number
from ding.utils.data.collate_fn import collate_steps
from ding.utils.data.samples import END_FLAGS, Items, node_items, table_of

_LEARN_KEYS = ("obs", "next_obs", "action", "logit", "reward", "done", "null", "weight", *END_FLAGS)
_WEIGHT_KEYS = ("IS", "priority_IS")


def collate_sequences(data: Sequence[dict[str, Any]], keys: Collection[str]) -> dict[str, Any]:
    """Collate B sequences of L steps (dicts of lists, or a table) into tensors [L, B, ...] by key.

    - Items of shape (1,) are [L, B], except observations (not the members of dicts), logits and real-valued actions:
      [L, B, 1].
    - `done`, and `terminated` and `truncated` if any sequence has them, are bool. A sequence without them
      is terminated where it is `done`.
    - `null` is bool, and false if a sequence does not have it.
    - `weight` is the importance weight [B] (`priority_IS`, or `IS`) if `keys` contains it; otherwise the
      sequences' own [L, B], otherwise None.
    - `prev_state` is a tuple of the B recurrent states before the first steps, if the sequences have any.

    Raises:
        ConfigError: importance weights are requested, but the sequences have none.
        ValueError: there are no sequences.
    """
    check_not_empty(data)
    table = table_of(data)
    if table is None:
        data = _with_flags(data)
        state = [sample["prev_state"][0] for sample in data] if "prev_state" in data[0] else None
    else:
        node = table.columns.get("prev_state")
        if node is None:
            state = None
        else:  # only the states of the first steps are needed
            state = node_items(node[0]) if isinstance(node, list) else [states[0] for states in node_items(node)]
    batch = collate_steps(data, keys)
    for flag in ("done", *END_FLAGS):
        if flag in batch:
            batch[flag] = batch[flag].bool()
    for key in ("obs", "next_obs"):
        obs = batch.get(key)
        if isinstance(obs, Tensor) and obs.dim() == 2 and getattr(data[0][key][0], "shape", None) == (1,):
            batch[key] = obs.unsqueeze(-1)
    if "logit" in batch:
        batch["logit"] = map_tensors(batch["logit"], _as_vectors)
    if "action" in batch and batch["action"].is_floating_point():
        batch["action"] = _as_vectors(batch["action"])
    null: Tensor | None = batch.get("null")
    batch["null"] = torch.zeros_like(batch["done"]) if null is None else null.bool()
    batch["weight"] = importance_weight(batch).reshape(-1) if "IS" in keys else batch.get("weight")
    if state is not None:
        batch["prev_state"] = tuple(state)
    return batch


def _as_vectors(steps: Tensor) -> Tensor:
    return steps.unsqueeze(-1) if steps.dim() == 2 else steps


def _with_flags(data: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the sequences with the same set of flags in each."""
    partly = [flag for flag in (*END_FLAGS, "null") if 0 < sum(flag in sample for sample in data) < len(data)]
    return [{**_flags_of(sample, partly), **sample} for sample in data] if partly else data


def _flags_of(sample: dict[str, Any], flags: Sequence[str]) -> dict[str, Any]:
    done = [bool(step) for step in sample["done"]]
    nothing = [False] * len(done)
    truncated = sample.get("truncated", nothing)
    meaning = {
        "terminated": [is_done and not cut for is_done, cut in zip(done, truncated, strict=True)],
        "truncated": nothing,
        "null": nothing,
    }
    return {flag: meaning[flag] for flag in flags}


class SequenceEnds(NamedTuple):
    """Where the trajectories of B sequences of L steps end; masks are float32 [L, B].

    Attributes:
        is_valid: 1 up to the end of the episode, 0 for padding.
        goes_on: 1 if the trajectory continues with the next step.
        bootstraps: 1 if the next value is used for bootstrapping; see `ding.rl_utils.bootstrap_mask`.
    """

    is_valid: Tensor
    goes_on: Tensor
    bootstraps: Tensor


def sequence_ends(batch: Mapping[str, Any]) -> SequenceEnds:
    """Return the ends of collated sequences, each of which is one trajectory up to its first `done`."""
    done: Tensor = batch["done"]
    is_valid = (done.long().cumsum(0) - done.long() == 0) & ~batch["null"]
    told = {flag: batch[flag].flatten() for flag in END_FLAGS if flag in batch}
    bootstraps = bootstrap_mask(done.flatten(), **told).view_as(done)
    goes_on = torch.zeros_like(is_valid)
    goes_on[:-1] = is_valid[1:]
    return SequenceEnds(is_valid.float(), goes_on.float(), bootstraps.float())


def with_last_observation(batch: Mapping[str, Any], ends: SequenceEnds) -> Any:
    """Return the observations [L + 1, B, ...] of the valid steps and the one that follows the last of them."""
    last = ends.is_valid.sum(0).long() - 1  # [B]
    rows = torch.arange(len(last), device=last.device)

    def extended(obs: Tensor, next_obs: Tensor) -> Tensor:
        result = torch.cat([obs, next_obs[-1:]])
        result[last + 1, rows] = next_obs[last, rows]
        return result

    return _map_pairs(batch["obs"], batch["next_obs"], extended)


def _map_pairs(one: Any, other: Any, function: Callable[[Tensor, Tensor], Tensor]) -> Any:
    if isinstance(one, Mapping):
        return {key: _map_pairs(value, other[key], function) for key, value in one.items()}
    return function(one, other)


def map_tensors(item: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Apply the function to each tensor of nested dicts."""
    if isinstance(item, Mapping):
        return {key: map_tensors(value, function) for key, value in item.items()}
    return function(item)


def forward_steps(forward: Callable[..., Any], observations: Any, **kwargs: Any) -> Any:
    """Return what a model returns for observations [L, B, ...], all at once; its tensors are [L, B, ...], too."""
    first = observations
    while isinstance(first, Mapping):
        first = next(iter(first.values()))
    shape = first.shape[:2]
    output = forward(map_tensors(observations, lambda tensor: tensor.flatten(0, 1)), **kwargs)
    return map_tensors(output, lambda tensor: tensor.view(*shape, *tensor.shape[1:]))


class SequenceActorPolicy(StochasticPolicy):
    """Base of policies that act by the `logit` of `compute_actor`, and learn from sequences of `_unroll_len` steps."""

    settings: ClassVar[Settings] = Settings(
        {
            "priority": False,
            "priority_IS_weight": False,
            "transition_with_policy_data": True,
            "batch_size": NO_DEFAULT,
            "n_sample": NO_DEFAULT,
            "model.action_shape": NO_DEFAULT,
            "learn.update_per_collect": 4,
            "learn.batch_size": Setting(16, doc="Number of sequences in a batch."),
            "learn.value_weight": 0.5,
            "learn.entropy_weight": Setting(0.0001, number(0)),
            "learn.grad_clip_type": None,
            "collect.n_sample": NO_DEFAULT,
            "eval": {},
            "other.replay_buffer.replay_buffer_size": Setting(1000, doc="Capacity of the replay buffer, in sequences."),
            "other.replay_buffer.max_use": Setting(16, doc="How often a sequence may be drawn."),
        },
        StochasticPolicy.settings,
    )
    learns_from_sequences: ClassVar[bool] = True
    _collect_kwargs: ClassVar[Mapping[str, Any]] = {"mode": "compute_actor"}
    _eval_kwargs: ClassVar[Mapping[str, Any]] = {"mode": "compute_actor"}
    _output_keys: Sequence[str] = ("logit", "action")

    # --- learn ---

    def _init_learn(self) -> None:
        self._init_importance_weights()
        self._learn_keys = _LEARN_KEYS + (_WEIGHT_KEYS if self._priority_IS_weight else ())

    def _prepare(self, data: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Collate B samples as tensors [L, B, ...]; see `collate_sequences`."""
        batch = collate_sequences(data, self._learn_keys)
        return self._on_model(batch)

    # --- collect ---

    @accepts_pieces
    def _get_train_sample(self, transitions: Items) -> Any:
        """Return sequences of `unroll_len` steps; shorter ones are padded with null steps."""
        return get_train_sample(append_null_steps(transitions, 0), self._unroll_len) if transitions else []
