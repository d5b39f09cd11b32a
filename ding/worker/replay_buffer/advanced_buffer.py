"""A prioritized replay buffer with limits on use, staleness and throughput."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ding.data.priority_index import PRIORITY_EPS
from ding.utils.autolog import TickTime
from ding.utils.data.samples import Column, Kind, Node, Samples, part_of
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import IntArray, MinSegmentTree, SumSegmentTree
from ding.worker.replay_buffer.advanced_config import ADVANCED_SETTINGS
from ding.worker.replay_buffer.column_buffer import ColumnBuffer
from ding.worker.replay_buffer.item_metadata import (
    METADATA_FIELDS,
    METADATA_KEYS,
    ItemMetadata,
    ItemView,
    StalenessTracker,
    read_priority_info,
    without_metadata,
)
from ding.worker.replay_buffer.utils import SampledDataAttrMonitor, ThruputController, Verdict

_ENOUGH = Verdict(True, "enough items")


def _is_dict(item: Any) -> bool:
    return isinstance(item, dict)


class Stock(NamedTuple):
    """What can be drawn from a buffer.

    Attributes:
        size: Number of items.
        weight: Sum of their weights, priority ** alpha.
        least_weight: The smallest weight; infinite without items.
        pushed, sampled: Decayed numbers of pushed and sampled items, as the throughput limit counts them.
    """

    size: int
    weight: float
    least_weight: float
    pushed: float
    sampled: float


@BUFFER_REGISTRY.register("advanced")
class AdvancedReplayBuffer(ColumnBuffer):
    """Prioritized replay buffer (arXiv:1511.05952) with limits on use, staleness and throughput. Thread-safe.

    Items are dicts. `sample` returns copies with these additional keys:

    - `replay_unique_id`: `<instance_name>_<n>` for the n-th stored item; `replay_buffer_idx`: its slot
    - `priority`, `IS`: its priority, and its importance weight, which is at most 1
    - `use`, `staleness`: how often it was sampled, and learner iterations since its `collect_iter` (-1 without one)

    Attributes:
        check_list: Predicates on items. An item that fails one is not stored.

    Example:
        >>> import os, tempfile
        >>> cfg, exp_name = AdvancedReplayBuffer.default_config(), os.path.relpath(tempfile.mkdtemp())
        >>> with AdvancedReplayBuffer(cfg, exp_name=exp_name, instance_name="demo") as buffer:
        ...     buffer.push([{"obs": i, "collect_iter": 0} for i in range(4)], cur_collector_envstep=4)
        ...     batch = buffer.sample(2, cur_learner_iter=1)
        ...     keys = ("replay_unique_id", "replay_buffer_idx")
        ...     info = {key: [item[key] for item in batch] for key in keys}
        ...     buffer.update({**info, "priority": [0.5, 2.0]})
        ...     [item["staleness"] for item in batch]
        [1, 1]
    """

    settings = ADVANCED_SETTINGS
    _slot_fields = METADATA_FIELDS

    def __init__(
        self,
        cfg: Mapping[str, Any],
        tb_logger: Any = None,
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
    ) -> None:
        super().__init__(cfg, tb_logger, exp_name, instance_name)
        own = self._cfg
        self._max_use = own.max_use
        self._beta, self._anneal_step = float(own.beta), int(own.anneal_step)
        self._beta_step = (1 - self._beta) / self._anneal_step if self._anneal_step else 0.0
        self._eps = PRIORITY_EPS
        self._cur_collector_envstep = -1
        self._metadata = ItemMetadata(self._store, instance_name, float(own.alpha))
        self._index = self._metadata.index
        self._staleness = StalenessTracker(self._store, own.max_staleness)
        self._thruput_controller = ThruputController(own.thruput_controller)
        self._sample_min_limit_ratio = own.thruput_controller.sample_min_limit_ratio
        self._tick = TickTime()
        self._sampled_data_attr_monitor = SampledDataAttrMonitor(
            self._tick, own.monitor.sampled_data_attr.average_range
        )
        self._print_freq = int(own.monitor.sampled_data_attr.print_freq)
        self.check_list: list[Callable[[Any], bool]] = [_is_dict]

    def _periodic_seconds(self) -> float:
        return float(self._cfg.monitor.periodic_thruput.seconds)

    # Private attributes of DI-engine that external code accesses.

    @property
    def _head(self) -> int:
        return self._store.head

    @property
    def _next_unique_id(self) -> int:
        return self._metadata.next_unique_id

    @property
    def _use_count(self) -> IntArray:
        return self._metadata.use_count

    @property
    def _max_priority(self) -> float:
        return self._index.max_priority

    @property
    def _sum_tree(self) -> SumSegmentTree:
        return self._index.sum_tree

    @property
    def _min_tree(self) -> MinSegmentTree:
        return self._index.min_tree

    @property
    def max_priority(self) -> float:
        """The largest priority that `update` has set, at least 1. Items without a priority get it."""
        return self._index.max_priority

    @max_priority.setter
    def max_priority(self, priority: float) -> None:
        with self._lock:
            self._index.max_priority = priority

    @property
    def beta(self) -> float:
        """Exponent of the importance weights. Each successful sample moves it towards 1 by a fixed step."""
        return self._beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self._beta = beta

    @property
    def alpha(self) -> float:
        """Exponent of the priorities. Setting it does not change weights that are already computed."""
        return self._index.alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        self._index.alpha = alpha

    def push(self, data: list[Any] | Any, cur_collector_envstep: int) -> int:
        """Store one item, or each item of a list; the oldest are overwritten when the buffer is full.

        An item may have a `priority`; otherwise it gets `max_priority`. If the ratio pushed / sampled would exceed its
        limit, nothing is stored and a line is logged.

        Returns:
            The number of items that were stored.

        Raises:
            PriorityError: If a priority is negative or not finite; nothing is stored.
        """
        items = self._prepare(data)
        if not items:
            return 0
        with self._lock:
            accepted = 0
            verdict = self._thruput_controller.can_push(len(items))
            if verdict:
                self._cur_collector_envstep = cur_collector_envstep
                accepted = self._insert(items)
                self._thruput_controller.add(pushed=accepted)
        if not verdict:
            self._logger.info("refused to push %d items: %s", len(items), verdict.reason)
        elif accepted == 0 and not isinstance(data, list):
            self._logger.info("an item was not stored, because it fails a check of check_list: %.200r", data)
        return accepted

    def _insert(self, items: list[Any]) -> int:
        items = self._checked(items)
        if not items:
            return 0
        priorities, items = self._metadata.priorities_of(items), without_metadata(items)
        store, before = self._store, self._store.valid_count
        for start in range(0, len(items), store.size):
            chunk = part_of(items, start, start + store.size) if len(items) > store.size else items
            count, slots = len(chunk), store.next_slots(len(chunk))
            store.valid_count += count - self._metadata.count_live(slots)
            _, dropped = self._write(chunk)
            self._metadata.begin(slots, priorities[start : start + count])
            self._staleness.record(slots, chunk)
            self._report_dropped(dropped)
        self._count_thruput(pushed=len(items), removed=before + len(items) - store.valid_count)
        return len(items)

    def _checked(self, items: list[Any]) -> list[Any]:
        """Returns the items that pass all checks."""
        if self.check_list == [_is_dict] and isinstance(items, Samples) and items.columns is not None:
            return items
        for check in self.check_list:
            items = [item for item in items if check(item)]
        return items

    def sample(self, size: int, cur_learner_iter: int, sample_range: slice | None = None) -> list[Any] | None:
        """Sample `size` items with probability proportional to priority ** alpha, with replacement.

        Args:
            size: Number of items.
            cur_learner_iter: Current iteration of the learner, from which staleness is computed.
            sample_range: Positions to sample from. Position 0 is the oldest slot, so `slice(-10, None)` selects the
                ten newest. Its step is ignored.

        Returns:
            The items. None, after a log line, if there are too few or the limit on pushed / sampled does not allow it.

        Raises:
            ValueError: If `size` is negative or above the capacity, or no item in `sample_range` can be sampled.
            TypeError: If `sample_range` is not a slice.
        """
        size = self._check_size(size)
        if sample_range is not None and not isinstance(sample_range, slice):
            raise TypeError(f"sample_range = {sample_range!r} is not allowed; it must be a slice or None")
        if size == 0:
            return []
        with self._lock:
            enough = self._sample_check(size, cur_learner_iter)
            rate = self._thruput_controller.can_sample(size)
            is_allowed = enough and rate
            if is_allowed:
                batch = self._sample_with_lock(size, int(cur_learner_iter), sample_range)
                is_due = (self._tick.time() - 1) % self._print_freq == 0
                report = self._sampled_data_attr_monitor.summary() if is_due else None
        if not is_allowed:
            self._logger.info("refused to sample %d items: %s; %s", size, enough.reason, rate.reason)
            return None
        if report is not None:
            self._log_report(report, int(cur_learner_iter))
        return batch

    def stock(self, cur_learner_iter: int) -> Stock:
        """Remove stale items, then return what can be drawn."""
        with self._lock:
            self._remove_stale(cur_learner_iter)
            rates = self._thruput_controller
            pushed, sampled = rates.history_push_count, rates.history_sample_count
            return Stock(self._store.valid_count, self._index.total, self._index.least_weight, pushed, sampled)

    def draw(self, size: int, cur_learner_iter: int, least_weight: float) -> list[Any]:
        """Draw a part of a batch from one of several buffers that act as one. As `sample`, without any limit.

        Args:
            size: Number of items; may exceed the capacity.
            least_weight: The smallest weight in all of these buffers, see `stock`. Importance weights are relative to
                it.

        Raises:
            ValueError: If the buffer is empty.
        """
        with self._lock:
            return self._sample_with_lock(size, int(cur_learner_iter), None, least_weight)

    def _sample_with_lock(
        self, size: int, cur_learner_iter: int, sample_range: slice | None, least_weight: float | None = None
    ) -> list[Any]:
        ranges = None if sample_range is None else self._store.ranges(sample_range)
        slots = self._index.draw(size, self._rng, ranges)
        np.add.at(self._metadata.use_count, slots, 1)
        columns, records = self._store.gather_with_fields(slots)
        staleness = self._staleness.staleness(slots, columns, cur_learner_iter)
        metadata = {
            **self._metadata.as_columns(slots, records),
            "staleness": Column(Kind.INT, staleness),
            "IS": Column(Kind.FLOAT, self._index.importance(slots, self._beta, least_weight)),
        }
        batch = self._with_columns(slots, columns, metadata)
        self._sampled_data_attr_monitor.record(use=records["use"], priority=records["priority"], staleness=staleness)
        self._tick.step()
        self._beta = min(1.0, self._beta + self._beta_step)
        self._thruput_controller.add(sampled=size)
        self._count_thruput(sampled=size)
        if not math.isinf(self._max_use):
            used_up = slots[records["use"] >= self._max_use]
            if used_up.size:
                self._retire(np.unique(used_up))
        return batch

    def _with_metadata(self, slots: IntArray) -> list[Any]:
        """Returns the items in `slots` with their metadata."""
        columns, records = self._store.gather_with_fields(slots)
        return self._with_columns(slots, columns, self._metadata.as_columns(slots, records))

    def _with_columns(self, slots: IntArray, columns: dict[str, Node] | None, added: dict[str, Column]) -> list[Any]:
        """Returns the items in `slots` with the `added` columns; `columns` are those of the items, if any."""
        if columns is not None:
            columns.update(added)
            return Samples(columns, size=len(slots))
        items = list(self._store.read(slots))
        for key, column in added.items():
            for item, value in zip(items, column.items(), strict=True):
                item[key] = value
        return items

    def _sample_check(self, size: int, cur_learner_iter: int) -> Verdict:
        """Remove stale items, then return whether enough are left to sample `size`."""
        with self._lock:
            self._remove_stale(cur_learner_iter)
            have, ratio = self._store.valid_count, self._sample_min_limit_ratio
            if have / size >= ratio:
                return _ENOUGH
            return Verdict(False, f"the buffer holds {have} items, needed are {math.ceil(size * ratio)}")

    # ---- removal

    def _remove_stale(self, cur_learner_iter: int) -> None:
        stale = self._staleness.stale_slots(int(cur_learner_iter))
        if stale.size:
            self._remove(stale)

    def _retire(self, slots: IntArray) -> None:
        """Exclude items that reached `max_use` from later draws.

        With `enable_track_used_data` they stay in their slots, because the caller of `sample` still reads their files.
        """
        if not self._enable_track_used_data:
            self._remove(slots)
            return
        live = self._metadata.count_live(slots)
        self._store.valid_count -= live
        self._metadata.retire(slots)
        self._count_thruput(removed=live)

    def _remove(self, slots: IntArray) -> None:
        live = self._metadata.count_live(slots)
        self._store.valid_count -= live
        self._metadata.remove(slots)
        self._evict(slots)
        self._count_thruput(removed=live)

    def _log_report(self, report: dict[str, float], cur_learner_iter: int) -> None:
        report["beta"] = self._beta
        self._logger.info("sampled data: %s", ", ".join(f"{key} {value:.6g}" for key, value in report.items()))
        envstep = self._cur_collector_envstep
        self._log.scalars(
            report,
            train_iter=None if cur_learner_iter == -1 else cur_learner_iter,
            envstep=None if envstep == -1 else envstep,
        )

    def update(self, info: dict[str, Any]) -> None:
        """Set new priorities of sampled items. Ignores `info` without `priority`.

        `info` has `replay_unique_id`, `replay_buffer_idx` and `priority`, each a list, array or tensor [n]. Items that
        were overwritten or removed since they were sampled are skipped. 1e-5 is added to each priority.

        Raises:
            KeyError: If `replay_unique_id` or `replay_buffer_idx` is missing.
            PriorityError: If a priority is negative or not finite; nothing is changed.
            ValueError: If the lists differ in length.
            IndexError: If a slot lies outside the buffer.
        """
        if "priority" not in info:
            return
        unique_ids, slots, priorities = read_priority_info(info, self._store.size)
        with self._lock:
            known = self._metadata.is_known(slots, unique_ids)
            if self._enable_track_used_data:  # items that reached max_use are still in their slots
                known &= self._index.weights[slots] > 0
            if np.count_nonzero(known) < len(known):
                skipped = [unique_ids[i] for i in np.flatnonzero(~known).tolist()]
                self._logger.debug("skipped the priorities of items that left the buffer: %s", skipped)
                slots, priorities = slots[known], priorities[known]
            self._metadata.priorities[slots] = self._index.update(slots, priorities, self._eps)

    def clear(self) -> None:
        """Remove all items and reset `max_priority`. `push_count`, ids and `beta` continue."""
        with self._lock:
            removed = self._store.valid_count
            self._evict(self._store.occupied())
            self._store.reset()
            self._metadata.clear()
            self._staleness.clear()
            self._count_thruput(removed=removed)

    # ---- states

    def _state(self, is_copied: bool) -> dict[str, Any]:
        with self._lock:
            state = super()._state(is_copied)
            return {
                **state,
                **self._metadata.state(state["data"]["slots"]),
                "beta": self._beta,
                "anneal_step": self._anneal_step,
                "tick": self._tick.time(),
                "sampled": self._sampled_data_attr_monitor.state_dict(),
                "limiter": self._thruput_controller.state_dict(),
                "collector_envstep": self._cur_collector_envstep,
            }

    def load_state_dict(self, _state_dict: dict[str, Any], deepcopy: bool = False) -> None:
        """Replace the contents by a state. If it has only the key `data`, push this list of items instead.

        Args:
            deepcopy: Not used: the buffer always copies the state.

        Raises:
            AssertionError: If `data` is missing.
            ValueError: If the state is of a buffer of another size.
        """
        super().load_state_dict(_state_dict)

    def _restore(self, state: dict[str, Any]) -> None:
        slots = np.asarray(state["data"]["slots"], np.int64)
        items: list[Any] = []
        if "unique_ids" not in state:  # a list of items that hold their metadata
            items = state["data"]["items"]
            state = {**state, "data": {**state["data"], "items": list(without_metadata(items))}}
        super()._restore(state)
        self._metadata.load(slots, state, items)
        self._beta, self._anneal_step = state.get("beta", self._beta), state.get("anneal_step", self._anneal_step)
        self._staleness.clear()
        if slots.size:
            self._staleness.record(slots, self._store.read(slots))
        if "tick" in state:
            self._tick = self._sampled_data_attr_monitor.time = TickTime(int(state["tick"]))
            self._sampled_data_attr_monitor.load_state_dict(state["sampled"])
            self._thruput_controller.load_state_dict(state["limiter"])
            self._cur_collector_envstep = state["collector_envstep"]

    def _items_to_save(self) -> list[Any]:
        slots = self._store.occupied()
        slots = slots[self._index.weights[slots] > 0]
        return self._with_metadata(slots)

    # ---- items of `_data`

    def _item_view(self, slot: int) -> ItemView:
        return ItemView(self._with_metadata(np.array([slot]))[0], partial(self._change_item, slot))

    def _set_slot(self, slot: int, item: dict[str, Any] | None) -> None:
        if item is None:
            self._store.replace(slot, None)
            self._metadata.remove(np.array([slot]))
            return
        self._store.replace(slot, without_metadata([item])[0])
        self._staleness.record(np.array([slot]), [item])
        self._metadata.set_from_item(slot, {"priority": self._index.max_priority, **item})

    def _change_item(self, slot: int, item: dict[str, Any], changes: dict[str, Any]) -> None:
        """Write the `changes` of an item view to its slot, if the slot still holds the item."""
        with self._lock:
            if not self._metadata.is_current(slot, item):
                return
            self._metadata.set_from_item(slot, changes)
            others = {key: value for key, value in changes.items() if key not in METADATA_KEYS}
            if others:
                changed = {**self._store.read(np.array([slot]))[0], **others}
                self._store.replace(slot, changed)
                self._staleness.record(np.array([slot]), [changed])


def to_positive_index(idx: int | None, size: int) -> int | None:
    """Returns `idx` + `size` if `idx` is negative, else `idx` itself."""
    return idx if idx is None or idx >= 0 else size + idx
