"""Fetches the batches of a learning task, and sends its weights and infos."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

from ding.utils.data.samples import table_of
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.checkpoint import plain_state
from ding.worker.learner.comm.batch_loader import BatchLoader
from ding.worker.learner.comm.exchange import LearnerExchange, Rows
from ding.worker.transport.ledger import DATA_ID
from ding.worker.transport.stores import PolicyStore, StorageError, may_pass, write_patiently
from ding.worker.transport.tasks import plain

# How long to retry writing the first weights of a task: collectors wait for them.
_FIRST_PATIENCE_S = 60.0


class SendingChannel(ABC):
    """Sends the weights and infos of one task; after `close` no weights are written.

    Each task has its own channel, so data of an old task cannot reach a new one.

    Args:
        policy_names: names under which the weights are written.
    """

    def __init__(self, policies: PolicyStore, policy_names: list[str], exchange: LearnerExchange) -> None:
        self.exchange = exchange
        self._policies = policies
        self._tokens: dict[str, Any] = dict.fromkeys(policy_names)  # of the last version written
        self._is_closed = False
        self._averages: list[dict[str, Any]] = []  # since the last info
        self._unwritten = {"unwritten_weights": 0, "unwritten_checkpoints": 0}

    @abstractmethod
    def attach(self, learner: BaseLearner) -> None:
        """Set the learner, before it starts."""

    @abstractmethod
    def get_data(self, batch_size: int) -> list[Any]:
        """The samples of the next batch; none after `stop`."""

    @property
    @abstractmethod
    def losses(self) -> dict[str, int]:
        """Counts of samples and batches that could not be trained on so far; empty if all could."""

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
                self._tokens[name] = write_patiently(write, self.exchange.wait_closed, patience_s) or known
            except StorageError:
                if known is None:
                    raise
                self._unwritten["unwritten_weights"] += 1
                is_written = False
        return is_written

    def pass_over_checkpoint(self, error: OSError) -> None:
        """Count a checkpoint that could not be written.

        Raises:
            OSError: the error is not a temporary one, such as a full disk.
        """
        if not may_pass(error):
            raise error
        self._unwritten["unwritten_checkpoints"] += 1

    @property
    def unwritten(self) -> dict[str, int]:
        """The counts `unwritten_weights` and `unwritten_checkpoints` so far, without zeros."""
        return {key: count for key, count in self._unwritten.items() if count}

    def add_averages(self, train_iter: int, averages: Mapping[str, Any]) -> None:
        """Add averages of monitored values to the next info. Called by the thread that sends the infos."""
        values = {name: float(value) for name, value in averages.items()}
        self._averages.append({"train_iter": train_iter, "values": values})

    def send_learn_info(self, learn_info: dict[str, Any]) -> None:
        """Queue an info for the coordinator, with `losses`, `unwritten` and, if there are any, `averages` added."""
        averages = {"averages": self._averages} if self._averages else {}
        self.exchange.report({**plain(learn_info), **self.losses, **self.unwritten, **averages})
        self._averages = []

    @abstractmethod
    def stop(self) -> None:
        """End all waits, and release the samples. The learner may still send its last weights."""

    def close(self) -> None:
        """Write no more weights: a learner that hangs may resume after another has taken over its task. Idempotent."""
        self.stop()
        self._is_closed = True


class LearnerChannel(SendingChannel):
    """Loads the batches that the coordinator sends; see `SendingChannel`. After `stop` there are no batches.

    Args:
        loader: reads the batches.
        policy_names: names under which the weights are written.
        max_bad_batches: so many consecutive batches without a readable sample are an error; with 0 a single unreadable
            sample is an error.
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

        Incomplete batches, whose files cannot be read, are skipped; see `BatchLoader`.

        Raises:
            ValueError: the coordinator has sent a wrong number of samples, or invalid metadata; or files are damaged.
            FileNotFoundError: files are missing.
        """
        while (rows := self.exchange.get()) is not None:
            if not _are_rows(rows):
                reason = f"the coordinator has sent a batch without {DATA_ID} in each sample: {str(rows)[:200]}"
                raise ValueError(reason)
            if len(rows) != batch_size:
                raise ValueError(f"the coordinator has sent {len(rows)} samples; the batch size is {batch_size}")
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
            reason = f"learners that train together cannot skip a sample: {error}"
        elif self._unreadable_in_a_row >= limit:
            reason = f"no sample of {limit} consecutive batches could be read (max_bad_batches); last error: {error}"
        else:
            return
        raise (FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError)(reason) from error

    @property
    def losses(self) -> dict[str, int]:
        """The counts `bad_files` and `dropped_batches` so far, without zeros."""
        counts = {"bad_files": len(self.loader.bad_files), "dropped_batches": self._dropped_batches}
        return {key: count for key, count in counts.items() if count}

    def stop(self) -> None:
        """See `SendingChannel.stop`."""
        self.exchange.close()
        self.loader.close()


def _are_rows(rows: Rows) -> bool:
    table = table_of(rows)
    if table is not None:
        return DATA_ID in table.columns
    return isinstance(rows, list) and all(isinstance(row, dict) and DATA_ID in row for row in rows)
