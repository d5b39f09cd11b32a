"""What a learner in parallel training does between two batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ding.worker.learner.base_learner import BaseLearner
from ding.worker.learner.comm.exchange import LearnerExchange
from ding.worker.learner.comm.resume import ResumeSaver
from ding.worker.learner.comm.send_hooks import SendPolicyHook
from ding.worker.learner.learner_hook import LearnerHook


def use_pauses(
    learner: BaseLearner, exchange: LearnerExchange, hooks: Sequence[LearnerHook], saver: ResumeSaver
) -> None:
    """Have checkpoints saved when it is time, and weights that were put off sent while there is nothing to train on."""
    wait_for_data: Callable[[], Any] = learner._next_data
    sending = [hook for hook in hooks if isinstance(hook, SendPolicyHook)]

    def next_data() -> Any:
        exchange.rest_until_next()
        saver.between_batches()
        for hook in sending:
            if hook.is_due and not exchange.wait_for_work(hook.put_off_s):
                hook.flush(learner)
        data = wait_for_data()
        exchange.begin()
        return data

    learner._next_data = next_data  # type: ignore[method-assign]
