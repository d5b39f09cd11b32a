"""A prioritized replay buffer with limits on use, staleness and throughput."""

from __future__ import annotations

import copy
import math
import operator
from collections import deque
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from ding.data.priority_index import PRIORITY_EPS, PriorityIndex, as_priorities, priorities_of
from ding.data.ring import BoolArray
from ding.utils.config_helper import Setting, Settings, integer, number
from ding.utils.data.samples import Column, Items, Kind, Node, Samples, Table, listed, part_of, rows_of, values_of
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import FloatArray, IntArray, SumSegmentTree
from ding.worker.replay_buffer.base_buffer import STORAGE_SETTINGS, ColumnBuffer
from ding.worker.replay_buffer.utils import LimitCheck, ThruputController, UniqueIds

# The keys that `sample` adds. When an item with such keys is pushed, only `priority` is used.
_METADATA_KEYS = {"replay_unique_id", "replay_buffer_idx", "priority", "staleness", "use", "IS"}
# Marks an empty slot, in place of the number in an id.
_NO_ID = -1
# `collect_iter` of an item without one; its staleness is -1.
_NO_ITER = np.iinfo(np.int64).min
_ENOUGH = LimitCheck(True, "enough items")


def _is_dict(item: Any) -> bool:
    return isinstance(item, dict)


class SamplingFacts(NamedTuple):
    """The numbers that describe what can be drawn from a buffer.

    Attributes:
        size: Number of items.
        weight: Sum of their weights, priority ** alpha.
        least_weight: The smallest weight; infinite if there are no items.
        pushed, sampled: Decayed numbers of pushed and sampled items, as the throughput limit counts them.
    """

    size: int
    weight: float
    least_weight: float
    pushed: float
    sampled: float


