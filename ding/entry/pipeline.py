"""The loop of the serial pipelines, which train in rounds."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from ding.entry.checks import check_pipeline
from ding.entry.serial_run import SerialRun
from ding.worker.learner.base_learner import BatchSource


class Rounds(BatchSource):
    """The part that differs from one pipeline to another: the workers, and the source of the batches of its rounds.

    Attributes:
        run: the run, after its workers are built.
        dynamic_seed, collects, has_buffer: see `build_run`.
        needs_command_mode: whether the policy must have a command mode.
        batch: the only batch of a round; a subclass with several batches overrides `next_batch`.
        can_relabel: whether the replay buffer may be `her`.
    """

    run: SerialRun
    dynamic_seed: bool | None = None
    collects = True
    has_buffer = True
    needs_command_mode = True
    batch: Any = None
    can_relabel = False

    def check(self, cfg: Any) -> None:
        """Check the compiled config before anything is built."""

    def prepare(self, stack: ExitStack) -> None:
        """Build what this pipeline needs besides the workers of its run; `stack` closes it."""

    def begin(self) -> None:
        """Prepare the first round of a run; not called if the run resumes."""

    @property
    def is_cut(self) -> bool:
        """Whether batches of the round are left, which a resumed run would not train on."""
        return False

    def begin_round(self) -> bool:
        """Evaluate if it is due, and get the data of a round; return False if the run is over."""
        raise NotImplementedError

    def next_batch(self) -> Any:
        batch, self.batch = self.batch, None
        return batch


class CollectRounds(Rounds):
    """Rounds that collect data in envs, and train on it as one batch.

    Attributes:
        collecting: keyword arguments of the collector's `collect`.
    """

    collecting: Mapping[str, Any] = {}
    _is_first = False

    def check(self, cfg: Any) -> None:
        check_pipeline(cfg, self.has_buffer)

    def begin(self) -> None:
        run = self.run
        self._is_first = True
        run.resume()
        run.sync_normalization()
        if not run.cfg.policy.learn.get("resume_training", False):
            self.pretrain()
        run.collect_randomly(self.push)

    def pretrain(self) -> None:
        """Train before the first round."""

    def begin_round(self) -> bool:
        run = self.run
        if run.is_over and not self._is_first:
            return False
        self._is_first = False
        run.states.checkpoint(run)
        collect_kwargs = run.commander.step()
        run.sync_normalization()
        if run.evaluate_if_due():
            return False
        data = run.collector.collect(train_iter=run.learner.train_iter, policy_kwargs=collect_kwargs, **self.collecting)
        self.envstep = run.envstep
        self.take(data)
        return True

    def take(self, data: Any) -> None:
        """Take over the data that were collected in a round."""
        self.batch = data

    def push(self, data: Any) -> None:
        """Push collected samples, those of a random policy included, to the replay buffer."""
        self.run.push(data)


def train_in_rounds(run: SerialRun, rounds: Rounds, evaluates_end: bool) -> None:
    """Train until the task is solved, the budget is used up or the rounds end, and write the result."""
    learner, states = run.learner, run.states
    learner.call_hook("before_run")
    if states.is_resumed:
        states.load(run)
        run.progress.env_steps_before = run.envstep
    else:
        rounds.begin()
    while not run.is_decided and rounds.begin_round() and learner.train_from(rounds, run.max_train_iter):
        run.progress.advance(run.envstep, learner.train_iter)
    if rounds.is_cut:
        states.note_cut("max_train_iter" if learner.train_iter >= run.max_train_iter else "learner.stop()")
    states.save(run, "end")
    run.sync_normalization()
    # A resumed run may end before an evaluation is due. This evaluation is no part of the saved state, so a run that
    # goes on with a larger budget has the evaluations of one that had it from the start.
    if run.eval_info is None or (evaluates_end and run.evaluated_iter != learner.train_iter):
        run.evaluate()
    learner.call_hook("after_run")
    run.save_result()
