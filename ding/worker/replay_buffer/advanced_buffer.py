"""A buffer with priorities, bounds on use and staleness, and a bound on how fast it is filled and drained."""

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
from ding.worker.replay_buffer.advanced_config import ADVANCED_CONFIG, ADVANCED_RULES
from ding.worker.replay_buffer.bookkeeping import (
    BOOKKEEPING_FIELDS,
    BOOKKEEPING_KEYS,
    Bookkeeping,
    ItemView,
    read_priority_info,
    without_bookkeeping,
)
from ding.worker.replay_buffer.column_buffer import ColumnBuffer
from ding.worker.replay_buffer.item_age import ItemAges
from ding.worker.replay_buffer.utils import SampledDataAttrMonitor, ThruputController, Verdict

_ENOUGH = Verdict(True, "enough items are there")


def _is_dict(item: Any) -> bool:
    return isinstance(item, dict)


class Stock(NamedTuple):
    """What a buffer can give.

    Attributes:
        size: number of items that can be drawn.
        weight: sum of their weights, which are priority ** alpha.
        least_weight: the smallest of these; infinite where there is no item.
        pushed, sampled: items pushed and sampled in the recent past, as the limits on throughput count them.
    """

    size: int
    weight: float
    least_weight: float
    pushed: float
    sampled: float


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
    _slot_fields = BOOKKEEPING_FIELDS

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
        self._books = Bookkeeping(self._store, instance_name, float(own.alpha))
        self._index = self._books.index
        self._ages = ItemAges(self._store, own.max_staleness)
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

    # Names that code outside reads and writes.

    @property
    def _head(self) -> int:
        return self._store.head

    @property
    def _next_unique_id(self) -> int:
        return self._books.next_unique_id

    @property
    def _use_count(self) -> IntArray:
        return self._books.use_count

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
        priorities, items = self._books.priorities_of(items), without_bookkeeping(items)
        store, before = self._store, self._store.valid_count
        for start in range(0, len(items), store.size):
            chunk = part_of(items, start, start + store.size) if len(items) > store.size else items
            count, slots = len(chunk), store.next_slots(len(chunk))
            store.valid_count += count - self._books.count_live(slots)
            _, dropped = self._put(chunk)
            self._books.begin(slots, priorities[start : start + count])
            self._ages.note(slots, chunk)
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

    def stock(self, cur_learner_iter: int) -> Stock:
        """What there is to draw from, after stale items have gone."""
        with self._lock:
            self._remove_stale(cur_learner_iter)
            rates = self._thruput_controller
            pushed, sampled = rates.history_push_count, rates.history_sample_count
            return Stock(self._store.valid_count, self._index.total, self._index.least_weight, pushed, sampled)

    def draw(self, size: int, cur_learner_iter: int, least_weight: float) -> list[Any]:
        """A part of a batch that is drawn from several buffers as from one: `sample`, but no limit is asked.

        Args:
            size: number of items; it may exceed the capacity.
            least_weight: the smallest weight in all of these buffers, see `stock`; importance weights are relative to
                it.

        Raises:
            ValueError: there is no item.
        """
        with self._lock:
            return self._sample_with_lock(size, int(cur_learner_iter), None, least_weight)

    def _sample_with_lock(
        self, size: int, cur_learner_iter: int, sample_range: slice | None, least_weight: float | None = None
    ) -> list[Any]:
        ranges = None if sample_range is None else self._store.ranges(sample_range)
        slots = self._index.draw(size, self._rng, ranges)
        np.add.at(self._books.use_count, slots, 1)
        columns, records = self._store.gather_with_fields(slots)
        staleness = self._ages.staleness(slots, columns, cur_learner_iter)
        bookkeeping = {
            **self._books.shown(slots, records),
            "staleness": Column(Kind.INT, staleness),
            "IS": Column(Kind.FLOAT, self._index.importance(slots, self._beta, least_weight)),
        }
        batch = self._with_columns(slots, columns, bookkeeping)
        self._sampled_data_attr_monitor.record(use=records["use"], priority=records["priority"], staleness=staleness)
        self._tick.step()
        self._beta = min(1.0, self._beta + self._beta_step)
        self._thruput_controller.note(sampled=size)
        self._count_thruput(sampled=size)
        if not math.isinf(self._max_use):
            used_up = slots[records["use"] >= self._max_use]
            if used_up.size:
                self._use_up(np.unique(used_up))
        return batch

    def _shown(self, slots: IntArray) -> list[Any]:
        """The items in `slots` with their bookkeeping."""
        columns, records = self._store.gather_with_fields(slots)
        return self._with_columns(slots, columns, self._books.shown(slots, records))

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

    def _sample_check(self, size: int, cur_learner_iter: int) -> Verdict:
        """Remove stale items, then tell whether enough are left for `size`."""
        with self._lock:
            self._remove_stale(cur_learner_iter)
            have, ratio = self._store.valid_count, self._sample_min_limit_ratio
            if have / size >= ratio:
                return _ENOUGH
            return Verdict(False, f"{have} items are there, {math.ceil(size * ratio)} are needed")

    # ---- removal

    def _remove_stale(self, cur_learner_iter: int) -> None:
        stale = self._ages.stale_slots(int(cur_learner_iter))
        if stale.size:
            self._remove(stale)

    def _use_up(self, slots: IntArray) -> None:
        """Take items that reached `max_use` out of the draw.

        With used-data tracking they stay in their slots: who just sampled them still has to read their files.
        """
        if not self._enable_track_used_data:
            self._remove(slots)
            return
        live = self._books.count_live(slots)
        self._store.valid_count -= live
        self._books.retire(slots)
        self._count_thruput(removed=live)

    def _remove(self, slots: IntArray) -> None:
        live = self._books.count_live(slots)
        self._store.valid_count -= live
        self._books.remove(slots)
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
        unique_ids, slots, priorities = read_priority_info(info, self._store.size)
        with self._lock:
            known = self._books.is_known(slots, unique_ids)
            if self._enable_track_used_data:  # used-up items are still in their slots
                known &= self._index.weights[slots] > 0
            if np.count_nonzero(known) < len(known):
                skipped = [unique_ids[i] for i in np.flatnonzero(~known).tolist()]
                self._logger.debug("priorities of items that are gone are skipped: %s", skipped)
                slots, priorities = slots[known], priorities[known]
            self._books.priorities[slots] = self._index.update(slots, priorities, self._eps)

    def clear(self) -> None:
        """Drop all items and forget the largest priority; `push_count`, ids and beta go on."""
        with self._lock:
            removed = self._store.valid_count
            self._take_out(self._store.occupied())
            self._store.reset()
            self._books.clear()
            self._ages.forget()
            self._count_thruput(removed=removed)

    # ---- states

    def _state(self, is_copied: bool) -> dict[str, Any]:
        with self._lock:
            state = super()._state(is_copied)
            return {
                **state,
                **self._books.state(state["data"]["slots"]),
                "beta": self._beta,
                "anneal_step": self._anneal_step,
                "tick": self._tick.time(),
                "sampled": self._sampled_data_attr_monitor.state_dict(),
                "limiter": self._thruput_controller.state_dict(),
                "collector_envstep": self._cur_collector_envstep,
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
            state = {**state, "data": {**state["data"], "items": list(without_bookkeeping(shown))}}
        super()._restore(state)
        self._books.load(slots, state, shown)
        self._beta, self._anneal_step = state.get("beta", self._beta), state.get("anneal_step", self._anneal_step)
        self._ages.forget()
        if slots.size:
            self._ages.note(slots, self._store.read(slots))
        if "tick" in state:
            self._tick = self._sampled_data_attr_monitor.time = TickTime(int(state["tick"]))
            self._sampled_data_attr_monitor.load_state_dict(state["sampled"])
            self._thruput_controller.load_state_dict(state["limiter"])
            self._cur_collector_envstep = state["collector_envstep"]

    def _items_to_save(self) -> list[Any]:
        slots = self._store.occupied()
        slots = slots[self._index.weights[slots] > 0]
        return self._shown(slots)

    # ---- slots, as code outside sees them

    def _show(self, slot: int) -> ItemView:
        return ItemView(self._shown(np.array([slot]))[0], partial(self._set_shown, slot))

    def _set_slot(self, slot: int, item: dict[str, Any] | None) -> None:
        if item is None:
            self._store.replace(slot, None)
            self._books.remove(np.array([slot]))
            return
        self._store.replace(slot, without_bookkeeping([item])[0])
        self._ages.note(np.array([slot]), [item])
        self._books.set_shown(slot, {"priority": self._index.max_priority, **item})

    def _set_shown(self, slot: int, item: dict[str, Any], changes: dict[str, Any]) -> None:
        """Write `changes` of a shown item to its slot, if it is still there."""
        with self._lock:
            if not self._books.is_shown_by(slot, item):
                return
            self._books.set_shown(slot, changes)
            others = {key: value for key, value in changes.items() if key not in BOOKKEEPING_KEYS}
            if others:
                changed = {**self._store.read(np.array([slot]))[0], **others}
                self._store.replace(slot, changed)
                self._ages.note(np.array([slot]), [changed])


def to_positive_index(idx: int | None, size: int) -> int | None:
    """`idx` counted from the front: None and non-negative ones as they are, negative ones plus `size`."""
    return idx if idx is None or idx >= 0 else size + idx
