"""A learner task: the queue and the source of its batches, and the sending of weights and infos."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Protocol

from ding.envs.env_manager.normalization import Normalization
from ding.interaction.exception import failure_for
from ding.torch_utils.checkpoint_helper import refuse_nan
from ding.utils.config_helper import integer, number
from ding.utils.data.nested import plain
from ding.worker.learner.base_learner import BaseLearner, LoadedBatches
from ding.worker.learner.checkpoint import NORMALIZATION, plain_state
from ding.worker.learner.comm.chunk_source import ChunkSource, Rows
from ding.worker.learner.comm.resume import ResumeSaver
from ding.worker.learner.learner_hook import LearnerHook
from ding.worker.transport.comm_worker import WorkerQueue, WorkerTask, task_fail
from ding.worker.transport.stores import PolicyStore

Info = dict[str, Any]

# How many batches to request before the time of a batch is known.
_FIRST_BATCHES = 8
# Weight of the newest batch in the running mean of the time of a batch.
_NEWEST = 0.1


class LearnerQueue(WorkerQueue):
    """A queue of batches for the learner, and a queue of its infos for the coordinator. This class is thread-safe.

    See also `WorkerQueue`.

    Args:
        capacity: limit of the batches that wait to be loaded.
        ahead_s: seconds for which the waiting batches should last. If fewer than `capacity` suffice, only that many are
            requested, but at least two: batches that are drawn late have newer samples and newer priorities.

    Example:
        >>> queue = LearnerQueue(capacity=2)
        >>> queue.put([[{"data_id": "a"}]])
        >>> queue.get()
        [{'data_id': 'a'}]
        >>> queue.report({"learner_step": 0, "learner_done": True})
        >>> queue.wait_for_capacity(timeout_s=10), queue.take()
        (0, ([{'learner_step': 0, 'learner_done': True}], 0))
    """

    kind = "learner"

    def __init__(self, capacity: int, ahead_s: float = 0.1) -> None:
        super().__init__()
        self._capacity, self._ahead_s = capacity, ahead_s
        self._batch_s = ahead_s / _FIRST_BATCHES  # time of a batch
        self._got_s = math.nan  # when `get` returned the last one
        self._batches: deque[Rows] = deque()
        self._infos: list[Info] = []
        self._given = self._begun = self._loaded = 0
        self._is_loading = self._is_resting = self._is_done = False
        self._moved_at = monotonic()  # when the learner last began or finished a batch, or got one while it was idle

    def wait_for_capacity(self, timeout_s: float) -> int:
        """Wait until half of the capacity is free, and return how many batches to send; 0 after the last info.

        Raises:
            TaskFail: the learner has failed, was closed, or has ended and all its infos were taken.
        """
        with self._changed:
            self._wait(lambda: bool(self._infos) if self._is_done else self._is_time(), timeout_s)
            return 0 if self._is_done else self._wanted()

    def put(self, batches: Sequence[Rows]) -> None:
        """Add batches. After the last info they are dropped, as the coordinator may have sent them before it arrived.

        Raises:
            TaskFail: as for `wait_for_capacity`, or they exceed the capacity.
        """
        with self._changed:
            self._raise_if_over()
            if self._is_done:
                return
            free = self._capacity - len(self._batches)
            if len(batches) > free:
                reason = f"the learner has capacity for {free} batches; it was sent {len(batches)}"
                raise task_fail(failure_for(reason, "ValueError"))
            if self._is_idle():
                self._moved_at = monotonic()
            self._batches.extend(batches)
            self._given += len(batches)
            self._changed.notify_all()

    def take(self) -> tuple[list[Info], int]:
        """Return the infos since the last call, and the number of batches loaded since then.

        Raises:
            TaskFail: the learner has failed.
        """
        with self._changed:
            self._raise_failure()
            return self.rest()

    def rest(self) -> tuple[list[Info], int]:
        """Return the same as `take`, without raising if the learner has failed."""
        with self._changed:
            taken = self._infos, self._loaded
            self._infos, self._loaded = [], 0
            return taken

    def get(self) -> Rows | None:
        """Return the next batch; None after `close`. The one before it counts as loaded with this call."""
        with self._changed:
            if self._is_loading:
                self._loaded += 1
                self._batch_s += _NEWEST * (monotonic() - self._got_s - self._batch_s)
            self._is_loading = False
            self._changed.wait_for(lambda: self._is_closed or bool(self._batches))
            if self._is_closed:
                return None
            self._is_loading, self._got_s = True, monotonic()
            batch = self._batches.popleft()
            # Each thread that wakes up delays the learner for a moment: only notify if there is something to do.
            if not self._batches or self._is_time():
                self._changed.notify_all()
            return batch

    def drop(self) -> None:
        """Mark the batch that `get` returned last as one that is not trained on; it still counts as loaded."""
        with self._changed:
            self._given -= 1
            self._changed.notify_all()

    def rest_until_next(self) -> None:
        """Mark the learner as waiting for the next batch."""
        with self._changed:
            self._is_resting = True
            self._moved_at = monotonic()
            if self._begun == self._given:
                self._changed.notify_all()

    def begin(self) -> None:
        """Mark the beginning of a batch."""
        with self._changed:
            self._begun += 1
            self._is_resting = False
            self._moved_at = monotonic()

    def silence_s(self) -> float:
        """Return the seconds without progress of a learner that has a batch to train on; 0 if it has none."""
        with self._changed:
            is_idle = self._is_idle() or self._is_done or self._is_over()
            return 0.0 if is_idle else max(0.0, monotonic() - self._moved_at)

    def _is_idle(self) -> bool:
        """Return whether all batches so far were trained on."""
        return self._begun >= self._given and (self._is_resting or not self._begun)

    def wait_trained(self, timeout_s: float) -> bool:
        """Wait until all batches so far were trained on, or the learner has ended; return False after the timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._is_over() or (self._is_resting and self._begun == self._given), timeout_s
            )

    def wait_for_work(self, timeout_s: float) -> bool:
        """Wait until there is a batch to begin, or the learner ends; return False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed or self._given > self._begun, timeout_s)

    def report(self, info: Info) -> None:
        """Add an info for the coordinator; one with `learner_done` is the last."""
        with self._changed:
            self._infos.append(info)
            self._is_done = self._is_done or bool(info.get("learner_done"))
            if self._is_done:
                self._changed.notify_all()

    def close(self) -> None:
        """End all waits, and drop the batches."""
        with self._changed:
            self._is_closed = True
            self._batches.clear()
            self._changed.notify_all()

    def _target(self) -> int:
        """Return how many batches should be in the queue."""
        return min(self._capacity, max(2, math.ceil(self._ahead_s / max(self._batch_s, 1e-6))))

    def _is_time(self) -> bool:
        """Return whether it is time to request batches."""
        return self._wanted() >= (self._target() + 1) // 2

    def _wanted(self) -> int:
        return max(0, self._target() - len(self._batches))

    def _has_reports(self) -> bool:
        return bool(self._infos)


class LearnerTask(WorkerTask):
    """A learner task, which provides batches, and sends weights and infos; after `close` it writes no weights.

    So data of an old task, whose learner hangs, cannot reach a new one.

    Args:
        policy_names: names under which the weights are written.
        max_bad_batches: number of consecutive batches without a readable sample that is an error; with 0, a single
            unreadable sample is an error.

    Attributes:
        learner, saver: the learner, and what saves its checkpoints; set before the thread starts.
        group: the ranks of the task, if it has several.
    """

    learner: BaseLearner
    saver: ResumeSaver
    group: Group | None = None

    def __init__(
        self,
        task_info: Mapping[str, Any],
        source: ChunkSource,
        policies: PolicyStore,
        policy_names: list[str],
        queue: LearnerQueue,
        max_bad_batches: int = 0,
    ) -> None:
        super().__init__(task_info)
        self.source, self.queue = source, queue
        self._policies, self._policy_names = policies, policy_names
        self._is_closed = False
        self._averages: list[dict[str, Any]] = []  # the averages since the last info
        self._max_bad_batches = max_bad_batches
        self._unreadable_in_a_row = 0
        self._dropped_batches = 0

    def get_data(self, batch_size: int) -> list[Any]:
        """Return the samples of the next batch, an empty list after `stop`. Batches that cannot be read are skipped.

        Raises:
            ValueError: a batch has a wrong size or invalid metadata, or files are damaged.
            FileNotFoundError: files are missing.
        """
        while (entry := self.queue.get()) is not None:
            if not isinstance(entry, list) or len(entry) != batch_size:
                got = f"{len(entry)} samples" if isinstance(entry, list) else f"no samples: {entry!r:.200}"
                raise ValueError(f"the batch has {got}; the batch size is {batch_size}")
            batch, readable = self.source.load(entry)
            if self.queue.is_closed:
                break
            self._unreadable_in_a_row = 0 if readable else self._unreadable_in_a_row + 1
            error, limit = self.source.error, self._max_bad_batches
            reason = None
            if readable < batch_size and limit == 0:
                reason = "learners that train together cannot skip a sample"
            elif self._unreadable_in_a_row >= max(1, limit):
                reason = f"no sample of {limit} consecutive batches could be read (max_bad_batches)"
            if reason is not None:
                kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
                raise kind(f"{reason}; last error: {error}") from error
            if batch is not None:
                return batch
            self._dropped_batches += 1
            self.queue.drop()
        return []

    def send_policy(self, state_dict: dict[str, Any]) -> None:
        """Write the weights `{'model': ..., 'iter': ...}` for the collectors; do nothing after `close`.

        Raises:
            ValueError: the task names a file outside the folder of the weights.
            OSError: the weights cannot be written.
        """
        state = plain_state(state_dict, "weights")
        for name in self._policy_names:
            if not self._is_closed:
                self._policies.write(name, state)

    @property
    def losses(self) -> dict[str, int]:
        """The numbers of bad files and dropped batches so far, without zeros."""
        counts = {"bad_files": len(self.source.bad_files), "dropped_batches": self._dropped_batches}
        return {key: count for key, count in counts.items() if count}

    def add_averages(self, train_iter: int, averages: Mapping[str, Any]) -> None:
        """Add averages of monitored values to the next info. Only the thread that sends the infos may call it."""
        values = {name: float(value) for name, value in averages.items()}
        self._averages.append({"train_iter": train_iter, "values": values})

    def send_learn_info(self, learn_info: dict[str, Any]) -> None:
        """Queue an info for the coordinator, with `losses` and, if there are any, `averages` added."""
        averages = {"averages": self._averages} if self._averages else {}
        self.queue.report({**plain(learn_info), **self.losses, **averages})
        self._averages = []

    def take_normalization(self, message: Mapping[str, Any]) -> None:
        """Take the statistics of the collectors in a message, for the next checkpoints and weights."""
        if NORMALIZATION in message:
            statistics = Normalization()
            statistics.load_state_dict(message[NORMALIZATION])
            self.learner.ckpt_extra[NORMALIZATION] = statistics.state_dict()

    def stop(self) -> None:
        """End all waits, and release the samples. The learner may still send its last weights."""
        self.queue.close()
        self.source.stop()

    def close(self) -> None:
        """Write no more weights: a learner that hangs may resume after another has taken over its task.

        Further calls do nothing.
        """
        self.stop()
        self._is_closed = True


class Group(Protocol):
    """The ranks of a learner, which train on each batch together; see `RankGroup`."""

    @property
    def rank(self) -> int:
        """The rank of this process."""

    def share(self, learner: BaseLearner, trust_pickle: bool = False) -> None:
        """Copy the state of rank 0 to the learners of the other ranks."""

    def leave(self) -> None:
        """Leave the group. Further calls do nothing."""


class TaskBatches(LoadedBatches):
    """The batches of a learner task: those of the learner's dataloader, with the work between two batches.

    Checkpoints that are due are saved, and delayed weights are sent while there is nothing to train on.
    """

    def __init__(
        self, learner: BaseLearner, queue: LearnerQueue, hooks: Sequence[LearnerHook], saver: ResumeSaver
    ) -> None:
        super().__init__(learner)
        self._queue, self._saver = queue, saver
        self._sending = [hook for hook in hooks if isinstance(hook, SendPolicyHook)]

    def next_batch(self) -> Any:
        queue = self._queue
        queue.rest_until_next()
        self._saver.between_batches()
        for hook in self._sending:
            if hook.is_due and not queue.wait_for_work(hook.delay_s):
                hook.flush(self._learner)
        batch = super().next_batch()
        queue.begin()
        return batch


# Entries of a policy's state that collectors need besides the model: PPO computes advantages with the scale of the
# values, SQN acts with its temperature.
_FOR_COLLECTORS = ("value_norm", "log_alpha")


class SendPolicyHook(LearnerHook):
    """A hook that sends the weights, `{'model': ..., 'iter': ...}`, on rank 0.

    Before and after a run it always sends them. After an iteration it sends them if `send_policy_freq` divides the
    iteration's number, and `send_policy_interval_s` seconds or `max_policy_lag` iterations have passed since the last
    time; otherwise they are delayed until the first later iteration, or until `flush`.

    Args:
        ext_args: may have `send_policy_freq` (1), `send_policy_interval_s` (0.0) and `max_policy_lag` (32).

    Raises:
        ConfigError: `send_policy_freq` or `max_policy_lag` is not an integer >= 1, or `send_policy_interval_s` is
            negative.
        FloatingPointError: on the call, the weights contain NaN; nothing is sent.
    """

    def __init__(self, *args: Any, ext_args: Mapping[str, Any] = {}, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._freq = self._ext_arg(ext_args, "send_policy_freq", 1, integer(1))
        self._interval_s = self._ext_arg(ext_args, "send_policy_interval_s", 0.0, number(0))
        self._max_lag = self._ext_arg(ext_args, "max_policy_lag", 32, integer(1))
        self._open_s = float("-inf")  # when the next weights may be sent
        self._open_iter = 0  # the iteration from which on they may be sent earlier
        self._is_due = False

    def __call__(self, engine: Any) -> None:
        """Send the weights if they are due."""
        if engine.rank != 0:
            return
        self._is_due = self._is_due or self._position != "after_iter" or engine.last_iter.val % self._freq == 0
        is_open = self._position != "after_iter" or self.delay_s == 0.0 or engine.last_iter.val >= self._open_iter
        if self._is_due and is_open:
            self._send(engine)

    @property
    def delay_s(self) -> float:
        """Seconds until delayed weights may be sent."""
        return max(0.0, self._open_s - monotonic())

    @property
    def is_due(self) -> bool:
        """Whether there are delayed weights."""
        return self._is_due

    def flush(self, engine: Any) -> None:
        """Send delayed weights now."""
        if self._is_due:
            self._send(engine)

    def _send(self, engine: Any) -> None:
        state = engine.policy.state_dict()
        weights = {"model": state["model"], **{key: state[key] for key in _FOR_COLLECTORS if key in state}}
        if NORMALIZATION in engine.ckpt_extra:
            weights[NORMALIZATION] = engine.ckpt_extra[NORMALIZATION]
        refuse_nan(weights, f"at train_iter {engine.last_iter.val}")
        engine.send_policy({**weights, "iter": engine.last_iter.val})
        self._is_due, self._open_s = False, monotonic() + self._interval_s
        self._open_iter = engine.last_iter.val + self._max_lag
        engine.debug(f"{engine.instance_name} sent the weights of iteration {engine.last_iter.val}")


class SendLearnInfoHook(LearnerHook):
    """A hook that sends `learner.learn_info` at each call.

    Args:
        ext_args: may have `freq` (10), the iterations between two lines in the debug log.

    Raises:
        ConfigError: `freq` is not an integer >= 1.
    """

    def __init__(self, *args: Any, ext_args: Mapping[str, Any] = {}, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._freq = self._ext_arg(ext_args, "freq", 10, integer(1))

    def __call__(self, engine: Any) -> None:
        """Send the info."""
        engine.send_learn_info(engine.learn_info)
        if engine.last_iter.val % self._freq == 0:
            engine.debug(f"{engine.instance_name} sent its info of iteration {engine.last_iter.val}")
