"""Drawing the batches of a learner task from the shards of a replay buffer, as if from one buffer."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import numpy as np

from ding.data.priority_index import as_priorities
from ding.interaction.exception import TaskFail
from ding.torch_utils.thread_count import keep_thread_count
from ding.utils.data.samples import Column, Kind, listed, node_items, replaced, table_of, whole_of
from ding.utils.default_helper import new_generator
from ding.utils.msgpack_helper import pack
from ding.utils.segment_tree import FloatArray, IntArray
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.comm.learner_session import Info, LearnerQueue, SampleSource
from ding.worker.transport.chunk import decode_chunk, split, with_meta
from ding.worker.transport.ray.shard import PRIORITIZED, STEPS, UNIFORM, WHOLE, Shard, ShardLost, Split, call_all

_ID = "replay_unique_id"
Batch = list[Any]
Facts = dict[str, Any]


class ShardedReplay:
    """A learner's client of a sharded replay buffer. `update` may be called from another thread.

    Batches are distributed as if drawn from one buffer. A uniform draw takes from each shard a number of items that
    follows the multivariate hypergeometric distribution. A prioritized draw cuts the total weight of all shards into
    strata, as the buffer does, with importance weights relative to the smallest weight in all shards. A lost shard
    counts as empty until it is replaced.

    Args:
        split: see `split_of`.
        timeout_s: how long a shard may take to answer.

    Attributes:
        count: number of items in all shards at the last call of `batches`.
        lost_shards, lost_samples: how many shards were lost so far, and how many samples were in them.
        sample_bytes: encoded size of a sample in the last batches; 0 before the first.
    """

    def __init__(self, shards: Sequence[Shard], split: Split, timeout_s: float) -> None:
        self.count = self.lost_shards = self.lost_samples = 0
        self.sample_bytes = 0.0
        self.split = split
        self._shards, self._timeout_s = list(shards), timeout_s
        self._rng = new_generator()
        self._known: list[Facts] = [{} for _ in self._shards]  # the last reply of each shard
        self._waits: dict[int, Future[Any]] = {}  # the running waits, by shard
        self._closing: Future[None] = Future()
        self._updates: list[dict[str, Any]] = []
        self._max_priority = 1.0
        self._lock = threading.Lock()
        self._left_over: Batch = []  # samples of batches that a lost shard left incomplete

    def update(self, info: Mapping[str, Any]) -> None:
        """Keep priorities of sampled items, which are set when the next batches are drawn.

        Args:
            info: see `AdvancedReplayBuffer.update`.

        Raises:
            PriorityError: a priority is negative or not finite.
            ValueError: there is not one priority for each item.
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
        """Return the pending updates of each shard, packed."""
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
        """Draw up to `count` batches; the list is empty if there are too few samples.

        Raises:
            ValueError: `batch_size` is larger than the buffer.
            TimeoutError: a shard does not answer in time.
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
        replies = [reply or {} for reply in facts]
        count = self._allowed(count, batch_size, replies)
        sizes = np.array([self._sizes(batch_size, replies) for _ in range(count)], np.int64).reshape(
            count, len(replies)
        )
        begin = max((reply.get("beta", 0.0) for reply in replies), default=0.0)
        betas = [min(1.0, begin + number * self.split.beta_step) for number in range(count)]
        least = min((reply.get("least_weight", math.inf) for reply in replies), default=math.inf)
        orders = [(column.tolist(), cur_learner_iter, betas, least) if column.any() else None for column in sizes.T]
        drawn = self._ask("draw", orders)
        return self._assembled([self._parts(index, reply, count) for index, reply in enumerate(drawn)], batch_size)

    def _whole_batches(self, count: int, batch_size: int, cur_learner_iter: int) -> list[Batch]:
        updates = self._take_updates()
        (reply,) = self._ask("sample", [(batch_size, count, cur_learner_iter, self._max_priority, updates[0])])
        self._note([reply])
        return [] if reply is None else self._parts(0, reply, len(reply["sizes"]))

    # ---- the shards

    def _ask(self, method: str, arguments: Sequence[tuple[Any, ...] | None]) -> list[Facts | None]:
        """Call a method of the shards and return the results; None for lost shards, and where arguments are None."""
        answers = call_all(self._shards, method, arguments, self._timeout_s)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ShardLost):
                raise answer
        return [None if isinstance(answer, ShardLost) else answer for answer in answers]

    def _note(self, facts: Sequence[Facts | None]) -> None:
        for index, reply in enumerate(facts):
            if reply is None:
                continue
            known = self._known[index]
            if known and known["life"] != reply["life"]:
                self.lost_shards += 1
                self.lost_samples += known["count"]
            self._known[index] = reply
        self.count = sum(0 if reply is None else reply["count"] for reply in facts)

    def wait_for_push(self, timeout_s: float) -> bool:
        """Wait for a push to a shard since the last call of `batches`, and return whether there was one in time."""
        for index, shard in enumerate(self._shards):
            if index not in self._waits:
                self._waits[index] = shard.call("wait", self._known[index].get("pushes", -1), timeout_s)
        wait([self._closing, *self._waits.values()], timeout_s, FIRST_COMPLETED)
        done = {index: future for index, future in self._waits.items() if future.done()}
        self._waits = {index: future for index, future in self._waits.items() if index not in done}
        counts = {index: future.result() for index, future in done.items() if future.exception() is None}
        return any(pushes != self._known[index].get("pushes") for index, pushes in counts.items())

    def close(self) -> None:
        """End running and later calls of `wait_for_push`; it may be called from another thread.

        Further calls do nothing.
        """
        with self._lock:
            if not self._closing.done():
                self._closing.set_result(None)

    # ---- the batches

    def _allowed(self, count: int, batch_size: int, replies: Sequence[Facts]) -> int:
        """Return the number of batches that the limits allow, at most `count`."""
        split, have = self.split, self.count
        if have < batch_size * max(1.0, split.least_ratio):
            return 0
        if split.has_max_use:
            count = min(count, 1)  # items that one batch uses up must not be in the next one
        if split.least_rate:
            pushed, sampled = (sum(reply.get(key, 0.0) for reply in replies) for key in ("pushed", "sampled"))
            count = min(count, max(0, math.floor((pushed / split.least_rate - sampled) / batch_size)))
        return count

    def _sizes(self, batch_size: int, replies: Sequence[Facts]) -> IntArray:
        """Return the number of samples of a batch that each shard contributes."""
        if self.split.kind == PRIORITIZED:
            weights = np.array([reply.get("weight", 0.0) for reply in replies])
            return _stratified(batch_size, weights, self._rng)
        counts = np.array([reply.get("count", 0) for reply in replies], np.int64)
        sizes: IntArray = self._rng.multivariate_hypergeometric(counts, batch_size)
        return sizes

    def _parts(self, index: int, reply: Facts | None, count: int) -> list[Batch]:
        """Return the part that a shard contributes to each of `count` batches."""
        if reply is None or not reply["samples"]:
            return [[] for _ in range(count)]
        encoded, sizes = reply["samples"], reply["sizes"]
        samples = _for_learner(decode_chunk(encoded, "none"), f"{index}.{reply['life']}:")
        self.sample_bytes = len(encoded) / len(samples)
        return split(samples, sizes)

    def _assembled(self, parts: Sequence[Sequence[Batch]], batch_size: int) -> list[Batch]:
        """Return the complete batches; samples of incomplete ones are kept until they fill a batch."""
        batches = []
        for own in zip(*parts, strict=True):
            batch = listed(whole_of([part for part in own if part]))
            if len(batch) == batch_size:
                batches.append(batch)
            else:
                self._left_over += batch
        if len(self._left_over) >= batch_size:
            batches.append(self._left_over[:batch_size])
            del self._left_over[:batch_size]
        return batches


def _stratified(size: int, weights: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw one point from each of `size` equal strata of all weights, and return how many lie in each weight."""
    running = weights.cumsum()
    masses = (np.arange(size) + rng.random(size)) * (running[-1] / size)
    last = int(np.flatnonzero(weights)[-1])  # a mass that is rounded up to the total belongs to the last weight above 0
    found = np.minimum(running.searchsorted(masses, side="right"), last)
    sizes: IntArray = np.bincount(found, minlength=len(weights))
    return sizes


