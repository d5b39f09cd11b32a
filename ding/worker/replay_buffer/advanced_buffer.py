"""A buffer with priorities, bounds on use and staleness, and a bound on how fast it is filled and drained."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ding.data.priority_index import PRIORITY_EPS, PriorityIndex, Slots, as_priorities
from ding.data.ring import BoolArray
from ding.utils.autolog import TickTime
from ding.utils.data.samples import Column, Kind, Node, Samples, node_items, part_of
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import FloatArray, IntArray, MinSegmentTree, SumSegmentTree
from ding.worker.replay_buffer.advanced_config import ADVANCED_CONFIG, ADVANCED_RULES
from ding.worker.replay_buffer.column_buffer import ColumnBuffer
from ding.worker.replay_buffer.utils import SampledDataAttrMonitor, ThruputController, Verdict
from ding.worker.replay_buffer.utils.unique_id import UniqueIds, parse_id

# The keys that `sample` adds. Of an item that brings some of them, the priority alone counts.
_BOOKKEEPING = ("replay_unique_id", "replay_buffer_idx", "priority", "staleness", "use", "IS")
# The number in the id of a slot without an item.
_NO_ID = -1
_ENOUGH = Verdict(True, "enough items are there")
# Stands for "the item has no collect_iter"; its staleness is -1.
_NO_ITER = np.iinfo(np.int64).min


def _is_dict(item: Any) -> bool:
    return isinstance(item, dict)


@BUFFER_REGISTRY.register("advanced")
class AdvancedReplayBuffer(ColumnBuffer):
    """Prioritized replay buffer (arXiv:1511.05952) that can also bound use, staleness and throughput. Thread-safe.

    Items are dicts. `sample` hands out copies with these keys added:

    - `replay_unique_id`: `<instance_name>_<n>`, the n-th item that was taken in; `replay_buffer_idx`: its slot
    - `priority`, `IS`: its priority and importance weight, at most 1
    - `use`, `staleness`: how often it was sampled, and learner iterations since its `collect_iter` (-1 without one)

    Attributes:
        check_list: predicates on items; an item that fails one is not taken in.

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

    config = ADVANCED_CONFIG
    config_rules = ADVANCED_RULES
    _slot_fields = (("unique_id", np.int64), ("use", np.int64), ("priority", np.float64))

    def __init__(
        self,
        cfg: Mapping[str, Any],
        tb_logger: Any = None,
        exp_name: str = "default_experiment",
        instance_name: str = "buffer",
    ) -> None:
        super().__init__(cfg, tb_logger, exp_name, instance_name)
        own = self._cfg
        self._max_use, self._max_staleness = own.max_use, own.max_staleness
        self._beta, self._anneal_step = float(own.beta), int(own.anneal_step)
        self._beta_step = (1 - self._beta) / self._anneal_step if self._anneal_step else 0.0
        self._eps = PRIORITY_EPS
        self._cur_collector_envstep = -1
        # A weight of 0 means that the slot cannot be drawn.
        self._index = PriorityIndex(self._store.size, float(own.alpha))
        self._unique_ids.fill(_NO_ID)
        self._next_unique_id = 0
        self._odd_iters: IntArray | None = None  # `collect_iter` where the column of that name has no plain ints
        self._oldest_iter = math.inf  # no item was collected before
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

    # The bookkeeping, by slot.

    @property
    def _unique_ids(self) -> IntArray:
        numbers: IntArray = self._store.field("unique_id")
        return numbers

    @property
    def _use_count(self) -> IntArray:
        counts: IntArray = self._store.field("use")
        return counts

    @property
    def _priorities(self) -> FloatArray:
        """Stale where the weight is 0."""
        priorities: FloatArray = self._store.field("priority")
        return priorities

    def _set_priorities(self, slots: Slots, priorities: FloatArray) -> None:
        self._priorities[slots] = self._index.set(slots, priorities)

    # Names that code outside reads and writes.

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
    def _min_tree(self) -> MinSegmentTree:
        return self._index.min_tree

    @property
    def max_priority(self) -> float:
        """The largest priority that updates have set; items that bring none get it."""
        return self._index.max_priority

    @property
    def beta(self) -> float:
        """Exponent of the importance weights; each successful sample moves it towards 1 by a fixed step."""
        return self._beta

    @beta.setter
    def beta(self, beta: float) -> None:
        self._beta = beta

    @property
    def alpha(self) -> float:
        """Exponent of the priorities, for the weights computed from now on."""
        return self._index.alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        self._index.alpha = alpha

    def push(self, data: list[Any] | Any, cur_collector_envstep: int) -> None:
        """Store one item, or each item of a list; the oldest are overwritten when the buffer is full.

        An item may bring its `priority`; without one it gets the largest that updates have set so far. The whole call
        is refused, with a log line, while the limit on pushed / sampled asks for it.

        Raises:
            PriorityError: a priority is negative or not finite; nothing is stored.
        """
        items = self._prepare(data)
        if not items:
            return
        with self._lock:
            verdict = self._thruput_controller.can_push(len(items))
            if verdict:
                self._cur_collector_envstep = cur_collector_envstep
                accepted = self._take_in(items)
                self._thruput_controller.note(pushed=accepted)
        if not verdict:
            self._logger.info("refused to push %d items: %s", len(items), verdict.reason)
        elif accepted == 0 and not isinstance(data, list):
            self._logger.info("an item was not taken in: it fails a check of check_list: %.200r", data)

    def _take_in(self, items: list[Any]) -> int:
        items = self._checked(items)
        if not items:
            return 0
        priorities, items = self._priorities_of(items), _without_bookkeeping(items)
        store, before = self._store, self._store.valid_count
        for start in range(0, len(items), store.size):
            chunk = part_of(items, start, start + store.size) if len(items) > store.size else items
            count, slots = len(chunk), store.next_slots(len(chunk))
            store.valid_count += count - self._count_live(slots)
            _, dropped = self._put(chunk)
            self._unique_ids[slots] = np.arange(self._next_unique_id, self._next_unique_id + count)
            self._use_count[slots] = 0
            self._set_priorities(slots, priorities[start : start + count])
            self._note_collect_iters(slots, chunk)
            self._next_unique_id += count
            self._drop(dropped)
        self._count_thruput(pushed=len(items), removed=before + len(items) - store.valid_count)
        return len(items)

    def _checked(self, items: list[Any]) -> list[Any]:
        """The items that pass all checks."""
        if self.check_list == [_is_dict] and isinstance(items, Samples) and items.columns is not None:
            return items
        for check in self.check_list:
            items = [item for item in items if check(item)]
        return items

    def _priorities_of(self, items: list[Any]) -> FloatArray:
        """The priorities [n] that items bring; the largest one seen so far where they bring none."""
        default = self._index.max_priority
        columns = items.columns if isinstance(items, Samples) else None
        if columns is None:
            brought = [item.get("priority") for item in items]
        elif "priority" not in columns:
            return np.full(len(items), default)
        elif isinstance(columns["priority"], Column) and columns["priority"].kind is not Kind.OBJECT:
            return as_priorities(columns["priority"].values())
        else:
            brought = node_items(columns["priority"])
        return as_priorities([default if priority is None else priority for priority in brought])

    def _count_live(self, slots: IntArray | slice) -> int:
        return int(np.count_nonzero(self._index.weights[slots]))

    def sample(self, size: int, cur_learner_iter: int, sample_range: slice | None = None) -> list[Any] | None:
        """Draw `size` items in proportion to priority ** alpha; None (and a log line) when the limits do not allow it.

        An item may come up more than once.

        Args:
            size: number of items.
            cur_learner_iter: the learner's iteration, from which staleness counts.
            sample_range: restricts the draw; positions count from the oldest slot to the newest, so `slice(-10, None)`
                are the ten newest. Its step is ignored.

        Raises:
            ValueError: `size` is negative or above the capacity, or nothing in `sample_range` can be sampled.
            TypeError: `sample_range` is no slice.
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

    def _sample_with_lock(self, size: int, cur_learner_iter: int, sample_range: slice | None) -> list[Any]:
        ranges = None if sample_range is None else self._store.ranges(sample_range)
        slots = self._index.draw(size, self._rng, ranges)
        np.add.at(self._use_count, slots, 1)
        columns, books = self._store.gather_with_fields(slots)
        staleness = self._staleness(slots, _plain_collect_iters(columns), cur_learner_iter)
        bookkeeping = {
            **self._bookkeeping(slots, books),
            "staleness": Column(Kind.INT, staleness),
            "IS": Column(Kind.FLOAT, self._index.importance(slots, self._beta)),
        }
        batch = self._with_columns(slots, columns, bookkeeping)
        self._sampled_data_attr_monitor.record(use=books["use"], priority=books["priority"], staleness=staleness)
        self._tick.step()
        self._beta = min(1.0, self._beta + self._beta_step)
        self._thruput_controller.note(sampled=size)
        self._count_thruput(sampled=size)
        if not math.isinf(self._max_use):
            used_up = slots[books["use"] >= self._max_use]
            if used_up.size:
                self._use_up(np.unique(used_up))
        return batch

    def _bookkeeping(self, slots: IntArray, books: np.ndarray) -> dict[str, Column]:
        """The columns that show the `books` [n] of `slots` [n]."""
        return {
            "replay_unique_id": Column(Kind.OBJECT, UniqueIds(self._instance_name, books["unique_id"])),
            "replay_buffer_idx": Column(Kind.INT, slots),
            "priority": Column(Kind.FLOAT, books["priority"]),
            "use": Column(Kind.INT, books["use"]),
        }

    def _shown(self, slots: IntArray) -> list[Any]:
        """The items in `slots` with their bookkeeping."""
        columns, books = self._store.gather_with_fields(slots)
        return self._with_columns(slots, columns, self._bookkeeping(slots, books))

    def _with_columns(self, slots: IntArray, columns: dict[str, Node] | None, added: dict[str, Column]) -> list[Any]:
        """The items in `slots`, whose `columns` are these where there are some, with those `added`."""
        if columns is not None:
            columns.update(added)
            return Samples(columns, size=len(slots))
        items = list(self._store.read(slots))
        for key, column in added.items():
            for item, value in zip(items, column.items(), strict=True):
                item[key] = value
        return items

    # ---- age

    def _note_collect_iters(self, slots: IntArray | slice, items: Sequence[Any]) -> None:
        """Keep the `collect_iter` of items that were just written to `slots`, where their column does not."""
        columns = self._store.columns
        if columns is not None and "collect_iter" not in columns:
            return
        collected = _plain_collect_iters(columns)
        if collected is None:
            if self._odd_iters is None:
                slots = np.flatnonzero(self._store.held)
                items = self._store.read(slots)
                self._odd_iters = np.full(self._store.size, _NO_ITER)
            collected = self._odd_iters
            collected[slots] = [_least(item.get("collect_iter")) for item in items]
        if math.isinf(self._max_staleness):
            return
        known = collected[slots]
        self._oldest_iter = min(self._oldest_iter, known.min(initial=np.iinfo(np.int64).max, where=known != _NO_ITER))

    def _staleness(self, slots: IntArray, collected: IntArray | None, cur_learner_iter: int) -> IntArray:
        """Learner iterations [n] since the items in `slots` were collected, -1 where that is not known.

        `collected` [n] are their `collect_iter`, where a column of the store holds them as plain ints.
        """
        if collected is not None:
            return cur_learner_iter - collected
        if self._odd_iters is None:
            return np.full(len(slots), -1)
        iters = self._odd_iters[slots]
        return np.where(iters == _NO_ITER, -1, cur_learner_iter - iters)

    def _stale_slots(self, cur_learner_iter: int) -> IntArray:
        if cur_learner_iter - self._oldest_iter < self._max_staleness:
            return np.arange(0)
        slots = np.flatnonzero(self._store.held)
        collected = _plain_collect_iters(self._store.columns)
        staleness = self._staleness(slots, None if collected is None else collected[slots], cur_learner_iter)
        is_stale = staleness >= self._max_staleness
        self._oldest_iter = cur_learner_iter - int(staleness[~is_stale].max(initial=-1))
        stale: IntArray = slots[is_stale]
        return stale

    def _sample_check(self, size: int, cur_learner_iter: int) -> Verdict:
        """Remove stale items, then tell whether enough are left for `size`."""
        with self._lock:
            if not math.isinf(self._max_staleness):
                stale = self._stale_slots(int(cur_learner_iter))
                if stale.size:
                    self._remove(stale)
            have, ratio = self._store.valid_count, self._sample_min_limit_ratio
            if have / size >= ratio:
                return _ENOUGH
            return Verdict(False, f"{have} items are there, {math.ceil(size * ratio)} are needed")

    # ---- removal

    def _use_up(self, slots: IntArray) -> None:
        """Take items that reached `max_use` out of the draw.

        With used-data tracking they stay in their slots: who just sampled them still has to read their files.
        """
        if not self._enable_track_used_data:
            self._remove(slots)
            return
        live = self._count_live(slots)
        self._store.valid_count -= live
        self._index.remove(slots)
        self._priorities[slots] = 0.0
        self._count_thruput(removed=live)

    def _remove(self, slots: IntArray) -> None:
        live = self._count_live(slots)
        self._store.valid_count -= live
        self._index.remove(slots)
        self._unique_ids[slots] = _NO_ID
        self._take_out(slots)
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
        """Set new priorities of sampled items; `info` without `priority` is ignored.

        `info` holds `replay_unique_id`, `replay_buffer_idx` and `priority`, each a list [n] (or array, or tensor). An
        item that was overwritten or removed since it was sampled is skipped. 1e-5 is added to each priority.

        Raises:
            KeyError: an id list is missing.
            PriorityError: a priority is negative or not finite; nothing is changed.
            ValueError: the lists differ in length.
            IndexError: a slot lies outside the buffer.
        """
        if "priority" not in info:
            return
        unique_ids, slots, priorities = _read_priority_info(info, self._store.size)
        with self._lock:
            known = self._is_live(slots, unique_ids)
            if np.count_nonzero(known) < len(known):
                skipped = [unique_ids[i] for i in np.flatnonzero(~known).tolist()]
                self._logger.debug("priorities of items that are gone are skipped: %s", skipped)
                slots, priorities = slots[known], priorities[known]
            self._priorities[slots] = self._index.update(slots, priorities, self._eps)

    def _is_live(self, slots: IntArray, unique_ids: Sequence[str]) -> BoolArray:
        """Whether each of `slots` can be drawn and still holds the item of that id."""
        held = self._unique_ids[slots]
        live: BoolArray
        if isinstance(unique_ids, UniqueIds) and unique_ids.name == self._instance_name:
            live = held == unique_ids.numbers
        else:
            shown = UniqueIds(self._instance_name, held)
            live = np.fromiter(map(operator.eq, shown, unique_ids), np.bool_, len(slots))
        return live & (self._index.weights[slots] > 0) if self._enable_track_used_data else live

    def clear(self) -> None:
        """Drop all items and forget the largest priority; `push_count`, ids and beta go on."""
        with self._lock:
            removed = self._store.valid_count
            self._take_out(self._store.occupied())
            self._store.reset()
            self._forget_books()
            self._count_thruput(removed=removed)

    def _forget_books(self) -> None:
        self._index.clear()
        self._use_count.fill(0)
        self._unique_ids.fill(_NO_ID)
        self._odd_iters, self._oldest_iter = None, math.inf

    # ---- states

    def state_dict(self) -> dict[str, Any]:
        """A snapshot in plain values and arrays: items, their bookkeeping in order, counters, random state."""
        with self._lock:
            slots = self._store.occupied()
            return {
                **super().state_dict(),
                "use_count": self._use_count[slots],
                "unique_ids": self._unique_ids[slots],
                "priorities": self._priorities[slots],
                "weights": self._index.weights[slots],
                "max_priority": self._index.max_priority,
                "next_unique_id": self._next_unique_id,
                "beta": self._beta,
                "anneal_step": self._anneal_step,
            }

    def load_state_dict(self, _state_dict: dict[str, Any], deepcopy: bool = False) -> None:
        """Take over a state, in place of all that is there; one with `data` alone is a list of items to push.

        Args:
            deepcopy: not needed: the buffer copies what it takes over.

        Raises:
            AssertionError: `data` is missing.
            ValueError: the state is of a buffer of another size.
        """
        super().load_state_dict(_state_dict)

    def _restore(self, state: dict[str, Any]) -> None:
        slots = np.asarray(state["data"]["slots"], np.int64)
        shown: list[Any] = []
        if "unique_ids" not in state:  # the items show their bookkeeping
            shown = state["data"]["items"]
            state = {**state, "data": {**state["data"], "items": list(_without_bookkeeping(shown))}}
        super()._restore(state)
        self._forget_books()
        if shown or "unique_ids" not in state:
            self._restore_shown(slots, shown)
        else:
            self._unique_ids[slots], self._use_count[slots] = state["unique_ids"], state["use_count"]
            self._priorities[slots] = state["priorities"]
            self._index.set_weights(slots, np.asarray(state["weights"]))
        self._next_unique_id = int(state["next_unique_id"])
        self._index.max_priority = float(state["max_priority"])
        self._beta, self._anneal_step = state.get("beta", self._beta), state.get("anneal_step", self._anneal_step)
        if slots.size:
            self._note_collect_iters(slots, self._store.read(slots))

    def _restore_shown(self, slots: IntArray, items: list[Any]) -> None:
        """Take over the bookkeeping that items show; those with priority 0 are retired."""
        self._unique_ids[slots] = [parse_id(self._instance_name, item["replay_unique_id"]) for item in items]
        self._use_count[slots] = [item.get("use", 0) for item in items]
        priorities = self._priorities_of(items)
        self._set_priorities(slots, priorities)
        retired = slots[priorities == 0.0]
        self._index.remove(retired)
        self._priorities[retired] = 0.0

    def _items_to_save(self) -> list[Any]:
        slots = self._store.occupied()
        slots = slots[self._index.weights[slots] > 0]
        return self._shown(slots)

    # ---- slots, as code outside sees them

    def _show(self, slot: int) -> ItemView:
        return ItemView(self._shown(np.array([slot]))[0], slot, self)

    def _set_slot(self, slot: int, item: dict[str, Any] | None) -> None:
        if item is None:
            self._store.replace(slot, None)
            self._index.remove(np.array([slot]))
            self._unique_ids[slot] = _NO_ID
            return
        self._store.replace(slot, _without_bookkeeping([item])[0])
        self._note_collect_iters(np.array([slot]), [item])
        self._set_books(slot, {"priority": self._index.max_priority, **item})

    def _set_shown(self, slot: int, item: dict[str, Any], changes: dict[str, Any]) -> None:
        """Write `changes` of a shown item to its slot, if it is still there."""
        with self._lock:
            unique_id = parse_id(self._instance_name, item["replay_unique_id"])
            if not self._store.held[slot] or self._unique_ids[slot] != unique_id:
                return
            self._set_books(slot, changes)
            others = {key: value for key, value in changes.items() if key not in _BOOKKEEPING}
            if others:
                changed = {**self._store.read(np.array([slot]))[0], **others}
                self._store.replace(slot, changed)
                self._note_collect_iters(np.array([slot]), [changed])

    def _set_books(self, slot: int, shown: dict[str, Any]) -> None:
        if "replay_unique_id" in shown:
            self._unique_ids[slot] = parse_id(self._instance_name, shown["replay_unique_id"])
        if "priority" in shown:
            self._set_priorities(np.array([slot]), as_priorities([shown["priority"]]))
        if "use" in shown:
            self._use_count[slot] = shown["use"]


class ItemView(dict[str, Any]):
    """One stored item with its bookkeeping; a key that is set is set in the buffer too."""

    def __init__(self, item: dict[str, Any], slot: int, buffer: AdvancedReplayBuffer) -> None:
        super().__init__(item)
        self._slot, self._buffer = slot, buffer

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several keys."""
        changes = dict(*args, **kwargs)
        self._buffer._set_shown(self._slot, self, changes)
        super().update(changes)

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of `key`, set to `default` when missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[list[tuple[str, Any]]]]:
        return dict, (list(self.items()),)


