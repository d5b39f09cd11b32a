"""Batches out of several shards as out of one buffer."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from time import monotonic
from typing import Any

import numpy as np

from ding.data.priority_index import as_priorities
from ding.data.random_source import new_generator
from ding.utils.data.samples import Column, Kind, Samples, node_items, whole_of
from ding.utils.msgpack_helper import pack
from ding.utils.segment_tree import FloatArray, IntArray
from ding.worker.transport.chunk import decode_chunk, split
from ding.worker.transport.chunk_reader import with_meta
from ding.worker.transport.ray.shard import STEPS, Shard, ShardLost
from ding.worker.transport.ray.split import PRIORITIZED, UNIFORM, WHOLE, Split

_ID = "replay_unique_id"
Batch = list[Any]
Facts = dict[str, Any]


class ShardedReplay:
    """A learner's end of a replay buffer in shards. `update` may be called from another thread.

    Batches are those of one buffer. A uniform draw takes a number of items from each shard that is distributed as in a
    draw from all (multivariate hypergeometric). A prioritized one cuts the total weight of all shards into strata, as
    the buffer does; importance weights are relative to the smallest weight in all shards. A shard that is lost counts
    as empty until there is another in its place.

    Args:
        split: see `split_of`.
        timeout_s: how long a shard may take to answer.

    Attributes:
        count: items in all shards, when they were asked last.
        lost_shards, lost_samples: how many were lost so far, and what was in them.
        sample_bytes: encoded size of a sample, as of late; 0 before the first.
    """

    def __init__(self, shards: Sequence[Shard], split: Split, timeout_s: float) -> None:
        self.count = self.lost_shards = self.lost_samples = 0
        self.sample_bytes = 0.0
        self.split = split
        self._shards, self._timeout_s = list(shards), timeout_s
        self._rng = new_generator()
        self._known: list[Facts] = [{} for _ in self._shards]  # what each shard has told last
        self._waits: dict[int, Future[Any]] = {}  # by shard
        self._closing: Future[None] = Future()
        self._updates: list[dict[str, Any]] = []
        self._max_priority = 1.0
        self._lock = threading.Lock()
        self._left_over: Batch = []  # of batches whose other samples are lost

    def update(self, info: Mapping[str, Any]) -> None:
        """Set priorities of sampled items, before the next batches are drawn.

        Args:
            info: see `AdvancedReplayBuffer.update`.

        Raises:
            PriorityError: a priority is negative or not finite.
            ValueError: there is not one for each item.
        """
        if self.split.kind == UNIFORM or "priority" not in info:
            return
        priorities, ids, slots = as_priorities(info["priority"]), list(info[_ID]), list(info["replay_buffer_idx"])
        if not len(priorities) == len(ids) == len(slots):
            raise ValueError(f"{len(priorities)} priorities are given for {len(ids)} items")
        with self._lock:
            self._max_priority = max(self._max_priority, float(priorities.max(initial=0.0)))
            self._updates.append({"priority": priorities, "ids": ids, "slots": slots})

    def _take_updates(self) -> list[list[bytes]]:
        """What each shard has to be told, packed."""
        with self._lock:
            updates, self._updates = self._updates, []
        packed: list[list[bytes]] = [[] for _ in self._shards]
        for update in updates:
            owners: dict[tuple[int, str], list[int]] = {}
            for place, unique_id in enumerate(update["ids"]):
                owner = _owner_of(unique_id)
                if owner is not None:
                    owners.setdefault(owner, []).append(place)
            for (index, life), places in owners.items():
                info = {
                    _ID: [update["ids"][place].partition(":")[2] for place in places],
                    "replay_buffer_idx": [update["slots"][place] for place in places],
                    "priority": update["priority"][places],
                }
                packed[index].append(pack({"life": life, "info": info}))
        return packed

    def batches(self, count: int, batch_size: int, cur_learner_iter: int) -> list[Batch]:
        """Up to `count` batches; none where the buffer can give none now.

        Raises:
            ValueError: batches are larger than the buffer.
            TimeoutError: a shard does not answer.
        """
        if self.split.kind == WHOLE:
            return self._whole_batches(count, batch_size, cur_learner_iter)
        if batch_size > self.split.capacity:
            raise ValueError(
                f"sample size = {batch_size} is not allowed; it must be in [0, {self.split.capacity}], the "
                "replay_buffer_size"
            )
        updates = self._take_updates()
        facts = self._ask("plan", [(cur_learner_iter, self._max_priority, packed) for packed in updates])
        self._note(facts)
        stocks = [told or {} for told in facts]
        count = self._allowed(count, batch_size, stocks)
        sizes = np.array([self._sizes(batch_size, stocks) for _ in range(count)], np.int64).reshape(count, len(stocks))
        begin = max((told.get("beta", 0.0) for told in stocks), default=0.0)
        betas = [min(1.0, begin + number * self.split.beta_step) for number in range(count)]
        least = min((told.get("least_weight", math.inf) for told in stocks), default=math.inf)
        orders = [(column.tolist(), cur_learner_iter, betas, least) if column.any() else None for column in sizes.T]
        drawn = self._ask("draw", orders)
        return self._assembled([self._parts(index, told, count) for index, told in enumerate(drawn)], batch_size)

    def _whole_batches(self, count: int, batch_size: int, cur_learner_iter: int) -> list[Batch]:
        updates = self._take_updates()
        (told,) = self._ask("sample", [(batch_size, count, cur_learner_iter, self._max_priority, updates[0])])
        self._note([told])
        return [] if told is None else self._parts(0, told, len(told["sizes"]))

    # ---- the shards

    def _ask(self, method: str, arguments: Sequence[tuple[Any, ...] | None]) -> list[Facts | None]:
        """What the shards answer to a call with these arguments; None of those that are lost, or are not asked."""
        calls = [
            None if own is None else shard.call(method, *own)
            for shard, own in zip(self._shards, arguments, strict=True)
        ]
        deadline = monotonic() + self._timeout_s
        answers: list[Facts | None] = []
        for shard, call in zip(self._shards, calls, strict=True):
            try:
                answers.append(None if call is None else call.result(max(0.0, deadline - monotonic())))
            except ShardLost:
                answers.append(None)
            except TimeoutError as e:
                raise TimeoutError(f"the shard {shard.name} has not answered within {self._timeout_s:g} s") from e
        return answers

    def _note(self, facts: Sequence[Facts | None]) -> None:
        for index, told in enumerate(facts):
            if told is None:
                continue
            known = self._known[index]
            if known and known["life"] != told["life"]:
                self.lost_shards += 1
                self.lost_samples += known["count"]
            self._known[index] = told
        self.count = sum(0 if told is None else told["count"] for told in facts)

    def wait_for_push(self, timeout_s: float) -> bool:
        """Whether a shard was pushed to after it was asked for batches last, or is within `timeout_s`."""
        for index, shard in enumerate(self._shards):
            if index not in self._waits:
                self._waits[index] = shard.call("wait", self._known[index].get("pushes", -1), timeout_s)
        wait([self._closing, *self._waits.values()], timeout_s, FIRST_COMPLETED)
        done = {index: future for index, future in self._waits.items() if future.done()}
        self._waits = {index: future for index, future in self._waits.items() if index not in done}
        told = {index: future.result() for index, future in done.items() if future.exception() is None}
        return any(pushes != self._known[index].get("pushes") for index, pushes in told.items())

    def close(self) -> None:
        """End the wait for a push, now and later. Idempotent; called by another thread."""
        with self._lock:
            if not self._closing.done():
                self._closing.set_result(None)

    # ---- what is drawn from which

    def _allowed(self, count: int, batch_size: int, stocks: Sequence[Facts]) -> int:
        """How many batches the limits allow, `count` at most."""
        split, have = self.split, self.count
        if have < batch_size * max(1.0, split.least_ratio):
            return 0
        if split.has_max_use:
            count = min(count, 1)  # what a batch takes out is not there for the next one
        if split.least_rate:
            pushed, sampled = (sum(told.get(key, 0.0) for told in stocks) for key in ("pushed", "sampled"))
            count = min(count, max(0, math.floor((pushed / split.least_rate - sampled) / batch_size)))
        return count

    def _sizes(self, batch_size: int, stocks: Sequence[Facts]) -> IntArray:
        """How many samples of a batch each shard gives."""
        if self.split.kind == PRIORITIZED:
            weights = np.array([told.get("weight", 0.0) for told in stocks])
            return _stratified(batch_size, weights, self._rng)
        counts = np.array([told.get("count", 0) for told in stocks], np.int64)
        sizes: IntArray = self._rng.multivariate_hypergeometric(counts, batch_size)
        return sizes

    def _parts(self, index: int, told: Facts | None, count: int) -> list[Batch]:
        """The parts that a shard gives to each of `count` batches."""
        if told is None or not told["samples"]:
            return [[] for _ in range(count)]
        encoded, sizes = told["samples"], told["sizes"]
        samples = _for_learner(decode_chunk(encoded, "none"), f"{index}.{told['life']}:")
        self.sample_bytes = len(encoded) / len(samples)
        return split(samples, sizes)

    def _assembled(self, parts: Sequence[Sequence[Batch]], batch_size: int) -> list[Batch]:
        """Whole batches; samples of those that are not wait until they make up a batch together."""
        batches = []
        for own in zip(*parts, strict=True):
            batch: Any = whole_of([part for part in own if part])
            if len(batch) == batch_size:
                batches.append(batch)
            else:
                self._left_over += batch
        if len(self._left_over) >= batch_size:
            batches.append(self._left_over[:batch_size])
            del self._left_over[:batch_size]
        return batches


def _stratified(size: int, weights: FloatArray, rng: np.random.Generator) -> IntArray:
    """How many of `size` masses, one from each of as many equal strata of all weights, lie in each weight."""
    running = weights.cumsum()
    masses = (np.arange(size) + rng.random(size)) * (running[-1] / size)
    last = int(
        np.flatnonzero(weights)[-1]
    )  # a mass that was rounded up to the total belongs to the last weight above 0
    found = np.minimum(running.searchsorted(masses, side="right"), last)
    sizes: IntArray = np.bincount(found, minlength=len(weights))
    return sizes


def _for_learner(samples: list[Any], prefix: str) -> list[Any]:
    """Samples as the learner of one buffer would get them; their ids say where priorities belong."""
    columns = samples.columns if isinstance(samples, Samples) else None
    if columns is not None and STEPS not in columns:
        assert isinstance(samples, Samples)
        if _ID in columns:
            samples.set_column(_ID, Column(Kind.OBJECT, [prefix + unique_id for unique_id in node_items(columns[_ID])]))
        return samples
    items = [{**item, _ID: prefix + item[_ID]} if _ID in item else item for item in samples]
    return [with_meta(item.pop(STEPS), item) if STEPS in item else item for item in items]


def _owner_of(unique_id: Any) -> tuple[int, str] | None:
    """Number and life of the shard that gave the item of this id; None where none did."""
    head, mark, _ = unique_id.partition(":") if isinstance(unique_id, str) else ("", "", "")
    index, dot, life = head.partition(".")
    return (int(index), life) if mark and dot and index.isdecimal() else None
