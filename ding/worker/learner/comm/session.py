"""The session of one learner task: its batches come in, its weights and infos go out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from ding.torch_utils.training_guard import refuse_nan
from ding.utils.config_helper import ConfigError, Rule, integer, number
from ding.worker.learner.base_learner import BaseLearner, LoadedBatches
from ding.worker.learner.checkpoint import plain_state
from ding.worker.learner.comm.learner_queue import LearnerQueue, SampleSource
from ding.worker.learner.comm.resume import ResumeSaver
from ding.worker.learner.learner_hook import LearnerHook
from ding.worker.transport.stores import PolicyStore, StorageError, may_pass, write_patiently
from ding.worker.transport.tasks import plain

if TYPE_CHECKING:
    from ding.worker.learner.comm.ray_learner import RankGroup

# How long to retry writing the first weights of a task: collectors wait for them.
_FIRST_PATIENCE_S = 60.0


class LearnerSession:
    """Gives a task its batches, and sends its weights and infos; after `close` no weights are written.

    Each task has its own session, so data of an old task cannot reach a new one.

    Args:
        policy_names: names under which the weights are written.
        max_bad_batches: so many consecutive batches without a readable sample are an error; with 0 a single unreadable
            sample is an error.
    """

    def __init__(
        self,
        source: SampleSource,
        policies: PolicyStore,
        policy_names: list[str],
        queue: LearnerQueue,
        max_bad_batches: int = 0,
    ) -> None:
        self.source, self.queue = source, queue
        self._policies = policies
        self._tokens: dict[str, Any] = dict.fromkeys(policy_names)  # of the last version written
        self._is_closed = False
        self._averages: list[dict[str, Any]] = []  # since the last info
        self._max_bad_batches = max_bad_batches
        self._unreadable_in_a_row = 0
        self._counts = {"dropped_batches": 0, "unwritten_weights": 0, "unwritten_checkpoints": 0}

    def attach(self, learner: BaseLearner) -> None:
        """Set the learner, before it starts."""
        self.source.start(learner, self.queue)

    def get_data(self, batch_size: int) -> list[Any]:
        """Return the samples of the next batch; none after `stop`. Batches that cannot be read are skipped.

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
            if readable < batch_size:
                self._raise_if_too_many()
            if batch is not None:
                return batch
            self._counts["dropped_batches"] += 1
            self.queue.drop()
        return []

    def _raise_if_too_many(self) -> None:
        error, limit = self.source.error, self._max_bad_batches
        if limit == 0:
            reason = f"learners that train together cannot skip a sample: {error}"
        elif self._unreadable_in_a_row >= limit:
            reason = f"no sample of {limit} consecutive batches could be read (max_bad_batches); last error: {error}"
        else:
            return
        raise (FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError)(reason) from error

    def send_policy(self, state_dict: dict[str, Any]) -> bool:
        """Write the weights `{'model': ..., 'iter': ...}` for the collectors; does nothing after `close`.

        Weights of a later iteration that another learner has written are kept: the task continues there.

        Returns:
            False if writing has failed for some seconds, on a full disk for instance; this is counted.

        Raises:
            ValueError: the task names a file outside the folder of the weights.
            StorageError: the first weights of the task could not be written for a minute.
        """
        state, is_written = plain_state(state_dict, "weights"), True
        for name, known in self._tokens.items():
            if self._is_closed:
                continue
            write, patience_s = partial(self._policies.write, name, state, known), None
            if known is None:
                patience_s = _FIRST_PATIENCE_S
            try:
                self._tokens[name] = write_patiently(write, self.queue.wait_closed, patience_s) or known
            except StorageError:
                if known is None:
                    raise
                self._counts["unwritten_weights"] += 1
                is_written = False
        return is_written

    def pass_over_checkpoint(self, error: OSError) -> None:
        """Count a checkpoint that could not be written.

        Raises:
            OSError: the error is not a temporary one, such as a full disk.
        """
        if not may_pass(error):
            raise error
        self._counts["unwritten_checkpoints"] += 1

    @property
    def losses(self) -> dict[str, int]:
        """Counts of samples, batches, weights and checkpoints that were lost so far, without zeros."""
        return {key: count for key, count in {**self.source.losses, **self._counts}.items() if count}

    def add_averages(self, train_iter: int, averages: Mapping[str, Any]) -> None:
        """Add averages of monitored values to the next info. Called by the thread that sends the infos."""
        values = {name: float(value) for name, value in averages.items()}
        self._averages.append({"train_iter": train_iter, "values": values})

    def send_learn_info(self, learn_info: dict[str, Any]) -> None:
        """Queue an info for the coordinator, with `losses` and, if there are any, `averages` added.

        Raises:
            PriorityError, ValueError: see `SampleSource.take_priorities`.
        """
        averages = {"averages": self._averages} if self._averages else {}
        self.queue.report({**plain(self.source.take_priorities(learn_info)), **self.losses, **averages})
        self._averages = []

    def stop(self) -> None:
        """End all waits, and release the samples. The learner may still send its last weights."""
        self.queue.close()
        self.source.stop()

    def close(self) -> None:
        """Write no more weights: a learner that hangs may resume after another has taken over its task. Idempotent."""
        self.stop()
        self._is_closed = True
        self.source.close()


