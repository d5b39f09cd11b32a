"""The way of one task's batches, weights and infos."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ding.worker.learner.checkpoint import plain_state
from ding.worker.learner.comm.exchange import LearnerExchange, Rows
from ding.worker.learner.comm.loading import read_patiently
from ding.worker.transport.chunk_reader import ChunkReader
from ding.worker.transport.ledger import DATA_ID
from ding.worker.transport.plain import plain
from ding.worker.transport.stores import PolicyStore


class LearnerChannel:
    """What the learner of one task gets and sends; after `close` there are no batches.

    Each task has a channel of its own, so that nothing of an old task comes into a new one.

    Args:
        policy_names: under which the weights are written.
        read_timeout_s: how long a chunk may be late.
    """

    def __init__(
        self,
        reader: ChunkReader,
        policies: PolicyStore,
        policy_names: list[str],
        exchange: LearnerExchange,
        read_timeout_s: float,
    ) -> None:
        self.exchange = exchange
        self._reader, self._policies, self._policy_names = reader, policies, policy_names
        self._read_timeout_s = read_timeout_s

    def get_data(self, batch_size: int) -> list[Callable[[], Any]]:
        """Functions that each load a sample of the next batch; none after `close`.

        Raises:
            ValueError: the coordinator has sent another number of samples, or something else.
        """
        rows = self.exchange.get()
        if rows is None:
            return []
        if not _are_rows(rows):
            raise ValueError(f"the coordinator has sent a batch without {DATA_ID} in each sample: {str(rows)[:200]}")
        if len(rows) != batch_size:
            raise ValueError(f"the coordinator has sent {len(rows)} samples; asked for were {batch_size}")
        return [partial(self._load, row) for row in rows]

    def _load(self, row: dict[str, Any]) -> Any:
        """A sample.

        Raises:
            FileNotFoundError, ValueError: see `read_patiently`.
        """
        read, what = partial(self._reader.sample, row), repr(row[DATA_ID])
        return read_patiently(read, what, self._read_timeout_s, self.exchange.wait_closed)

    def send_policy(self, state_dict: dict[str, Any]) -> None:
        """Write the weights `{'model': ..., 'iter': ...}` where the collectors look for them.

        Raises:
            ValueError: the task wants them outside the folder of the weights.
        """
        state = plain_state(state_dict, "weights")
        for name in self._policy_names:
            self._policies.write(name, state)

    def send_learn_info(self, learn_info: dict[str, Any]) -> None:
        """Queue an info for the coordinator."""
        self.exchange.tell(plain(learn_info))

    def close(self) -> None:
        """End all waits, and let go of the samples."""
        self.exchange.close()
        self._reader.clear()


def _are_rows(rows: Rows) -> bool:
    return isinstance(rows, list) and all(isinstance(row, dict) and DATA_ID in row for row in rows)
