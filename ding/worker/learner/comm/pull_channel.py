"""Draws the batches of a learning task from the shards of the replay buffer."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ding.interaction.exception import TaskFail
from ding.torch_utils.thread_count import keep_thread_count
from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.comm.channel import SendingChannel
from ding.worker.learner.comm.exchange import LearnerExchange
from ding.worker.transport.ray.sharded import ShardedReplay
from ding.worker.transport.ray.split import Split
from ding.worker.transport.stores import PolicyStore
from ding.worker.transport.transport import Transport

# Limit of one wait for samples, and the pause after a wait without any: shards may be restarting.
_WAIT_S, _PAUSE_S = 1.0, 0.1
# How long `close` waits for the thread.
_END_S = 5.0


def open_replay(transport: Transport, where: Mapping[str, Any], timeout_s: float) -> ShardedReplay:
    """The client of the replay buffer that a task names under `REPLAY`."""
    return ShardedReplay(transport.shards(where), Split(**where["split"]), timeout_s)


class PullChannel(SendingChannel):
    """Draws batches in a thread while the learner trains; see `SendingChannel`.

    Priorities go to the shards instead of the coordinator, before the next batches are drawn.

    Args:
        limit_bytes: limit of the size of batches that are drawn and not trained yet. One batch is always allowed.
    """

    def __init__(
        self,
        replay: ShardedReplay,
        policies: PolicyStore,
        policy_names: list[str],
        exchange: LearnerExchange,
        limit_bytes: int,
    ) -> None:
        super().__init__(policies, policy_names, exchange)
        self._replay, self._limit_bytes = replay, limit_bytes
        self._thread: threading.Thread | None = None

    def attach(self, learner: BaseLearner) -> None:
        self._thread = threading.Thread(target=self._work, args=(learner,), name="learner_pull", daemon=True)
        self._thread.start()

    def _work(self, learner: BaseLearner) -> None:
        try:
            keep_thread_count()
            self._pull(learner)
        except TaskFail:  # the task has ended
            return
        except BaseException as e:
            self.exchange.fail(e)
            self.exchange.close()

    def _pull(self, learner: BaseLearner) -> None:
        replay = self._replay
        while True:
            batch_size = int(learner.policy.get_attribute("batch_size"))
            limit = max(1, int(self._limit_bytes / max(1.0, replay.sample_bytes * batch_size)))
            count = self.exchange.wait_for_need(limit)
            if count == 0:
                return
            if not replay.sample_bytes:  # the size of a batch is not known yet
                count = 1
            batches = replay.batches(count, batch_size, learner.last_iter.val)
            if batches:
                self.exchange.put(batches)
            elif not replay.wait_for_push(_WAIT_S):
                self.exchange.wait_closed(_PAUSE_S)

    def get_data(self, batch_size: int) -> list[Any]:
        """The samples of the next batch; none after `stop`.

        Raises:
            ValueError: the batch has another size, since the batch size was changed after it was drawn.
        """
        batch = self.exchange.get()
        if batch is None:
            return []
        if len(batch) != batch_size:
            raise ValueError(f"the batch has {len(batch)} samples; the batch size is {batch_size}")
        return batch

    @property
    def level(self) -> int:
        """Number of samples in the buffer when batches were drawn last."""
        return self._replay.count

    @property
    def losses(self) -> dict[str, int]:
        """The counts `lost_shards` and `lost_samples` so far, without zeros."""
        counts = {"lost_shards": self._replay.lost_shards, "lost_samples": self._replay.lost_samples}
        return {key: count for key, count in counts.items() if count}

    def send_learn_info(self, learn_info: dict[str, Any]) -> None:
        """Queue an info for the coordinator, and its priorities for the shards.

        Raises:
            PriorityError, ValueError: see `ShardedReplay.update`.
        """
        self._replay.update(learn_info.get("priority_info") or {})
        super().send_learn_info({**learn_info, "priority_info": {}})

    def stop(self) -> None:
        self.exchange.close()
        self._replay.close()

    def close(self) -> None:
        super().close()
        if self._thread is not None:
            self._thread.join(_END_S)  # it may be waiting for a shard that does not answer
