"""Sends the samples and infos of a collecting task, and fetches its weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from ding.worker.collector.comm.exchange import CollectorExchange
from ding.worker.transport.chunk import encode_chunk
from ding.worker.transport.stores import EVALUATED, PolicyStore, SampleStore, write_patiently
from ding.worker.transport.tasks import plain

_OF_SAMPLE = frozenset(("data_id", "policy_iter"))
_OF_INFO = frozenset(("collector_done", "cur_episode", "cur_sample", "cur_step"))


def check_metadata(metadata: dict[str, Any] | Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The metadata of samples, or a single info, as a list.

    Raises:
        AssertionError: keys are missing: `data_id` and `policy_iter` for a sample; `collector_done`, `cur_episode`,
            `cur_sample` and `cur_step` for an info.
    """
    entries = [plain(metadata)] if isinstance(metadata, dict) else list(metadata)
    for entry in entries:
        if not (entry.keys() >= _OF_SAMPLE or entry.keys() >= _OF_INFO):
            raise AssertionError(
                f"metadata needs the keys {sorted(_OF_SAMPLE)} of a sample or {sorted(_OF_INFO)} of an info; "
                f"it has {sorted(entry)}"
            )
    return entries


class WeightsChannel:
    """Fetches the weights of one task until `exchange` is closed.

    Attributes:
        is_evaluation: whether to store a copy of the fetched weights as those under evaluation.
    """

    is_evaluation = False

    def __init__(self, policies: PolicyStore, exchange: CollectorExchange) -> None:
        self.exchange = exchange
        self._policies = policies
        self._known: dict[str, Any] = {}  # tokens of the weights that were fetched last, by path

    def get_policy_update_info(self, path: str) -> dict[str, Any] | None:
        """The newest weights, `{'model': ..., 'iter': ...}`; None if they were returned before, or after `close`.

        Raises:
            FileNotFoundError: there are no weights yet.
            ValueError: `path` is outside the folder of the weights.
        """
        if self.exchange.is_closed:
            return None
        version = self._policies.read(path, self._known.get(path))
        if version is None:
            return None
        self._known[path] = version.token
        if self.is_evaluation:
            write_patiently(partial(self._policies.write, EVALUATED, version.state), self.exchange.wait_closed)
        return version.state


class TaskChannel(WeightsChannel):
    """Sends the samples and infos of one task, and fetches its weights; after `close` it does nothing.

    Each task has its own channel, so data of an old task cannot reach a new one.

    Args:
        send_timeout_s: how long sending may wait for the coordinator.
    """

    def __init__(
        self, samples: SampleStore, policies: PolicyStore, exchange: CollectorExchange, send_timeout_s: float
    ) -> None:
        super().__init__(policies, exchange)
        self._samples = samples
        self._send_timeout_s = send_timeout_s
        self._unannounced: set[str] = set()  # names of chunks that were written, but not queued for the coordinator

    def send_stepdata(self, path: str, stepdata: Any) -> None:
        """Write `stepdata`, an encoded chunk or a single sample, under the name `path`.

        Raises:
            ValueError: `path` is outside the folder of the samples.
            StorageError: the data cannot be written; see `write_patiently`.
        """
        if self.exchange.is_closed:
            return
        data = stepdata if isinstance(stepdata, bytes) else encode_chunk([stepdata], "none")
        self._unannounced.add(os.path.basename(path))
        write_patiently(partial(self._samples.write, path, data), self.exchange.wait_closed)
        if self.exchange.is_closed:  # meanwhile
            self._delete_unannounced()

    def send_metadata(self, metadata: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Queue the metadata of samples, or an info, for the coordinator; waits while the queue is full.

        Raises:
            AssertionError: see `check_metadata`.
            TimeoutError: the coordinator has taken no entry for `send_timeout_s`.
        """
        entries = check_metadata(metadata)
        if not entries:
            return
        if self.exchange.put(entries, self._send_timeout_s):
            self._unannounced.difference_update(entry.get("data_id", "") for entry in entries)
        else:
            self._delete_unannounced()

    def _delete_unannounced(self) -> None:
        while self._unannounced:
            self._samples.delete(self._unannounced.pop())

    def close(self) -> None:
        """End all waits, and delete the samples that the coordinator has not received metadata of."""
        for name in self.exchange.close():
            self._samples.delete(name)
