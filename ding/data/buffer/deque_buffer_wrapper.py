"""The deque buffer as a replay buffer (`IBuffer`)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from easydict import EasyDict

from ding.data.buffer.deque_buffer import DequeBuffer, RecordRing, copy_repeats
from ding.data.buffer.middleware import PriorityExperienceReplay, UseTimeCheck, use_time_check
from ding.data.buffer_interface import StatefulBuffer
from ding.data.priority_index import as_priorities, priorities_of
from ding.utils.config_helper import ConfigError, Setting, Settings, boolean, check_section, integer, number
from ding.utils.data.samples import Column, Kind, Samples, Table, rows_of, table_of, with_columns
from ding.utils.default_helper import deep_merge_dicts
from ding.utils.log_helper import only_shows
from ding.utils.object_state import generator_state, set_generator_state
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import IntArray


@BUFFER_REGISTRY.register("deque")
class DequeBufferWrapper(StatefulBuffer):
    """Thread-safe replay buffer based on `DequeBuffer`, prioritized with `priority`.

    Items that are pushed in columns stay in columns until their records are accessed, and `sample` returns
    copies. Of other items, `sample` returns the stored dicts; with `priority_IS_weight`, shallow copies that hold `IS`
    (float) and `priority_IS` (float32 tensor [1]). With `priority`, items are sampled with replacement, so `size` may
    exceed `count()`.

    Args:
        cfg: the configuration. Missing keys take their default.
        tb_logger: TensorBoard writer, owned by the caller. If None, nothing is logged.
        exp_name: not used.
        instance_name: name in the TensorBoard tags.

    Raises:
        ConfigError: `priority_IS_weight` is on without `priority`.

    Example:
        >>> cfg = DequeBufferWrapper.default_config()
        >>> cfg.priority = True
        >>> buffer = DequeBufferWrapper(cfg)
        >>> _ = buffer.push([{"obs": i, "priority": i + 1.0} for i in range(3)])
        >>> batch = buffer.sample(2)
        >>> buffer.update({"priority": [0.1, 0.2]})
        >>> len(batch), buffer.count()
        (2, 3)
    """

    settings = Settings(
        {
            "replay_buffer_size": Setting(10000, integer(1), "Capacity, in samples."),
            "max_use": Setting(math.inf, number(1), "How often a sample may be drawn before it is removed."),
            "train_iter_per_log": Setting(100, integer(1), "Number of iterations between two TensorBoard logs."),
            "priority": Setting(False, boolean, "Sample by priority."),
            "priority_IS_weight": Setting(
                False, boolean, "Correct prioritized sampling with importance weights; needs `priority`."
            ),
            "priority_power_factor": Setting(0.6, number(0, 1), "Exponent of the priorities."),
            "IS_weight_power_factor": Setting(
                0.4, number(0, 1), "Initial exponent of the importance weights, which grows to 1."
            ),
            "IS_weight_anneal_train_iter": Setting(
                int(1e5),
                integer(0),
                "Number of samples until the exponent of the importance weights is 1; 0 keeps it constant.",
            ),
            "priority_max_limit": Setting(1000, number(0), "Upper limit of updated priorities."),
        }
    )

    def __init__(
        self,
        cfg: Mapping[str, Any],
        tb_logger: Any = None,
        exp_name: str = "default_experiement",
        instance_name: str = "buffer",
    ) -> None:
        super().__init__()
        check_section(cfg, type(self))
        self.cfg = EasyDict(deep_merge_dicts(self.default_config(), cfg))
        if self.cfg.priority_IS_weight and not self.cfg.priority:
            raise ConfigError("DequeBufferWrapper: priority_IS_weight = True needs priority = True")
        self.tb_logger = tb_logger
        self._told: set[str] = set()
        self.name = f"{instance_name}_iter"
        self.buffer = DequeBuffer(size=int(self.cfg.replay_buffer_size))
        self.last_log_train_iter: int | None = None
        self._newest_sample: tuple[IntArray, IntArray] | None = None  # slots, and numbers in the ids
        self._use_check: UseTimeCheck | None = None
        if not math.isinf(self.cfg.max_use):
            self._use_check = use_time_check(self.buffer, max_use=self.cfg.max_use)
            self.buffer.use(self._use_check)
        self._per: PriorityExperienceReplay | None = None
        if self.cfg.priority:
            self._per = PriorityExperienceReplay(
                self.buffer,
                IS_weight=self.cfg.priority_IS_weight,
                priority_power_factor=self.cfg.priority_power_factor,
                IS_weight_power_factor=self.cfg.IS_weight_power_factor,
                IS_weight_anneal_train_iter=int(self.cfg.IS_weight_anneal_train_iter),
            )
            self.buffer.use(self._per)
        self._own_middleware = list(self.buffer._middleware)

    @property
    def _store(self) -> RecordRing:  # type: ignore[override]
        return self.buffer.storage

    def push(self, data: list[Any] | Any, cur_collector_envstep: int = -1) -> int:
        """Store one item, or each item of a list, and return their number; `cur_collector_envstep` is not used."""
        items = data if isinstance(data, list | Table) else [data]
        table = table_of(items)
        with self._lock:
            if table is not None and self._is_plain():
                self._push_table(table)
            else:
                self.buffer.memory_check.estimate(items, self.buffer.size)
                for item in rows_of(items):
                    self.buffer.push(item)
        return len(items)

    def _is_plain(self) -> bool:
        """Return whether the buffer has no middleware or methods of a user, who would get records one by one."""
        return type(self.buffer) is DequeBuffer and self.buffer._middleware == self._own_middleware

    def _push_table(self, table: Table) -> None:
        priorities = None
        if self._per is not None:
            priorities = priorities_of(table, self._per.max_priority)
            table = table.without("priority")
        self._store.extend(table, priorities)
        if not self.buffer.memory_check.is_done:
            self.buffer.memory_check.estimate(table, self.buffer.size, self._store.nbytes)

    def sample(self, size: int, train_iter: int = 0) -> list[Any] | None:
        """Sample `size` items; return None if there are too few and `priority` is off.

        Raises:
            AssertionError: `priority` is on and the buffer is empty, or `size` is 0.
        """
        with self._lock:
            count = self.buffer.count()
            if self._per is None and count < size:
                logging.getLogger("ding").info(
                    "too few items to sample: the buffer holds %d, requested are %d", count, size
                )
                return None
            return self._sample(size, train_iter)

    def _sample(self, size: int, train_iter: int) -> list[Any]:
        if not self._is_plain() or size < 1:
            records = self.buffer.sample(size)
            found = self._store.find_slots([record.index for record in records])
            self._remember(np.array([-1 if slot is None else slot for slot in found]))
            self._log(lambda: [record.meta for record in records], train_iter)
            data = [record.data for record in records]
            if self.cfg.priority_IS_weight:
                for item in data:
                    item["IS"] = item["priority_IS"].item()
            return data
        slots, weights = (self.buffer.draw(size), None) if self._per is None else self._per.draw(size)
        self._remember(slots)
        items = self._store.read(slots)
        data = Samples(items) if isinstance(items, Table) else copy_repeats(list(items), slots)
        if weights is not None:
            data = _with_weights(data, weights)
        if self._use_check is not None:
            self._use_check.count(slots)
        self._log(lambda: self._store.metas(slots), train_iter)
        if self._use_check is not None:
            self._use_check.delete_used_up(slots)
        return data

    def _remember(self, slots: IntArray) -> None:
        self._newest_sample = slots, self._store.fields["number"][slots]

    def update(self, meta: dict[str, Any]) -> None:
        """Set the priorities of the items of the newest sample to `meta['priority']`, in the order of the sample.

        Nothing happens without `priority`, or if this sample was already updated.

        Raises:
            KeyError: `meta` has no key `priority`.
            PriorityError: a priority is negative or not finite.
            ValueError: the number of priorities is not that of the items.
        """
        with self._lock:
            if self._per is None or self._newest_sample is None:
                return
            slots, numbers = self._newest_sample
            priorities = as_priorities(meta["priority"])
            if len(priorities) != len(slots):
                raise ValueError(
                    f"{len(priorities)} priorities are not allowed; give one for each of the {len(slots)} items of "
                    "the newest sample"
                )
            known = (slots >= 0) & (self._store.fields["number"][slots] == numbers)
            self._per.set_priorities(slots[known], np.minimum(priorities, self.cfg.priority_max_limit)[known])
            self._newest_sample = None

    def _log(self, metas_of_sample: Callable[[], list[dict[str, Any] | None]], train_iter: int) -> None:
        last = self.last_log_train_iter
        if self.tb_logger is None or (last is not None and train_iter - last < self.cfg.train_iter_per_log):
            return
        self.last_log_train_iter = train_iter
        metas = [meta or {} for meta in metas_of_sample()]
        values: dict[str, float] = {}
        if not math.isinf(self.cfg.max_use):
            values["use_count_avg"] = float(np.mean([meta["use_count"] for meta in metas]))
        if self._per is not None:
            priorities = [meta["priority"] for meta in metas]
            values["priority_avg"], values["priority_max"] = float(np.mean(priorities)), max(priorities)
        values["buffer_data_count"] = self.buffer.count()
        with only_shows(f"writing the log of {self.name}", self._told):
            for key, value in values.items():
                self.tb_logger.add_scalar(f"{self.name}/{key}", value, train_iter)

    def count(self) -> int:
        """Return the number of items."""
        return self.buffer.count()

    def clear(self) -> None:
        """Remove all items."""
        with self._lock:
            self.buffer.clear()
            self._newest_sample = None

    def start(self) -> None:
        """Do nothing: this buffer has no thread."""

    def close(self) -> None:
        """Remove all items and flush the TensorBoard writer; further calls do nothing."""
        self.clear()
        if self.tb_logger is not None:
            with only_shows(f"writing the log of {self.name}", self._told):
                self.tb_logger.flush()

    def save_data(self, file_name: str) -> None:
        """Write the items with their priorities to `file_name` as code-free msgpack."""
        with self._lock:
            self.buffer.save_data(file_name)

    def load_data(self, file_name: str) -> None:
        """Replace the items, and the capacity, by those of a file that `save_data` wrote."""
        with self._lock:
            self.buffer.load_data(file_name)
            self._newest_sample = None

    def _state(self, is_copied: bool) -> dict[str, Any]:
        return {
            "data": self.buffer.state_dict(is_copied),
            "last_log_train_iter": self.last_log_train_iter,
            "priority": None if self._per is None else self._per.state_dict(),
            "rng": generator_state(self.buffer.rng),
        }

    def _remove(self, slots: IntArray) -> None:
        self.buffer.delete(self._store.ids(slots))

    def _restore(self, state: dict[str, Any]) -> None:
        self.buffer.load_state_dict(state["data"])
        self.last_log_train_iter = state["last_log_train_iter"]
        self._newest_sample = None
        set_generator_state(self.buffer.rng, state["rng"])
        if self._per is not None and state["priority"] is not None:
            self._per.load_state_dict(state["priority"])

    def _insert(self, items: list[Any]) -> int:
        return self.push(items)


def _with_weights(items: list[Any], weights: torch.Tensor) -> list[Any]:
    """Return copies of `items` with their importance weights [n, 1], as a tensor and as a number."""
    items = items if isinstance(items, Samples) else [{**item} for item in items]
    values = weights.numpy()
    number = Column(Kind.FLOAT, values[:, 0].astype(np.float64))
    result: list[Any] = with_columns(items, priority_IS=Column(Kind.TENSOR, values), IS=number)
    return result
