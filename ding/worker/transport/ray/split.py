"""Splits a replay buffer into shards from which batches are drawn as from one buffer, or refuses to."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from easydict import EasyDict

from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.utils.config_helper import ConfigError
from ding.utils.dict_helper import deep_merge_dicts
from ding.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer
from ding.worker.replay_buffer.base_buffer import check_prefetching, get_buffer_cls
from ding.worker.replay_buffer.naive_buffer import NaiveReplayBuffer

WHOLE, UNIFORM, PRIORITIZED = "whole", "uniform", "prioritized"
# Exactly these classes: a subclass may draw in another way.
_KINDS = {AdvancedReplayBuffer: PRIORITIZED, NaiveReplayBuffer: UNIFORM, DequeBufferWrapper: UNIFORM}


class Split(NamedTuple):
    """What a learner must know of a buffer to draw from its shards.

    Attributes:
        kind: `whole` for a single shard, which draws batches itself; `uniform`, which draws an item at most once for a
            batch; or `prioritized`.
        capacity: of all shards together.
        least_ratio: a batch needs this many times its size in the buffer.
        least_rate: the smallest pushed / sampled at which batches are drawn.
        beta_step: growth of the exponent of the importance weights per batch.
        has_max_use: whether items are removed after a number of draws.
    """

    kind: str
    capacity: int
    least_ratio: float = 1.0
    least_rate: float = 0.0
    beta_step: float = 0.0
    has_max_use: bool = False


def split_of(cfg: Mapping[str, Any], shards: int) -> Split:
    """The split of the buffer of this config into `shards`.

    Raises:
        ConfigError: batches from these shards would differ from those of one buffer.
        KeyError: no buffer of that type is registered.
    """
    cls: Any = get_buffer_cls(cfg)
    merged = EasyDict(deep_merge_dicts(cls.default_config(), cfg))
    check_prefetching(merged)
    capacity = int(merged.replay_buffer_size)
    if shards == 1:
        return Split(WHOLE, capacity)
    kind = _KINDS.get(cls)
    if kind is None:
        raise _no_split(merged, shards, "only buffers of the types naive, advanced and deque can be split")
    if capacity < shards:
        raise _no_split(merged, shards, f"replay_buffer_size = {capacity} leaves some of them without capacity")
    if kind == UNIFORM:
        return Split(kind, capacity, has_max_use=not math.isinf(merged.get("max_use", math.inf)))
    limits = merged.thruput_controller
    if not math.isinf(limits.push_sample_rate_limit.max):
        reason = "thruput_controller.push_sample_rate_limit.max refers to what all shards together have sampled"
        raise _no_split(merged, shards, reason)
    return Split(
        kind,
        capacity,
        float(limits.sample_min_limit_ratio),
        float(limits.push_sample_rate_limit.min),
        (1 - float(merged.beta)) / int(merged.anneal_step) if merged.anneal_step else 0.0,
        not math.isinf(merged.max_use),
    )


def limits_pushes(cfg: Mapping[str, Any]) -> bool:
    """Whether the buffer of this config refuses pushes above a rate of pushed / sampled."""
    merged = EasyDict(deep_merge_dicts(get_buffer_cls(cfg).default_config(), cfg))
    limits = merged.get("thruput_controller")
    return limits is not None and not math.isinf(limits.push_sample_rate_limit.max)


def annealed_by_rank(cfg: Mapping[str, Any], ranks: int) -> Mapping[str, Any]:
    """The config of a buffer from which each of `ranks` draws a batch in each iteration.

    The exponent of the importance weights reaches 1 after as many iterations as with one rank.
    """
    steps = cfg.get("anneal_step", get_buffer_cls(cfg).default_config().get("anneal_step"))
    return {**cfg, "anneal_step": steps * ranks} if steps and ranks > 1 else cfg


def _no_split(cfg: EasyDict, shards: int, reason: str) -> ConfigError:
    return ConfigError(
        f"replay_buffer: type = {cfg.type!r} cannot be split into coordinator.replay_shards = {shards}: {reason}; set "
        "replay_shards = 1"
    )


def shard_config(cfg: Mapping[str, Any], index: int, shards: int) -> EasyDict:
    """The config of the shard `index`: it has its part of the capacity, and a folder of its own."""
    own = EasyDict(cfg)
    if own.get("enable_track_used_data"):
        own.enable_track_used_data = False  # samples have no files here
    if shards == 1:
        return own
    capacity = split_of(cfg, shards).capacity
    own.replay_buffer_size = capacity // shards + (index < capacity % shards)
    if own.get("storage_path"):
        own.storage_path = os.path.join(own.storage_path, f"shard{index}")
    return own
