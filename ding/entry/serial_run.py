"""A serial run: its workers and progress, and the rounds in which it trains."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.entry.checks import check_pipeline
from ding.entry.progress import ProgressLine
from ding.entry.run_folder import BEST, RunFolder, append_evaluation, mean_return, write_result
from ding.entry.utils import random_collect
from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.policy.base_policy import Policy
from ding.utils.default_helper import closing, derive_seed
from ding.utils.log_helper import shown
from ding.utils.pytorch_ddp_dist_helper import get_rank
from ding.worker.learner.base_learner import BaseLearner, BatchSource
from ding.worker.learner.checkpoint import NORMALIZATION
from ding.worker.replay_buffer.base_buffer import create_buffer

# Number of rounds without a new item in the buffer and without training after which a run fails.
MAX_IDLE_ROUNDS = 100


@dataclass(slots=True)
class SerialRun:
    """The workers and the progress of a serial run.

    Attributes:
        collector, collector_env, commander: the workers that collect; None in offline training.
        buffer: the replay buffer; None in on-policy and offline training.
        writer: the metric writer; None on ranks other than 0.
        states: the saver of the state of the run; None for no states.
        stop: whether the newest evaluation reached the stop value.
        eval_info: the result of the newest evaluation; None before the first.
        evaluated_iter: the learner's iteration at that evaluation.
        best_return: the best mean return of the evaluations so far.
        idle_evaluations: the number of evaluations since the best mean return.
        idle_rounds: the number of consecutive rounds that neither filled the buffer nor trained the policy.
        last_push_iter: the learner's iteration when the newest round was collected.
        on_evaluation: called with the env steps and the mean return of each evaluation; if it returns True, the
            training ends.
        is_ended: whether `on_evaluation` has returned True.
        further_parts: objects with `state_dict` and `load_state_dict` that a pipeline adds to the state, by name.
    """

    cfg: EasyDict
    policy: Policy
    learner: BaseLearner
    collector: Any
    evaluator: Any
    buffer: Any
    commander: Any
    collector_env: Any
    evaluator_env: Any
    progress: ProgressLine
    writer: Any
    states: Any
    max_train_iter: int
    max_env_step: int
    stop: bool = False
    eval_info: Any = None
    evaluated_iter: int | None = None
    best_return: float = -math.inf
    idle_evaluations: int = 0
    is_starved: bool = False
    idle_rounds: int = 0
    last_push_iter: int = 0
    on_evaluation: Callable[[int, float], bool | None] | None = None
    is_ended: bool = False
    further_parts: dict[str, Any] = field(default_factory=dict)

    @property
    def envstep(self) -> int:
        """Env steps of the training so far."""
        return 0 if self.collector is None else int(self.collector.envstep)

    @property
    def is_over(self) -> bool:
        """Whether a budget is used up."""
        return bool(self.envstep >= self.max_env_step or self.learner.train_iter >= self.max_train_iter)

    @property
    def is_decided(self) -> bool:
        """Whether the evaluations end the training, by the stop value, the patience, or `on_evaluation`.

        The patience is `policy.eval.evaluator.patience`, a number of evaluations; None for no limit.
        """
        patience = self.cfg.policy.eval.evaluator.get("patience")
        return self.stop or self.is_ended or (patience is not None and self.idle_evaluations >= patience)

    def resume(self) -> None:
        """Set up the workers from the learner's checkpoint, if it has loaded one."""
        if self.cfg.policy.learn.get("resume_training", False):
            self.progress.env_steps_before = self.collector.envstep = self.learner.collector_envstep
            if get_rank() == 0 and os.path.exists(os.path.join(self.cfg.exp_name, "ckpt", BEST)):
                for line in RunFolder(self.cfg.exp_name).evaluations():  # only a better checkpoint replaces the best
                    if line["returns"]:
                        self.evaluator.note_best(float(np.mean(line["returns"])))
        state = self.learner.ckpt_extra.get(NORMALIZATION)
        if state:
            self.collector_env.load_normalization(state)

    def sync_normalization(self) -> None:
        """Share the normalization statistics among the collector envs, and add them to the next checkpoint.

        Each rank has its own statistics; the checkpoint has those of rank 0.
        """
        env = self.collector_env
        if isinstance(env, BaseEnvManager):  # a manager of another package has its own way
            env.sync_normalization()
            state = env.normalization_state()
            if state:
                self.learner.ckpt_extra[NORMALIZATION] = state

    def collect_randomly(self, push: Callable[[Any], None]) -> None:
        """Push `policy.random_collect_size` (default 0) samples of a random policy."""
        policy_cfg = self.cfg.policy
        size = policy_cfg.get("random_collect_size", 0)
        if self.buffer is None or not size > 0:
            return
        if policy_cfg.collect.collector.type != "episode":  # else it counts episodes
            policy_cfg = EasyDict(policy_cfg, random_collect_size=min(size, self.max_env_step))
        buffer = SimpleNamespace(push=lambda data, cur_collector_envstep: push(data))
        random_collect(policy_cfg, self.policy, self.collector, self.collector_env, self.commander, buffer)

    def evaluate_if_due(self) -> bool:
        """Evaluate if it is due, and return whether the evaluations end the training."""
        return bool(self.evaluator.should_eval(self.learner.train_iter)) and self.evaluate()

    def evaluate(self) -> bool:
        """Evaluate, record the evaluation, and return `is_decided`."""
        normalize_as_trained(self.evaluator_env, self.learner.ckpt_extra.get(NORMALIZATION))
        train_iter, envstep = self.learner.train_iter, self.envstep
        stop, self.eval_info = self.evaluator.eval(self.learner.save_checkpoint, train_iter, envstep)
        if get_rank() == 0:
            append_evaluation(self.cfg.exp_name, self.cfg.seed, train_iter, envstep, self.evaluator, self.eval_info)
        if self.writer is not None:
            self.writer.flush()
        self.evaluated_iter, reached = train_iter, mean_return(self.eval_info)
        last, learner, averages = self.evaluator.last_eval, self.learner, {}
        mean_length = None if last is None or not len(last.lengths) else float(np.mean(last.lengths))
        success_rate = None if last is None else last.success_rate
        if learner.is_monitor and learner.train_iter > 0:
            averages = {name: learner.monitor.avg[name]() for name in learner.policy.monitor_vars()}
        self.progress.evaluated(reached, train_iter, envstep, mean_length, averages, success_rate)
        self.stop = bool(stop)
        if reached > self.best_return:
            self.best_return, self.idle_evaluations = reached, 0
        elif not math.isnan(reached):
            self.idle_evaluations += 1
        self.is_ended = self.on_evaluation is not None and bool(self.on_evaluation(envstep, reached))
        if self.is_decided and not self.stop and not self.is_ended:
            self.progress.say(f"No better mean return in {self.idle_evaluations} evaluations: the training ends.")
        return self.is_decided

    def push(self, data: Any) -> None:
        """Push the data of a round to the buffer.

        Raises:
            RuntimeError: the buffer accepts nothing in `MAX_IDLE_ROUNDS` consecutive rounds without training.
        """
        buffer, train_iter = self.buffer, self.learner.train_iter
        accepted = buffer.push(data, cur_collector_envstep=self.collector.envstep)
        has_accepted = buffer.count() > 0 if accepted is None else accepted > 0  # users' buffers may return None
        self.idle_rounds = 0 if has_accepted or train_iter != self.last_push_iter else self.idle_rounds + 1
        self.last_push_iter = train_iter
        if self.idle_rounds >= MAX_IDLE_ROUNDS:
            kinds = ", ".join(sorted({type(item).__name__ for item in data}))
            raise RuntimeError(
                f"the replay buffer ({type(buffer).__name__}) accepts none of the collected data, which are {kinds}: "
                "look at policy.collect.collector, _get_train_sample and the limits in policy.other.replay_buffer"
            )

    def add_buffer(self, stack: ExitStack, name: str, **settings: Any) -> Any:
        """Return a further replay buffer, which `stack` closes, and whose state is saved and resumed with the run.

        Args:
            name: its name in the state and in logs.
            settings: changes to `policy.other.replay_buffer`.
        """
        section = EasyDict({**copy.deepcopy(self.cfg.policy.other.replay_buffer), **settings})
        buffer = create_buffer(section, tb_logger=self.writer, exp_name=self.cfg.exp_name, instance_name=name)
        self.further_parts[name] = closing(stack, buffer)
        return buffer

    def save_result(self) -> None:
        """Write the result and print it."""
        if get_rank() == 0:
            cfg, train_iter, reached = self.cfg, self.learner.train_iter, mean_return(self.eval_info)
            write_result(cfg.exp_name, self.stop, self.envstep, train_iter, self.eval_info)
            self.progress.finish(
                self.stop, cfg.env.stop_value, train_iter, self.envstep, reached, cfg.exp_name, self.evaluated_iter
            )


