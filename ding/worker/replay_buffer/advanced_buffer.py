"""A buffer with priorities, bounds on use and staleness, and a bound on how fast it is filled and drained."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ding.data.priority_index import PRIORITY_EPS
from ding.data.random_source import generator_state, set_generator_state
from ding.utils.autolog import TickTime
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import IntArray
from ding.worker.replay_buffer.advanced_config import ADVANCED_CONFIG, ADVANCED_RULES
from ding.worker.replay_buffer.forwarded import Forwarded
from ding.worker.replay_buffer.item_book import read_priority_info
from ding.worker.replay_buffer.prioritized_store import PrioritizedStore
from ding.worker.replay_buffer.ring_buffer import RingBuffer
from ding.worker.replay_buffer.slot_view import SlotView
from ding.worker.replay_buffer.utils import SampledDataAttrMonitor, ThruputController, Verdict


@BUFFER_REGISTRY.register("advanced")
class AdvancedReplayBuffer(RingBuffer):
    """Prioritized replay buffer (arXiv:1511.05952) that can also bound use, staleness and throughput. Thread-safe.

    Items are dicts. `sample` hands out shallow copies with these keys added; the stored item and the dict that was
    pushed are left alone:

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

    # Names that code outside reads and writes.
    _data = Forwarded("_slot_view")
    _head = Forwarded("_ring.head")
    _use_count = Forwarded("_store.book.use_counts")
    _next_unique_id = Forwarded("_store.next_unique_id")
    _max_priority = Forwarded("_store.book.priorities.max_priority")
    _sum_tree = Forwarded("_store.book.priorities.sum_tree")
    _min_tree = Forwarded("_store.book.priorities.min_tree")

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
        self._store = PrioritizedStore(self._ring, float(own.alpha), instance_name)
        self._slot_view = SlotView(self._ring, self._store.book, self._lock)
        self._thruput_controller = ThruputController(own.thruput_controller)
        self._sample_min_limit_ratio = own.thruput_controller.sample_min_limit_ratio
        self._tick = TickTime()
        self._sampled_data_attr_monitor = SampledDataAttrMonitor(
            self._tick, own.monitor.sampled_data_attr.average_range
        )
        self._print_freq = int(own.monitor.sampled_data_attr.print_freq)
        self.check_list: list[Callable[[Any], bool]] = [lambda item: isinstance(item, dict)]

    def _periodic_seconds(self) -> float:
        return float(self._cfg.monitor.periodic_thruput.seconds)

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
        return self._store.book.priorities.alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        self._store.book.priorities.alpha = alpha

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
        for check in self.check_list:
            items = [item for item in items if check(item)]
        before = self._ring.valid_count
        self._drop(self._store.put(items))
        self._count_thruput(pushed=len(items), removed=before + len(items) - self._ring.valid_count)
        return len(items)

    def sample(self, size: int, cur_learner_iter: int, sample_range: slice | None = None) -> list[Any] | None:
        """Draw `size` items in proportion to priority ** alpha; None (and a log line) when the limits do not allow it.

        An item may come up more than once; its later occurrences share no tensor or array with the first.

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
        return copy.deepcopy(batch) if self._deepcopy else batch

    def _sample_with_lock(self, size: int, cur_learner_iter: int, sample_range: slice | None) -> list[dict[str, Any]]:
        book = self._store.book
        ranges = None if sample_range is None else self._ring.ranges(sample_range)
        slots = book.priorities.draw(size, self._rng, ranges)
        uses = book.count_use(slots)
        staleness = book.staleness(slots, cur_learner_iter)
        priorities = book.priorities.priorities[slots]
        batch = book.fill(self._ring.slots, slots, staleness, book.priorities.importance(slots, self._beta))
        self._sampled_data_attr_monitor.record(use=uses, priority=priorities, staleness=staleness)
        self._tick.step()
        self._beta = min(1.0, self._beta + self._beta_step)
        self._thruput_controller.note(sampled=size)
        self._count_thruput(sampled=size)
        used_up = slots[uses >= self._max_use]
        if used_up.size:
            self._use_up(np.unique(used_up))
        return batch

    def _sample_check(self, size: int, cur_learner_iter: int) -> Verdict:
        """Remove stale items, then tell whether enough are left for `size`."""
        with self._lock:
            if not math.isinf(self._max_staleness):
                self._remove(self._store.stale_slots(int(cur_learner_iter), self._max_staleness))
            have, ratio = self._ring.valid_count, self._sample_min_limit_ratio
            return Verdict(have / size >= ratio, f"{have} items are there, {math.ceil(size * ratio)} are needed")

    def _use_up(self, slots: IntArray) -> None:
        """Take items that reached `max_use` out of the draw.

        With used-data tracking they stay in their slots: who just sampled them still has to read their files.
        """
        if self._enable_track_used_data:
            self._store.retire(slots)
            self._count_thruput(removed=len(slots))
        else:
            self._remove(slots)

    def _remove(self, slots: IntArray) -> None:
        before = self._ring.valid_count
        self._drop(self._store.remove(slots))
        self._count_thruput(removed=before - self._ring.valid_count)

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
        unique_ids, slots, priorities = read_priority_info(info, self._ring.size)
        with self._lock:
            index = self._store.book.priorities
            known = self._store.is_live(slots, unique_ids)
            if not known.all():
                skipped = [unique_ids[i] for i in np.flatnonzero(~known)]
                self._logger.debug("priorities of items that are gone are skipped: %s", skipped)
                slots, priorities = slots[known], priorities[known]
            index.set(slots, priorities + self._eps)
            index.note_max(priorities)

    def clear(self) -> None:
        """Drop all items and forget the largest priority; `push_count`, ids and beta go on."""
        with self._lock:
            removed_count = self._ring.valid_count
            self._drop(self._store.clear())
            self._count_thruput(removed=removed_count)

    def state_dict(self) -> dict[str, Any]:
        """A snapshot in plain values and arrays: items with bookkeeping by slot, counters, weights, random state."""
        with self._lock:
            return {**self._store.snapshot(), **self._own_state()}

    def freeze(self) -> dict[str, Any]:
        with self._lock:
            store, own = self._store.freeze(), self._own_state()
        return {**self._store.without_gaps(store), **own}

    def _own_state(self) -> dict[str, Any]:
        return {"beta": self._beta, "anneal_step": self._anneal_step, "rng": generator_state(self._rng)}

    def load_state_dict(self, _state_dict: dict[str, Any], deepcopy: bool = False) -> None:
        """Take over a state; one with `data` alone is a list of items to push. `deepcopy` copies its items first.

        Raises:
            AssertionError: `data` is missing.
            ValueError: the state is of a buffer of another size.
        """
        if "data" not in _state_dict:
            raise AssertionError(f"a buffer state needs the key 'data'; it has {sorted(_state_dict)}")
        state = copy.deepcopy(_state_dict) if deepcopy else _state_dict
        with self._lock:
            if set(state) == {"data"}:
                self._take_in([item for item in state["data"] if item is not None])
                return
            self._store.restore(state)
            self._beta = state.get("beta", self._beta)
            self._anneal_step = state.get("anneal_step", self._anneal_step)
            if "rng" in state:
                set_generator_state(self._rng, state["rng"])

    def _items_to_save(self) -> list[Any]:
        return [self._store.show(slot) for slot in self._store.live_slots().tolist()]


def to_positive_index(idx: int | None, size: int) -> int | None:
    """`idx` counted from the front: None and non-negative ones as they are, negative ones plus `size`."""
    return idx if idx is None or idx >= 0 else size + idx