def _without_bookkeeping(items: list[Any]) -> list[Any]:
    """Items without the keys that `sample` adds; in columns, where they have the same keys then."""
    columns = items.columns if isinstance(items, Samples) else None
    if columns is not None:
        if columns.keys().isdisjoint(_BOOKKEEPING) or columns.keys() <= set(_BOOKKEEPING):
            return items
        return Samples({key: node for key, node in columns.items() if key not in _BOOKKEEPING})
    if all(item.keys().isdisjoint(_BOOKKEEPING) for item in items):
        return items
    items = [copy.copy(item) for item in items]
    for item in items:
        for key in _BOOKKEEPING:
            item.pop(key, None)
    return items


def _plain_collect_iters(columns: dict[str, Node] | None) -> IntArray | None:
    """The values of the column `collect_iter` where they are plain ints."""
    column = None if columns is None else columns.get("collect_iter")
    if isinstance(column, Column) and column.kind is Kind.INT and not column.steps:
        data: IntArray = column.data
        return data
    return None


def _least(collect_iter: Any) -> int:
    """The `collect_iter` of an item; the smallest of several, and a marker where there is none."""
    return _NO_ITER if collect_iter is None else int(np.min(np.asarray(collect_iter)))


def _read_priority_info(info: dict[str, Any], size: int) -> tuple[Sequence[str], IntArray, FloatArray]:
    """The ids, slots and priorities [n] of what `update` of a buffer of `size` slots is given.

    Raises:
        KeyError: an id list is missing.
        PriorityError: a priority is negative or not finite.
        ValueError: the lists differ in length.
        IndexError: a slot lies outside the buffer.
    """
    unique_ids = info["replay_unique_id"]
    unique_ids = unique_ids if isinstance(unique_ids, UniqueIds) else list(unique_ids)
    slots = np.asarray(info["replay_buffer_idx"], dtype=np.int64).reshape(-1)
    priorities = as_priorities(info["priority"])
    if not len(unique_ids) == len(slots) == len(priorities):
        raise ValueError(
            f"{len(unique_ids)} replay_unique_id, {len(slots)} replay_buffer_idx and {len(priorities)} priority "
            "are not one for each item; give lists of one length"
        )
    unsigned = slots.view(np.uint64)  # a negative one is very large
    if len(slots) and unsigned[unsigned.argmax()] >= size:
        raise IndexError(f"replay_buffer_idx must be in [0, {size}), got {slots.min()} to {slots.max()}")
    return unique_ids, slots, priorities


def to_positive_index(idx: int | None, size: int) -> int | None:
    """`idx` counted from the front: None and non-negative ones as they are, negative ones plus `size`."""
    return idx if idx is None or idx >= 0 else size + idx
