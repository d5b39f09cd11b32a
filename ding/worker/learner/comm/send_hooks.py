"""Learner hooks of parallel training: they send weights to the collectors, and infos to the coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from ding.torch_utils.training_guard import refuse_nan
from ding.utils.config_helper import ConfigError, Rule, integer, number
from ding.worker.learner.base_learner import BaseLearner, LoadedBatches
from ding.worker.learner.comm.exchange import LearnerExchange
from ding.worker.learner.comm.rank_group import RankGroup
from ding.worker.learner.comm.resume import ResumeSaver
from ding.worker.learner.learner_hook import LearnerHook


class TaskBatches(LoadedBatches):
    """The batches of a learner task: the learner's own, with what is done between two of them.

    Checkpoints that are due are saved, and delayed weights are sent while there is nothing to train on.

    Args:
        group: the ranks that train each batch together.
    """

    def __init__(
        self,
        learner: BaseLearner,
        exchange: LearnerExchange,
        hooks: Sequence[LearnerHook],
        saver: ResumeSaver,
        group: RankGroup | None = None,
    ) -> None:
        super().__init__(learner)
        self._exchange, self._saver, self._group = exchange, saver, group
        self._sending = [hook for hook in hooks if isinstance(hook, SendPolicyHook)]

    def next_batch(self) -> Any:
        exchange, group = self._exchange, self._group
        exchange.rest_until_next()
        self._saver.between_batches()
        for hook in self._sending:
            if hook.is_due and not exchange.wait_for_work(hook.delay_s):
                hook.flush(self._learner)
        if group is not None and not group.next_batch(exchange):
            return None
        batch = super().next_batch()
        if group is not None and batch is None:
            raise RuntimeError("this rank has lost a batch that all ranks were about to train")
        exchange.begin()
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