def env_name(env_cfg: Mapping[str, Any], manager: Any = None) -> str:
    """Return the display name of the env of a config; a manager may have a reference to the env."""
    env = getattr(manager, "env_ref", None)
    name = env_cfg.get("env_id") or (env_cfg.get("type", "an env") if env is None else env)
    return shown(name, str)


def normalize_as_trained(env: Any, state: Any) -> None:
    """Let the envs of a manager normalize with the fixed statistics `state` of a training, if any."""
    if state and isinstance(env, BaseEnvManager) and not env.closed:
        env.load_normalization(state, is_frozen=True)


def set_offline_stats(env_cfg: Mapping[str, Any], stats: Mapping[str, Any] | None) -> bool:
    """Write `stats`, the `mean` and `std` of a data set, to `env.norm_obs.offline_stats` if the env uses them.

    Statistics in the config are kept if `stats` has none.

    Returns:
        Whether the env uses the statistics.
    """
    norm = env_cfg.get("norm_obs") or {}
    section = norm.get("offline_stats") or {}
    if not (norm.get("use_norm") and section.get("use_offline_stats")):
        return False
    section.update({key: np.asarray(value) for key, value in (stats or {}).items()})
    return True


def evaluation_seed(seed: int) -> int:
    """Return the seed of the evaluation envs of a run with `seed`; collector envs never use it."""
    if seed < 0:
        raise ValueError(f"seed = {seed} is not allowed; it must be 0 or more")
    return derive_seed(seed, 1)


def rank_seed(seed: int, rank: int) -> int:
    """Return the seed of a rank, so that all ranks play different episodes; on rank 0 it is `seed`."""
    return seed if rank == 0 else derive_seed(seed, 2, rank)


# --- the rounds in which a run trains ---


class Rounds(BatchSource):
    """The part that differs from one pipeline to another: the workers, and the source of the batches of its rounds.

    Attributes:
        run: the run, after its workers are built.
        dynamic_seed: whether each episode has a new seed; None for the default of the collector envs.
        collects, has_buffer: whether there are workers that collect, and a replay buffer.
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