def _for_learner(samples: list[Any], prefix: str) -> list[Any]:
    """Return the samples as one buffer gives them; the prefix of their ids says which shard gets their priorities."""
    table = table_of(samples)
    if table is not None and STEPS not in table.columns:
        if _ID in table.columns:
            ids = [prefix + unique_id for unique_id in node_items(table.columns[_ID])]
            replaced(samples, table.with_columns(**{_ID: Column(Kind.OBJECT, ids)}))
        return samples
    items = [{**item, _ID: prefix + item[_ID]} if _ID in item else item for item in samples]
    return [with_meta(item.pop(STEPS), item) if STEPS in item else item for item in items]


def _owner_of(unique_id: Any) -> tuple[int, str] | None:
    """Return the index and life of the shard that this id names; None if it names none."""
    head, mark, _ = unique_id.partition(":") if isinstance(unique_id, str) else ("", "", "")
    index, dot, life = head.partition(".")
    return (int(index), life) if mark and dot and index.isdecimal() else None


# Limit of one wait for samples, and the pause after a wait without samples: shards may be restarting.
_WAIT_S, _PAUSE_S = 1.0, 0.1
# How long `close` waits for the thread.
_END_S = 5.0


class ShardSource(SampleSource):
    """A `SampleSource` that draws batches in a thread while the learner trains.

    Priorities go to the shards instead of the coordinator, before the next batches are drawn.

    Args:
        limit_bytes: limit of the size of batches that were drawn and not trained on yet. One batch is always allowed.
    """

    def __init__(self, replay: ShardedReplay, limit_bytes: int) -> None:
        self._replay, self._limit_bytes = replay, limit_bytes
        self._thread: threading.Thread | None = None

    def start(self, learner: BaseLearner, queue: LearnerQueue) -> None:
        self._thread = threading.Thread(target=self._work, args=(learner, queue), name="learner_pull", daemon=True)
        self._thread.start()

    def _work(self, learner: BaseLearner, queue: LearnerQueue) -> None:
        try:
            keep_thread_count()
            self._pull(learner, queue)
        except TaskFail:  # the task has ended
            return
        except BaseException as e:  # raised where the learner asks for its next batch
            queue.fail(e)
            queue.close()

    def _pull(self, learner: BaseLearner, queue: LearnerQueue) -> None:
        replay = self._replay
        while True:
            batch_size = int(learner.policy.get_attribute("batch_size"))
            limit = max(1, int(self._limit_bytes / max(1.0, replay.sample_bytes * batch_size)))
            count = queue.wait_for_need(limit)
            if count == 0:
                return
            if not replay.sample_bytes:  # the size of a batch is not known yet
                count = 1
            batches = replay.batches(count, batch_size, learner.last_iter.val)
            if batches:
                queue.put(batches)
            elif not replay.wait_for_push(_WAIT_S):
                queue.wait_closed(_PAUSE_S)

    @property
    def level(self) -> int:  # type: ignore[override]
        return self._replay.count

    @property
    def losses(self) -> dict[str, int]:
        return {"lost_shards": self._replay.lost_shards, "lost_samples": self._replay.lost_samples}

    def take_priorities(self, info: Info) -> Info:
        self._replay.update(info.get("priority_info") or {})
        return {**info, "priority_info": {}}

    def stop(self) -> None:
        self._replay.close()

    def close(self) -> None:
        super().close()
        if self._thread is not None:
            self._thread.join(_END_S)  # it may be waiting for a shard that does not answer
