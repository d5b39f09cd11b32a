"""Base class of off-policy actor-critic methods on sequences: acting, samples, batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ding.policy.actor_critic import StochasticPolicy
from ding.policy.sequence_data import collate_sequences
from ding.rl_utils.adder import append_null_steps, get_train_sample
from ding.torch_utils.data_helper import to_device
from ding.utils.batch_methods import accepts_pieces
from ding.utils.config_helper import NO_DEFAULT, ConfigError, Setting, Settings, number
from ding.utils.data.samples import END_FLAGS, Items

_LEARN_KEYS = ("obs", "next_obs", "action", "logit", "reward", "done", "null", "weight", *END_FLAGS)
_WEIGHT_KEYS = ("IS", "priority_IS")


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
        is_weighted = self._cfg.priority_IS_weight
        if is_weighted and not self._priority:
            raise ConfigError(f"{type(self).__name__}: priority_IS_weight = True is not allowed with priority = False")
        self._learn_keys = _LEARN_KEYS + (_WEIGHT_KEYS if is_weighted else ())

    def _prepare(self, data: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Collate B samples as tensors [L, B, ...]; see `collate_sequences`."""
        batch = collate_sequences(data, self._learn_keys)
        return to_device(batch, self._device) if self._cuda else batch

    # --- collect ---

    @accepts_pieces
    def _get_train_sample(self, transitions: Items) -> Any:
        """Return sequences of `unroll_len` steps; shorter ones are padded with null steps."""
        return get_train_sample(append_null_steps(transitions, 0), self._unroll_len) if transitions else []