class TaskBatches(LoadedBatches):
    """The batches of a learner task: the learner's own, with what is done between two of them.

    Checkpoints that are due are saved, and delayed weights are sent while there is nothing to train on.

    Args:
        group: the ranks that train each batch together.
    """

    def __init__(
        self,
        learner: BaseLearner,
        queue: LearnerQueue,
        hooks: Sequence[LearnerHook],
        saver: ResumeSaver,
        group: RankGroup | None = None,
    ) -> None:
        super().__init__(learner)
        self._queue, self._saver, self._group = queue, saver, group
        self._sending = [hook for hook in hooks if isinstance(hook, SendPolicyHook)]

    def next_batch(self) -> Any:
        queue, group = self._queue, self._group
        queue.rest_until_next()
        self._saver.between_batches()
        for hook in self._sending:
            if hook.is_due and not queue.wait_for_work(hook.delay_s):
                hook.flush(self._learner)
        if group is not None and not group.next_batch(queue):
            return None
        batch = super().next_batch()
        if group is not None and batch is None:
            raise RuntimeError("this rank has lost a batch that all ranks were about to train")
        queue.begin()
        return batch


# Entries of a policy's state that collectors need besides the model: PPO computes advantages with the scale of the
# values, SQN acts at its temperature.
_FOR_COLLECTORS = ("value_norm", "log_alpha")
# Delay until the next attempt to write weights, after one has failed.
_RETRY_S = 5.0


class SendPolicyHook(LearnerHook):
    """Sends the weights, `{'model': ..., 'iter': ...}`, on rank 0.

    Before and after a run it always sends them. After an iteration it sends them if `send_policy_freq` divides the
    iteration's number, and at least `send_policy_interval_s` seconds after the last time; otherwise they are delayed
    until the first later iteration, or until `flush`. Weights that could not be written (`send_policy` returns False)
    are delayed likewise.

    Args:
        ext_args: may have `send_policy_freq` (1) and `send_policy_interval_s` (0.0).

    Raises:
        ConfigError: `send_policy_freq` is not an integer >= 1, or `send_policy_interval_s` negative.
        FloatingPointError: on the call, the weights contain NaN; nothing is sent.
    """

    def __init__(self, *args: Any, ext_args: Mapping[str, Any] = {}, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._freq = _checked(self, ext_args, "send_policy_freq", 1, integer(1))
        self._interval_s = _checked(self, ext_args, "send_policy_interval_s", 0.0, number(0))
        self._open_s = float("-inf")  # when the next one may be sent
        self._is_due = False

    def __call__(self, engine: Any) -> None:
        """Send the weights if they are due."""
        if engine.rank != 0:
            return
        self._is_due = self._is_due or self._position != "after_iter" or engine.last_iter.val % self._freq == 0
        if self._is_due and (self._position != "after_iter" or self.delay_s == 0.0):
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
        refuse_nan(weights, f"at train_iter {engine.last_iter.val}")
        is_written = engine.send_policy({**weights, "iter": engine.last_iter.val})
        if is_written is False:  # a user's `send_policy` may return None
            self._open_s = monotonic() + max(self._interval_s, _RETRY_S)
            engine.logger.error("the weights of iteration %s could not be written", engine.last_iter.val)
            return
        self._is_due, self._open_s = False, monotonic() + self._interval_s
        engine.debug(f"{engine.instance_name} sent the weights of iteration {engine.last_iter.val}")


class SendLearnInfoHook(LearnerHook):
    """Sends `learner.learn_info` at each call.

    Args:
        ext_args: may have `freq` (10), the iterations between two lines in the debug log.

    Raises:
        ConfigError: `freq` is not an integer >= 1.
    """

    def __init__(self, *args: Any, ext_args: Mapping[str, Any] = {}, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._freq = _checked(self, ext_args, "freq", 10, integer(1))

    def __call__(self, engine: Any) -> None:
        """Send the info."""
        engine.send_learn_info(engine.learn_info)
        if engine.last_iter.val % self._freq == 0:
            engine.debug(f"{engine.instance_name} sent its info of iteration {engine.last_iter.val}")


def _checked(hook: LearnerHook, ext_args: Mapping[str, Any], key: str, default: Any, rule: Rule) -> Any:
    value = ext_args.get(key, default)
    allowed = rule(value)
    if allowed is not None:
        raise ConfigError(f"hook {hook.name!r}: {key} = {value!r} is not allowed; it must be {allowed}")
    return value