@BUFFER_REGISTRY.register("advanced")
class AdvancedReplayBuffer(ColumnBuffer):
    """Prioritized replay buffer (arXiv:1511.05952) with limits on use, staleness and throughput.

    This class is thread-safe.

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
        ...     _ = buffer.push([{"obs": i, "collect_iter": 0} for i in range(4)], cur_collector_envstep=4)
        ...     batch = buffer.sample(2, cur_learner_iter=1)
        ...     keys = ("replay_unique_id", "replay_buffer_idx")
        ...     info = {key: [item[key] for item in batch] for key in keys}
        ...     buffer.update({**info, "priority": [0.5, 2.0]})
        ...     [item["staleness"] for item in batch]
        [1, 1]
    """

    settings = Settings(
        {
            "type": "advanced",
            "replay_buffer_size": 4096,
            "max_use": Setting(math.inf, number(1), "Number of draws after which a sample is removed."),
            "max_staleness": Setting(math.inf, number(0), "Age in learner iterations at which a sample is removed."),
            "alpha": Setting(0.6, number(0, 1), "Exponent of the priorities."),
            "beta": Setting(0.4, number(0, 1), "Initial exponent of the importance weights, which grows to 1."),
            "anneal_step": Setting(int(1e5), integer(0), "Number of draws until `beta` is 1; 0 keeps it constant."),
            "thruput_controller.push_sample_rate_limit.max": Setting(
                math.inf, number(0), "Upper limit of the ratio pushed / sampled."
            ),
            "thruput_controller.push_sample_rate_limit.min": Setting(
                0, number(0), "Lower limit of the ratio pushed / sampled."
            ),
            "thruput_controller.window_seconds": Setting(
                30, number(1e-3), "Seconds after which what was pushed or sampled counts for 1 % in the ratio."
            ),
            "thruput_controller.sample_min_limit_ratio": Setting(
                1, number(1), "Least number of samples in the buffer per sample of a batch."
            ),
            "monitor.sampled_data_attr.average_range": Setting(
                5, number(1e-3), "Number of recent batches that the statistics cover."
            ),
            "monitor.sampled_data_attr.print_freq": Setting(200, integer(1), "Number of batches between two reports."),
            "monitor.periodic_thruput.seconds": Setting(60, number(1e-3), "Seconds between two throughput reports."),
        },
        STORAGE_SETTINGS,
    )
    _slot_fields = (
        ("unique_id", np.int64),
        ("use", np.int64),
        ("priority", np.float64),
        ("collect_iter", np.int64),
    )

    def _begin(self) -> None:
        own = self._cfg
        self._max_use = own.max_use
        self._beta, self._anneal_step = float(own.beta), int(own.anneal_step)
        self._beta_step = (1 - self._beta) / self._anneal_step if self._anneal_step else 0.0
        self._eps = PRIORITY_EPS
        self._cur_collector_envstep = -1
        self._index = PriorityIndex(self._store.size, float(own.alpha))
        self._next_unique_id = 0
        self._store.fields["unique_id"][:] = _NO_ID
        self._max_staleness = own.max_staleness
        self._oldest_iter = math.inf  # a lower bound of all `collect_iter`
        self._thruput_controller = ThruputController(own.thruput_controller)
        self._sample_min_limit_ratio = own.thruput_controller.sample_min_limit_ratio
        self._draws = 0
        # Use counts, priorities and staleness of the recent batches.
        self._recent: deque[dict[str, np.ndarray]] = deque(
            maxlen=max(1, int(own.monitor.sampled_data_attr.average_range))
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
    def _max_priority(self) -> float:
        return self._index.max_priority

    @property
    def _sum_tree(self) -> SumSegmentTree:
        return self._index.sum_tree

    @property
    def max_priority(self) -> float:
        """The largest priority that `update` has set, at least 1; items without a priority get it."""
        return self._index.max_priority

    @max_priority.setter
    def max_priority(self, priority: float) -> None:
        with self._lock:
            self._index.max_priority = priority

    @property
    def beta(self) -> float:
        """Exponent of the importance weights; each successful sample moves it towards 1 by a fixed step."""
        return self._beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self._beta = beta

    @property
    def alpha(self) -> float:
        """Exponent of the priorities; setting it does not change weights that are already computed."""
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
        count, accepted = len(items), 0
        if not count:
            return 0
        with self._lock:
            check = self._thruput_controller.can_push(count)
            if check.allowed:
                self._cur_collector_envstep = cur_collector_envstep
                accepted = self._insert(items)
                self._thruput_controller.add(pushed=accepted)
                if self._store.dropped:
                    self._store.report_dropped()
        if not check.allowed:
            self._logger.info("refused to push %d items: %s", count, check.reason)
        elif accepted == 0 and not isinstance(data, list):
            self._logger.info("an item was not stored, because it fails a check of check_list: %.200r", data)
        return accepted

    def _insert(self, items: Items) -> int:
        if not isinstance(items, Table) or self.check_list != [_is_dict]:
            items = rows_of(items)
            for check in self.check_list:
                items = [item for item in items if check(item)]
        priorities = priorities_of(items, self._index.max_priority)  # raises before anything is stored
        count, size = len(priorities), self._store.size
        if count <= size:
            return self._insert_part(items, priorities) if count else 0
        parts = ((part_of(items, start, start + size), start) for start in range(0, count, size))
        return sum(self._insert_part(part, priorities[start : start + size]) for part, start in parts)

    def _insert_part(self, items: Items, priorities: FloatArray) -> int:
        """Store at most `replay_buffer_size` items with their `priorities` [n], and return n."""
        if not isinstance(items, Table) or not _METADATA_KEYS.isdisjoint(items.columns):
            items = _without_metadata(items)
        store, count = self._store, len(priorities)
        iters = self._collect_iters_of(items)  # raises before anything is stored
        slots, _ = self._write(items)
        replaced = int(np.count_nonzero(self._index.weights[slots]))
        fields = store.fields
        fields["unique_id"][slots] = np.arange(self._next_unique_id, self._next_unique_id + count)
        fields["use"][slots] = 0
        fields["priority"][slots] = self._index.set_priorities(slots, priorities)
        fields["collect_iter"][slots] = iters
        self._next_unique_id += count
        store.valid_count += count - replaced
        self._periodic_thruput_monitor.add(pushed=count, removed=replaced, valid=self._store.valid_count)
        return count

    def _collect_iters_of(self, items: Items) -> IntArray:
        """Return the `collect_iter` of each item: the smallest one if it has several, `_NO_ITER` if it has none."""
        given = values_of(items, "collect_iter")
        if given is None:
            return np.array([_NO_ITER])
        if isinstance(given, np.ndarray) and given.dtype == np.int64 and given.ndim == 1:
            iters: IntArray = given
        else:
            iters = np.array([_NO_ITER if value is None else np.min(np.asarray(value)) for value in given], np.int64)
        if not math.isinf(self._max_staleness):
            known = iters[iters != _NO_ITER]
            self._oldest_iter = min(self._oldest_iter, known.min(initial=np.iinfo(np.int64).max))
        return iters

    def sample(self, size: int, cur_learner_iter: int, sample_range: slice | None = None) -> list[Any] | None:
        """Sample `size` items with probability proportional to priority ** alpha, with replacement.

        Args:
            size: Number of items.
            cur_learner_iter: Current iteration of the learner, from which staleness is computed.
            sample_range: Positions to sample from. Position 0 is the oldest slot, so `slice(-10, None)` selects the
                ten newest. Its step is ignored.

        Returns:
            The items. None, after a log line, if there are too few items or the limit on pushed / sampled forbids it.

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
            is_allowed, report = enough.allowed and rate.allowed, None
            if is_allowed:
                batch = self._draw_batch(size, int(cur_learner_iter), sample_range)
                if (self._draws - 1) % self._print_freq == 0:
                    report = self._statistics()
            if self._store.dropped:
                self._store.report_dropped()
        if not is_allowed:
            self._logger.info("refused to sample %d items: %s; %s", size, enough.reason, rate.reason)
            return None
        if report is not None:
            self._log_report(report, int(cur_learner_iter))
        return batch

    def sampling_facts(self, cur_learner_iter: int) -> SamplingFacts:
        """Remove stale items, then return what is left to draw from."""
        with self._lock:
            self._sample_check(1, cur_learner_iter)
            self._store.report_dropped()
            rates = self._thruput_controller
            pushed, sampled = rates.history_push_count, rates.history_sample_count
            return SamplingFacts(self._store.valid_count, self._index.total, self._index.least_weight, pushed, sampled)

    def draw(self, size: int, cur_learner_iter: int, least_weight: float) -> list[Any]:
        """Draw a part of a batch, as one of several buffers that act as one; like `sample`, but without any limit.

        Args:
            size: Number of items; may exceed the capacity.
            least_weight: The smallest weight in all of these buffers, see `sampling_facts`. Importance weights are
                relative to it.

        Raises:
            ValueError: If the buffer is empty.
        """
        with self._lock:
            batch = self._draw_batch(size, int(cur_learner_iter), None, least_weight)
            self._store.report_dropped()
        return batch

    def _draw_batch(
        self, size: int, cur_learner_iter: int, sample_range: slice | None, least_weight: float | None = None
    ) -> list[Any]:
        among = None if sample_range is None else self._store.slots_in(sample_range)
        slots = self._index.draw(size, self._rng, among)
        np.add.at(self._store.fields["use"], slots, 1)
        columns, records = self._store.gather_with_fields(slots)
        staleness = self._staleness_of(records, cur_learner_iter)
        importance = self._index.importance(slots, self._beta, least_weight)
        added = {"staleness": Column(Kind.INT, staleness), "IS": Column(Kind.FLOAT, importance)}
        batch = self._with_metadata(slots, columns, records, added)
        self._draws += 1
        self._recent.append({"use": records["use"], "priority": records["priority"], "staleness": staleness})
        self._beta = min(1.0, self._beta + self._beta_step)
        self._thruput_controller.add(sampled=size)
        self._periodic_thruput_monitor.add(sampled=size, valid=self._store.valid_count)
        if not math.isinf(self._max_use):
            used_up = np.unique(slots[records["use"] >= self._max_use])
            if used_up.size and self._enable_track_used_data:
                # They stay in their slots, because the caller of `sample` still reads their files.
                self._exclude(used_up)
                self._store.fields["priority"][used_up] = 0.0
            elif used_up.size:
                self._remove(used_up)
        return batch

    @staticmethod
    def _staleness_of(records: np.ndarray, cur_learner_iter: int) -> IntArray:
        """Return the staleness [n] of items from their `records`; -1 if unknown."""
        iters = records["collect_iter"]
        staleness: IntArray = cur_learner_iter - iters
        is_unknown = iters == _NO_ITER
        if np.count_nonzero(is_unknown):
            staleness[is_unknown] = -1
        return staleness

    def _with_metadata(
        self, slots: IntArray, columns: dict[str, Node] | None, records: np.ndarray, added: dict[str, Column]
    ) -> list[Any]:
        """Return the items in `slots` with their metadata and the `added` columns.

        Args:
            columns, records: The columns and records of `slots` in the store.
        """
        added = {
            "replay_unique_id": Column(Kind.OBJECT, UniqueIds(self._instance_name, records["unique_id"])),
            "replay_buffer_idx": Column(Kind.INT, slots),
            "priority": Column(Kind.FLOAT, records["priority"]),
            "use": Column(Kind.INT, records["use"]),
            **added,
        }
        if columns is not None:
            columns.update(added)
            return Samples(Table(columns, size=len(slots)))
        items = listed(self._store.read(slots))
        for key, column in added.items():
            for item, value in zip(items, column.items(), strict=True):
                item[key] = value
        return items

    def _read(self, slots: IntArray) -> list[Any]:
        """Return the items in `slots` with their metadata."""
        return self._with_metadata(slots, *self._store.gather_with_fields(slots), {})

    def _sample_check(self, size: int, cur_learner_iter: int) -> LimitCheck:
        """Remove stale items, then return whether enough are left to sample `size`."""
        if cur_learner_iter - self._oldest_iter >= self._max_staleness:
            self._remove_stale(int(cur_learner_iter))
        have, ratio = self._store.valid_count, self._sample_min_limit_ratio
        if have / size >= ratio:
            return _ENOUGH
        return LimitCheck(False, f"the buffer holds {have} items, needed are {math.ceil(size * ratio)}")

    # ---- removal

    def _remove_stale(self, cur_learner_iter: int) -> None:
        slots = np.flatnonzero(self._store.held)
        staleness = self._staleness_of(self._store.records[slots], cur_learner_iter)
        is_stale = staleness >= self._max_staleness
        self._oldest_iter = cur_learner_iter - int(staleness[~is_stale].max(initial=-1))
        if is_stale.any():
            self._remove(slots[is_stale])

    def _remove(self, slots: IntArray) -> None:
        self._exclude(slots)
        self._store.fields["unique_id"][slots] = _NO_ID
        self._store.remove(slots)

    def _exclude(self, slots: IntArray) -> None:
        """Exclude the items in `slots` from later draws."""
        live = int(np.count_nonzero(self._index.weights[slots]))
        self._index.remove(slots)
        self._store.valid_count -= live
        self._periodic_thruput_monitor.add(removed=live, valid=self._store.valid_count)

    def _statistics(self) -> dict[str, float]:
        """Return averages, largest and smallest values over the recent batches."""
        averages = {f"{key}_avg": fmean(batch[key].mean().item() for batch in self._recent) for key in self._recent[0]}
        largest = {f"{key}_max": max(batch[key].max().item() for batch in self._recent) for key in self._recent[0]}
        return {**averages, **largest, "priority_min": min(batch["priority"].min().item() for batch in self._recent)}

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
        """Set new priorities of sampled items; ignore an `info` without `priority`.

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
        unique_ids, slots, priorities = _read_priority_info(info, self._store.size)
        with self._lock:
            known = self._is_known(slots, unique_ids)
            if self._enable_track_used_data:  # items that reached max_use are still in their slots
                known &= self._index.weights[slots] > 0
            if np.count_nonzero(known) < len(known):
                skipped = [unique_ids[i] for i in np.flatnonzero(~known).tolist()]
                self._logger.debug("skipped the priorities of items that left the buffer: %s", skipped)
                slots, priorities = slots[known], priorities[known]
            self._store.fields["priority"][slots] = self._index.update(slots, priorities, self._eps)

    def _is_known(self, slots: IntArray, unique_ids: Sequence[str]) -> BoolArray:
        """Return bool [n]: whether each of `slots` [n] still holds the item with that id."""
        held = self._store.fields["unique_id"][slots]
        known: BoolArray
        if isinstance(unique_ids, UniqueIds) and unique_ids.name == self._instance_name:
            known = held == unique_ids.numbers
        else:
            shown = UniqueIds(self._instance_name, held)
            known = np.fromiter(map(operator.eq, shown, unique_ids), np.bool_, len(slots))
        return known

    def clear(self) -> None:
        """Remove all items and reset `max_priority`. `push_count`, ids and `beta` continue."""
        with self._lock:
            removed = self._store.valid_count
            self._store.clear()
            self._index.clear()
            self._store.fields["use"][:] = 0
            self._store.fields["unique_id"][:] = _NO_ID
            self._oldest_iter = math.inf
            self._periodic_thruput_monitor.add(removed=removed, valid=self._store.valid_count)
            self._store.report_dropped()

    # ---- states

    def _state(self, is_copied: bool) -> dict[str, Any]:
        state = super()._state(is_copied)
        return {
            **state,
            "weights": self._index.weights[self._store.held],
            "max_priority": self._index.max_priority,
            "next_unique_id": self._next_unique_id,
            "beta": self._beta,
            "anneal_step": self._anneal_step,
            "draws": self._draws,
            "recent": [dict(batch) for batch in self._recent],
            "limiter": self._thruput_controller.state_dict(),
            "collector_envstep": self._cur_collector_envstep,
        }

    def load_state_dict(self, _state_dict: dict[str, Any], deepcopy: bool = False) -> None:
        """Replace the contents by a state. If it has only the key `data`, push this list of items instead.

        Args:
            deepcopy: Not used, as the buffer always copies the state.

        Raises:
            AssertionError: If `data` is missing.
            ValueError: If the state belongs to a buffer of another size.
        """
        super().load_state_dict(_state_dict)

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self._index.clear()
        self._index.set_weights(np.flatnonzero(self._store.held), np.asarray(state["weights"]))
        self._index.max_priority = float(state["max_priority"])
        self._store.fields["unique_id"][~self._store.held] = _NO_ID
        iters = self._store.fields["collect_iter"][self._store.held]
        self._oldest_iter = float(iters[iters != _NO_ITER].min(initial=np.iinfo(np.int64).max))
        self._next_unique_id = int(state["next_unique_id"])
        self._beta, self._anneal_step = state["beta"], state["anneal_step"]
        self._draws = int(state["draws"])
        self._recent.clear()
        self._recent.extend(state["recent"])
        self._thruput_controller.load_state_dict(state["limiter"])
        self._cur_collector_envstep = state["collector_envstep"]

    def _items_to_save(self) -> list[Any]:
        slots = self._store.occupied()
        return self._read(slots[self._index.weights[slots] > 0])

    # ---- items of `_data`

    def _item_view(self, slot: int) -> Any:
        return self._read(np.array([slot]))[0]

    def _empty_slot(self, slot: int) -> None:
        super()._empty_slot(slot)
        self._index.remove(np.array([slot]))
        self._store.fields["unique_id"][slot] = _NO_ID


def to_positive_index(idx: int | None, size: int) -> int | None:
    """Return `idx` + `size` if `idx` is negative, else `idx` itself."""
    return idx if idx is None or idx >= 0 else size + idx


def _without_metadata(items: Items) -> Items:
    """Return `items` without the keys that `sample` adds, as copies if an item has such a key."""
    if isinstance(items, Table):
        return items if items.columns.keys() <= _METADATA_KEYS else items.without(*_METADATA_KEYS)
    if all(item.keys().isdisjoint(_METADATA_KEYS) for item in items):
        return items
    items = [copy.copy(item) for item in items]
    for item in items:
        for key in _METADATA_KEYS:
            item.pop(key, None)
    return items


def _read_priority_info(info: dict[str, Any], size: int) -> tuple[Sequence[str], IntArray, FloatArray]:
    """Return the ids, slots and priorities [n] in `info`, the argument of `update` of a buffer of `size` slots.

    Raises:
        KeyError: If `replay_unique_id` or `replay_buffer_idx` is missing.
        PriorityError: If a priority is negative or not finite.
        ValueError: If the lists differ in length.
        IndexError: If a slot lies outside the buffer.
    """
    unique_ids = info["replay_unique_id"]
    unique_ids = unique_ids if isinstance(unique_ids, UniqueIds) else list(unique_ids)
    slots = np.asarray(info["replay_buffer_idx"], dtype=np.int64).reshape(-1)
    priorities = as_priorities(info["priority"])
    if not len(unique_ids) == len(slots) == len(priorities):
        raise ValueError(
            f"{len(unique_ids)} replay_unique_id, {len(slots)} replay_buffer_idx and {len(priorities)} priority "
            "are not allowed; they must have one entry for each item"
        )
    unsigned = slots.view(np.uint64)  # negative slots become very large
    if len(slots) and unsigned[unsigned.argmax()] >= size:
        raise IndexError(f"replay_buffer_idx must be in [0, {size}), got {slots.min()} to {slots.max()}")
    return unique_ids, slots, priorities
