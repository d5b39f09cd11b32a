"""The deque buffer as a replay buffer (`IBuffer`)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.data.buffer.buffer import BufferedData
from ding.data.buffer.deque_buffer import DequeBuffer
from ding.data.buffer.middleware import PriorityExperienceReplay, use_time_check
from ding.data.buffer_interface import StatefulBuffer
from ding.data.priority_index import as_priorities
from ding.utils.config_helper import ConfigError, Setting, Settings, boolean, check_section, integer, number
from ding.utils.data.samples import Table, rows_of
from ding.utils.default_helper import deep_merge_dicts
from ding.utils.log_helper import only_shows
from ding.utils.object_state import generator_state, set_generator_state
from ding.utils.registry_factory import BUFFER_REGISTRY


@BUFFER_REGISTRY.register("deque")
class DequeBufferWrapper(StatefulBuffer):
    """Thread-safe replay buffer based on `DequeBuffer`, prioritized with `priority`.

    `sample` returns the stored dicts; with `priority_IS_weight`, shallow copies that hold `IS` (float) and
    `priority_IS` (float32 tensor [1]). With `priority`, items are sampled with replacement, so `size` may exceed
    `count()`.

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
        self._warned: set[str] = set()
        self.name = f"{instance_name}_iter"
        self.buffer = DequeBuffer(size=int(self.cfg.replay_buffer_size))
        self.last_log_train_iter: int | None = None
        self._push_count = 0
        self._newest_sample: list[str] | None = None  # ids
        self.on_dropped = None
        self._dropped: list[Any] = []
        self.buffer.listeners.append(self)
        if not math.isinf(self.cfg.max_use):
            self.buffer.use(use_time_check(self.buffer, max_use=self.cfg.max_use))
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

    @property
    def replay_buffer_size(self) -> int:
        """Capacity, in items."""
        return self.buffer.size

    @property
    def push_count(self) -> int:
        """Number of items stored so far."""
        return self._push_count

    def added(self, record: BufferedData) -> None:
        """Count a record that was appended."""
        self._push_count += 1

    def removed(self, records: list[BufferedData]) -> None:
        """Keep the items of records that left the buffer for `on_dropped`."""
        if self.on_dropped is not None:
            self._dropped += [record.data for record in records]

    def _report_dropped(self) -> None:
        dropped, self._dropped = self._dropped, []
        if dropped and self.on_dropped is not None:
            self.on_dropped(dropped)

    def push(self, data: list[Any] | Any, cur_collector_envstep: int = -1) -> int:
        """Store one item, or each item of a list, and return their number; `cur_collector_envstep` is not used."""
        items = rows_of(data) if isinstance(data, list | Table) else [data]
        with self._lock:
            for item in items:
                self.buffer.push(item)
            self._report_dropped()
        return len(items)

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
            records = self.buffer.sample(size)
            self._newest_sample = None if self._per is None else [record.index for record in records]
            self._log(records, train_iter)
            self._report_dropped()
        if self.cfg.priority_IS_weight:
            for record in records:
                record.data["IS"] = record.data["priority_IS"].item()
        return [record.data for record in records]

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
            priorities = as_priorities(meta["priority"])
            if len(priorities) != len(self._newest_sample):
                raise ValueError(
                    f"{len(priorities)} priorities are not allowed; give one for each of the "
                    f"{len(self._newest_sample)} items of the newest sample"
                )
            self._per.set_priorities(self._newest_sample, np.minimum(priorities, self.cfg.priority_max_limit))
            self._newest_sample = None

    def _log(self, records: list[BufferedData], train_iter: int) -> None:
        last = self.last_log_train_iter
        if self.tb_logger is None or (last is not None and train_iter - last < self.cfg.train_iter_per_log):
            return
        self.last_log_train_iter = train_iter
        metas = [record.meta or {} for record in records]
        values: dict[str, float] = {}
        if not math.isinf(self.cfg.max_use):
            values["use_count_avg"] = float(np.mean([meta["use_count"] for meta in metas]))
        if self._per is not None:
            priorities = [meta["priority"] for meta in metas]
            values["priority_avg"], values["priority_max"] = float(np.mean(priorities)), max(priorities)
        values["buffer_data_count"] = self.buffer.count()
        with only_shows(f"writing the log of {self.name}", self._warned):
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
            self._report_dropped()

    def discard(self, is_unwanted: Callable[[Any], bool]) -> int:
        with self._lock:
            unwanted = [record.index for record in self.buffer if is_unwanted(record.data)]
            self.buffer.delete(unwanted)
            self._report_dropped()
            return len(unwanted)

    def start(self) -> None:
        """Do nothing: this buffer has no thread."""

    def close(self) -> None:
        """Remove all items and flush the TensorBoard writer; further calls do nothing."""
        self.clear()
        if self.tb_logger is not None:
            with only_shows(f"writing the log of {self.name}", self._warned):
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
            self._report_dropped()

    def _state(self, is_copied: bool) -> dict[str, Any]:
        return {
            "data": self.buffer.state_dict(),
            "push_count": self._push_count,
            "last_log_train_iter": self.last_log_train_iter,
            "priority": None if self._per is None else self._per.state_dict(),
            "rng": generator_state(self.buffer.rng),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.buffer.load_state_dict(state["data"])
        self._push_count = state["push_count"]
        self.last_log_train_iter = state["last_log_train_iter"]
        self._newest_sample = None
        set_generator_state(self.buffer.rng, state["rng"])
        if self._per is not None and state["priority"] is not None:
            self._per.load_state_dict(state["priority"])
        self._report_dropped()

    def _insert(self, items: list[Any]) -> int:
        return self.push(items)
