"""The deque buffer as a replay buffer (`IBuffer`)."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.data.buffer.buffer import BufferedData
from ding.data.buffer.deque_buffer import DequeBuffer
from ding.data.buffer.middleware import PriorityExperienceReplay, use_time_check
from ding.data.buffer.record_columns import make_data_of, samples_of
from ding.data.buffer_interface import IBuffer
from ding.data.priority_index import as_priorities
from ding.data.random_source import generator_state, set_generator_state
from ding.utils.config_helper import ConfigError, Setting, Settings, boolean, check_section, integer, number
from ding.utils.data.samples import Column, Kind, Samples, node_items
from ding.utils.dict_helper import deep_merge_dicts
from ding.utils.registry_factory import BUFFER_REGISTRY
from ding.utils.segment_tree import IntArray
from ding.utils.showing import only_shows

# The methods between `push` here and the records. If one of them is patched, items are pushed as dicts, one by one.
_OWN_PUSH = DequeBuffer.push, PriorityExperienceReplay.push, PriorityExperienceReplay.__call__
_OWN_SAMPLE = DequeBuffer.sample


@BUFFER_REGISTRY.register("deque")
class DequeBufferWrapper(IBuffer):
    """Replay buffer based on `DequeBuffer`, prioritized with `priority`. Thread-safe.

    Items that are pushed in columns (`Samples`) stay in columns until their records are accessed, and `sample` returns
    copies. Of other items, `sample` returns the stored dicts; with `priority_IS_weight`, shallow copies that hold `IS`
    (float) and `priority_IS` (float32 tensor [1]). With `priority`, items are sampled with replacement, so `size` may
    exceed `count()`.

    Args:
        cfg: The configuration. Missing keys take their default.
        tb_logger: TensorBoard writer, owned by the caller. If None, nothing is logged.
        exp_name: Not used.
        instance_name: Name in the TensorBoard tags.

    Attributes:
        on_dropped: Called with a list of the items that left the buffer, under its lock. May be set.

    Raises:
        ConfigError: If `priority_IS_weight` is on without `priority`.

    Example:
        >>> cfg = DequeBufferWrapper.default_config()
        >>> cfg.priority = True
        >>> buffer = DequeBufferWrapper(cfg)
        >>> buffer.push([{"obs": i, "priority": i + 1.0} for i in range(3)])
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
        check_section(cfg, type(self))
        self.cfg = EasyDict(deep_merge_dicts(self.default_config(), cfg))
        if self.cfg.priority_IS_weight and not self.cfg.priority:
            raise ConfigError("DequeBufferWrapper: priority_IS_weight = True needs priority = True")
        self.tb_logger = tb_logger
        self._told: set[str] = set()
        self.name = f"{instance_name}_iter"
        self.buffer = DequeBuffer(size=int(self.cfg.replay_buffer_size))
        self.last_log_train_iter: int | None = None
        self._lock = threading.RLock()
        self._push_count = 0
        self._last_sample_ids: list[str] | None = None
        self._on_dropped: Callable[[list[Any]], None] | None = None
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
        self._own_middleware = list(self.buffer._middleware)

    @property
    def on_dropped(self) -> Callable[[list[Any]], None] | None:
        return self._on_dropped

    @on_dropped.setter
    def on_dropped(self, on_dropped: Callable[[list[Any]], None] | None) -> None:
        self._on_dropped = on_dropped
        self.buffer.storage.on_dropped = None if on_dropped is None else self._report_dropped

    def _report_dropped(self, records: list[BufferedData]) -> None:
        if self._on_dropped is not None:
            self._on_dropped([record.data for record in records])

    @property
    def replay_buffer_size(self) -> int:
        """Capacity, in items."""
        return self.buffer.size

    @property
    def push_count(self) -> int:
        """Number of items pushed so far."""
        return self._push_count

    def push(self, data: list[Any] | Any, cur_collector_envstep: int = -1) -> int:
        """Store one item, or each item of a list; return how many there were. `cur_collector_envstep` is not used."""
        items = data if isinstance(data, list) else [data]
        with self._lock:
            if isinstance(items, Samples) and self._is_push_own() and items.columns is not None:
                self._push_columns(items)
            else:
                self.buffer.memory_check.estimate(items, self.buffer.size)
                for item in items:
                    self.buffer.push(item)
            self._push_count += len(items)
        return len(items)

    def _is_push_own(self) -> bool:
        """Returns whether no user code, which may inspect pushed items, runs between `push` and the records."""
        buffer, per = self.buffer, self._per
        return (
            (DequeBuffer.push, PriorityExperienceReplay.push, PriorityExperienceReplay.__call__) == _OWN_PUSH
            and type(buffer) is DequeBuffer
            and "push" not in vars(buffer)
            and buffer._middleware == self._own_middleware
            and (per is None or (type(per) is PriorityExperienceReplay and "push" not in vars(per)))
        )

    def _push_columns(self, samples: Samples) -> None:
        storage = self.buffer.storage
        metas: list[dict[str, Any] | None] = [None] * len(samples)
        nodes = samples.columns or {}
        if self._per is not None and "priority" in nodes:
            metas = [{"priority": priority} for priority in node_items(nodes["priority"])]
            samples = Samples({key: node for key, node in nodes.items() if key != "priority"}, size=len(samples))
        for start in range(0, len(samples), storage.max_rows):
            part = samples.take(slice(start, start + storage.max_rows))
            rows = storage.write(part)
            self.buffer.memory_check.estimate(part, self.buffer.size, storage.nbytes)
            if not self._own_middleware:  # without middleware, most of the time of a push would be spent on calls
                storage.extend(rows)
                continue
            for row, meta in zip(rows, metas[start:], strict=False):
                self.buffer.push(row, meta)

    def sample(self, size: int, train_iter: int = 0) -> list[Any] | None:
        """Sample `size` items. Returns None if there are too few and `priority` is off.

        Raises:
            AssertionError: If `priority` is on and the buffer is empty, or `size` is 0.
        """
        with self._lock:
            count = self.buffer.count()
            if self._per is None and count < size:
                logging.getLogger("ding").info(
                    "too few items to sample: the buffer holds %d, requested are %d", count, size
                )
                return None
            positions, records = self._draw(size), []
            if positions is None:
                records = self.buffer.sample(size)
                self._last_sample_ids = [record.index for record in records]
                samples = samples_of(records)
            else:
                samples = self.buffer.storage.samples_at(positions)
                if samples is None:
                    records = self.buffer.storage.take(positions.tolist())
            self._log(records, train_iter)
            if samples is None:
                make_data_of(records)
        if samples is not None:
            return self._with_weights(samples)
        if self.cfg.priority_IS_weight:
            for record in records:
                record.data["IS"] = record.meta["priority_IS"].item()
        return [record.data for record in records]

    def _draw(self, size: int) -> IntArray | None:
        """Returns the positions to sample; None if the buffer's `sample` is patched or has middleware."""
        buffer = self.buffer
        is_own = type(buffer) is DequeBuffer and DequeBuffer.sample is _OWN_SAMPLE and "sample" not in vars(buffer)
        return buffer.draw(size) if is_own and size > 0 and not buffer._middleware else None

    def _with_weights(self, samples: Samples) -> Samples:
        if self.cfg.priority_IS_weight:
            weights = (samples.columns or {})["priority_IS"].values()[:, 0].astype(np.float64)
            samples.set_column("IS", Column(Kind.FLOAT, weights))
        return samples

    def update(self, meta: dict[str, Any]) -> None:
        """Set the priorities of the items of the newest sample to `meta['priority']`, in the order of the sample.

        Does nothing without `priority`, or if this sample was already updated.

        Raises:
            KeyError: If `meta` has no key `priority`.
            PriorityError: If a priority is negative or not finite.
            ValueError: If the number of priorities is not that of the items.
        """
        with self._lock:
            if self._per is None or self._last_sample_ids is None:
                return
            ids, priorities = self._last_sample_ids, as_priorities(meta["priority"])
            if len(priorities) != len(ids):
                raise ValueError(
                    f"{len(priorities)} priorities are not allowed; give one for each of the {len(ids)} items of the "
                    "newest sample"
                )
            self._per.update_priorities(ids, np.minimum(priorities, self.cfg.priority_max_limit))
            self._last_sample_ids = None

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
        with only_shows(f"writing the log of {self.name}", self._told):
            for key, value in values.items():
                self.tb_logger.add_scalar(f"{self.name}/{key}", value, train_iter)

    def count(self) -> int:
        """Returns the number of items."""
        return self.buffer.count()

    def clear(self) -> None:
        """Remove all items."""
        with self._lock:
            self.buffer.clear()
            self._last_sample_ids = None

    def start(self) -> None:
        """Do nothing: this buffer has no thread."""

    def close(self) -> None:
        """Remove all items and flush the TensorBoard writer. May be called any number of times."""
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
            self._last_sample_ids = None

    def state_dict(self) -> dict[str, Any]:
        """Returns the items with their priorities, the counters and random states, in plain values and arrays."""
        with self._lock:
            return {"data": self.buffer.records_as_dicts(), **self._own_state()}

    def _own_state(self) -> dict[str, Any]:
        return {
            "push_count": self._push_count,
            "last_log_train_iter": self.last_log_train_iter,
            "priority": None if self._per is None else self._per.state_dict(),
            "rng": generator_state(self.buffer.rng),
        }

    def freeze(self) -> dict[str, Any]:
        """Returns a state for `load_state_dict` that shares items which are not in columns with the buffer.

        It is fast for large buffers, too. Later calls do not change it, unless items are modified in place.
        """
        with self._lock:
            return {"data": self.buffer.records_as_columns(), **self._own_state()}

    def live_state(self) -> dict[str, Any]:
        """As `freeze`. Use it before the buffer changes."""
        return self.freeze()

    def discard(self, is_unwanted: Callable[[Any], bool]) -> int:
        """Remove the items for which `is_unwanted` returns true. Returns their number."""
        with self._lock:
            storage = self.buffer.storage
            ids = [index for index, data in zip(storage.ids(), storage.data(), strict=True) if is_unwanted(data)]
            self.buffer.delete(ids)
            return len(ids)

    def load_state_dict(self, _state_dict: dict[str, Any]) -> None:
        """Replace the contents by a state. If it has only the key `data`, push this list of items instead.

        Raises:
            AssertionError: If `data` is missing.
        """
        if "data" not in _state_dict:
            raise AssertionError(f"a buffer state needs the key 'data'; it has {sorted(_state_dict)}")
        with self._lock:
            if set(_state_dict) == {"data"}:
                self.push(_state_dict["data"])
                return
            self.buffer.replace_records(_state_dict["data"])
            self._push_count = _state_dict["push_count"]
            self.last_log_train_iter = _state_dict.get("last_log_train_iter")
            self._last_sample_ids = None
            set_generator_state(self.buffer.rng, _state_dict["rng"])
            if self._per is not None and _state_dict["priority"] is not None:
                self._per.load_state_dict(_state_dict["priority"])
