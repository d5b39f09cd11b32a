"""The way of one task's batches, weights and infos."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import Any

from ding.utils.data.samples import Samples
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.checkpoint import plain_state
from ding.worker.learner.comm.batch_loader import BatchLoader
from ding.worker.learner.comm.exchange import LearnerExchange, Rows
from ding.worker.transport.ledger import DATA_ID
from ding.worker.transport.stores import PolicyStore, StorageError, may_pass, write_patiently
from ding.worker.transport.tasks import plain

# How long the first weights of a task are tried to be written: before there are any, nobody can collect.
_FIRST_PATIENCE_S = 60.0


class SendingChannel(ABC):
    """What the learner of one task sends; after `close` there are no weights.

    Each task has a channel of its own, so that nothing of an old task comes into a new one.

    Args:
        policy_names: under which the weights are written.
    """

    def __init__(self, policies: PolicyStore, policy_names: list[str], exchange: LearnerExchange) -> None:
        self.exchange = exchange
        self._policies = policies
        self._tokens: dict[str, Any] = dict.fromkeys(policy_names)  # of what was written last
        self._is_closed = False
        self._unwritten = {"unwritten_weights": 0, "unwritten_checkpoints": 0}

    @abstractmethod
    def attach(self, learner: BaseLearner) -> None:
        """This is the learner, and it is about to start."""

    @abstractmethod
    def get_data(self, batch_size: int) -> list[Any]:
        """The samples of the next batch; none after `stop`."""

    @property
    @abstractmethod
    def losses(self) -> dict[str, int]:
        """How much could not be trained on so far, as far as anything could not."""

    def send_policy(self, state_dict: dict[str, Any]) -> bool:
        """Write the weights `{'model': ..., 'iter': ...}` where the collectors look for them; nothing after `close`.

        Weights of a later iteration that another learner has written meanwhile stay: the task goes on there.

        Returns:
            False if they could not be written for some seconds, on a full disk for instance; that is counted.

        Raises:
            ValueError: the task wants them outside the folder of the weights.
            StorageError: they are the first ones of the task, and could not be written for a minute.
        """
        state, is_written = plain_state(state_dict, "weights"), True
        for name, known in self._tokens.items():
            if self._is_closed:
                continue
            write, patience_s = partial(self._policies.write, name, state, known), None
            if known is None:
                patience_s = _FIRST_PATIENCE_S
            try:
                self._tokens[name] = write_patiently(write, self.exchange.wait_closed, patience_s) or known
            except StorageError:
                if known is None:
                    raise
                self._unwritten["unwritten_weights"] += 1
                is_written = False
        return is_written

    def pass_over_checkpoint(self, error: OSError) -> None:
        """A checkpoint could not be written: that is counted, if it may pass.

        Raises:
            OSError: it does not.
        """
        if not may_pass(error):
            raise error
        self._unwritten["unwritten_checkpoints"] += 1

    @property
    def unwritten(self) -> dict[str, int]:
        """`unwritten_weights` and `unwritten_checkpoints` so far, as far as there are any."""
        return {key: count for key, count in self._unwritten.items() if count}

    def send_learn_info(self, learn_info: dict[str, Any]) -> None:
        """Queue an info for the coordinator, with the `losses` and what is `unwritten` added."""
        self.exchange.tell({**plain(learn_info), **self.losses, **self.unwritten})

    @abstractmethod
    def stop(self) -> None:
        """End all waits, and let go of the samples. The learner may still send its last weights."""

    def close(self) -> None:
        """Write no more weights: a learner that hangs now may go on when others have taken its place. Idempotent."""
        self.stop()
        self._is_closed = True


class LearnerChannel(SendingChannel):
    """What the learner of one task gets from the coordinator, and sends; after `stop` there are no batches.

    Args:
        loader: reads the batches.
        policy_names: under which the weights are written.
        max_bad_batches: so many batches in a row without a readable sample are an error; with 0 a single sample that
            cannot be read is one.
    """

    def __init__(
        self,
        loader: BatchLoader,
        policies: PolicyStore,
        policy_names: list[str],
        exchange: LearnerExchange,
        max_bad_batches: int,
    ) -> None:
        super().__init__(policies, policy_names, exchange)
        self.loader = loader
        self._max_bad_batches = max_bad_batches
        self._unreadable_in_a_row = 0
        self._dropped_batches = 0

    def attach(self, learner: BaseLearner) -> None:
        self.loader.warn = learner.logger.warning

    def get_data(self, batch_size: int) -> list[Any]:
        """The samples of the next batch; none after `stop`.

        Batches that are incomplete, for files are bad, are passed over; see `BatchLoader`.

        Raises:
            ValueError: the coordinator has sent another number of samples, or something else; or files are damaged.
            FileNotFoundError: files are missing.
        """
        while (rows := self.exchange.get()) is not None:
            if not _are_rows(rows):
                reason = f"the coordinator has sent a batch without {DATA_ID} in each sample: {str(rows)[:200]}"
                raise ValueError(reason)
            if len(rows) != batch_size:
                raise ValueError(f"the coordinator has sent {len(rows)} samples; asked for were {batch_size}")
            batch, count = self.loader.load(rows)
            if self.exchange.is_closed:
                break
            self._unreadable_in_a_row = 0 if count else self._unreadable_in_a_row + 1
            if count < batch_size:
                self._raise_if_too_many()
            if batch is not None:
                return batch
            self._dropped_batches += 1
            self.exchange.drop()
        return []

    def _raise_if_too_many(self) -> None:
        error, limit = self.loader.error, self._max_bad_batches
        if limit == 0:
            reason = f"learners that train together cannot pass over a sample: {error}"
        elif self._unreadable_in_a_row >= limit:
            reason = f"nothing of {limit} batches in a row could be read (max_bad_batches); at last: {error}"
        else:
            return
        raise (FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError)(reason) from error

    @property
    def losses(self) -> dict[str, int]:
        """`bad_files` and `dropped_batches` so far, as far as there are any."""
        counts = {"bad_files": len(self.loader.bad_files), "dropped_batches": self._dropped_batches}
        return {key: count for key, count in counts.items() if count}

    def stop(self) -> None:
        """End all waits, and let go of the samples. The learner may still send its last weights."""
        self.exchange.close()
        self.loader.close()


def _are_rows(rows: Rows) -> bool:
    if isinstance(rows, Samples) and rows.columns is not None:
        return DATA_ID in rows.columns
    return isinstance(rows, list) and all(isinstance(row, dict) and DATA_ID in row for row in rows)
