"""The rollout loop under every collector and evaluator: ready obs -> act -> env step -> record.

A collector or evaluator is the loop with an actor, which acts, a quota, which selects the envs that step and ends the
rollout, and listeners, which record. A round is a block: one array of observations, one of actions, one step of all
envs. Rounds are kept until the quota wants to know what came of them, usually once a collect; then they are checked and
reported together. Abnormal steps and timing are handled here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import Any

import numpy as np

from ding.envs.env_manager.block import BlockStep, DictBlocks, Ready, overrides_dicts
from ding.envs.env_manager.normalization import Normalization
from ding.torch_utils.network.fast_modules import fixed_modules
from ding.torch_utils.thread_count import fitting_count, threads
from ding.utils.data.samples import IntArray, Node, columns_of, map_node, node_rows
from ding.utils.object_state import SavedAttributes
from ding.worker.collector.actor import Actor
from ding.worker.collector.env_round import (
    MANY_BYTES,
    Batch,
    Ended,
    PolicyOutput,
    RoundBlock,
    Steps,
    are_finite,
    by_env,
    check_finite,
    is_finite_node,
    is_same,
    pairs_of_same,
)


class Quota:
    """The interface of quotas, which decide which envs step and when a rollout ends.

    Attributes:
        choose: returns those of the ready envs that step in a round; for all of them, the very list. None for always
            all.
    """

    choose: Callable[[list[int]], list[int]] | None = None

    def is_due(self) -> bool:
        """Return whether the rounds so far have to be reported, and `is_filled` asked; called between rounds."""
        return True

    def is_filled(self) -> bool:
        """Return whether the rollout may end; what was gathered may be made into samples first."""
        raise NotImplementedError


class RolloutListener(SavedAttributes):
    """The interface of what records a rollout. The methods do nothing here; override those that are needed.

    Its state between two runs is that of the attributes in `_saved`.
    """

    def on_round(self, steps: Steps) -> None:
        """Handle the normal steps of a round at once, before they are checked; `on_rounds` follows."""

    def on_rounds(self, rounds: RoundBlock) -> None:
        """Handle the normal steps of rounds: one, unless the quota can wait, see `Quota.is_due`."""
        for steps in rounds.steps:
            self.on_steps(steps)

    def on_steps(self, steps: Steps) -> None:
        """Handle the normal steps of a round; see `on_rounds`."""

    def on_ends(self, ended: Ended) -> None:
        """Handle the episodes that ended in rounds, after every `on_rounds` and before the policy is reset."""

    def on_abnormal(self, env_id: int) -> None:
        """Handle that an env broke off: its running episode is void, and the env has been reset."""

    def on_restart(self, env_id: int) -> None:
        """Handle that others have reset or stepped an env since the last run: its running episode ended unfinished."""

    def on_interrupt(self) -> None:
        """Handle that an exception ended a round: unfinished data may have a gap."""


class CustomManagerBlocks(DictBlocks):
    """An env manager of another class, or with overridden methods, of which only the documented interface is used.

    If it does not number its episodes, an env that shows at the beginning of a run something else than it has returned
    last is taken to have begun another one.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._numbers = env if isinstance(env, DictBlocks) else None  # tells the numbers of episodes
        self.continues = True  # until an env shows something else, from then on no observations are shared
        self.normalization = None if self._numbers is None else self._numbers.normalization
        self._returned: dict[int, Any] = {}  # the last observations, by env in mid-episode
        self._episodes: IntArray = np.zeros(env.env_num, np.int64)
        self.touched: IntArray = self._episodes if self._numbers is None else self._numbers.touched

    @property
    def ready_obs(self) -> Mapping[int, Any]:
        ready_obs: Mapping[int, Any] = self._env.ready_obs
        return ready_obs

    def step(self, actions: Mapping[int, Any]) -> Mapping[int, Any]:
        timesteps: Mapping[int, Any] = self._env.step(actions)
        return timesteps

    def wait_another(self) -> bool:
        wait = getattr(self._env, "wait_another", None)  # not documented
        return wait is not None and bool(wait())

    @property
    def episodes(self) -> IntArray:
        """The numbers of the episodes: the manager's, or else those counted here."""
        return self._episodes if self._numbers is None else self._numbers.episodes

    def begin(self, is_wide: bool = False) -> None:
        shown = self.ready_obs if self._returned else {}
        moved = [i for i, obs in shown.items() if i in self._returned and not is_same(self._returned[i], obs)]
        self._episodes[moved] += 1
        for env_id in moved:
            del self._returned[env_id]

    def end(self) -> None:
        """Do nothing: the envs were not taken."""

    def ready_block(self, env_ids: Sequence[int] | None = None) -> Ready:
        ready = super().ready_block(env_ids)
        shown = zip(ready.env_ids, node_rows(ready.obs), strict=True)
        self.continues = self.continues and all(is_same(self._returned.get(env_id, obs), obs) for env_id, obs in shown)
        return ready

    def act(self, actions: Sequence[Any], env_ids: list[int]) -> BlockStep:
        step = super().act(actions, env_ids)
        self._returned.update(zip(step.env_ids, node_rows(step.obs), strict=True))
        for env_id in step.ids[step.ends].tolist():
            del self._returned[env_id]
        return step

    def _ready_after(self, step: BlockStep) -> None:
        return None  # it is asked for anyway


def _part_of(ready: Ready, env_ids: list[int]) -> Ready:
    """Return the part of `ready` that belongs to these envs, in this order."""
    place = {env_id: row for row, env_id in enumerate(ready.env_ids)}
    rows = np.array([place[env_id] for env_id in env_ids])
    obs = map_node(lambda column: column.take(rows).compact(), ready.obs)
    return Ready(env_ids, ready.ids[rows], obs)


def is_in_blocks(env: Any) -> bool:
    """Return whether an env manager may be stepped in blocks: its documented methods are not overridden."""
    return isinstance(env, DictBlocks) and not overrides_dicts(env)


class Rollout(SavedAttributes):
    """The loop that steps an env manager with an actor and reports to listeners.

    Args:
        env: a launched env manager.
        actor: chooses the actions; the attribute `actor` may be set between runs, to call the policy in another way.
        listeners: called for each round, in this order.
        info: called with a line of text for each abnormal step.
    """

    _saved = ("_lengths", "_seconds", "_episodes", "_listeners")

    def __init__(
        self,
        env: Any,
        actor: Actor,
        listeners: Sequence[RolloutListener],
        *,
        info: Callable[[str], None] | None = None,
    ) -> None:
        self._env = env
        self._blocks: Any = env if is_in_blocks(env) else CustomManagerBlocks(env)
        self._normalization: Normalization | None = self._blocks.normalization
        self._info = info
        self._ready: Ready | None = None  # what the envs show, if it is known
        # The observations returned last, which are finite: as the envs show them, and as they are recorded.
        self._shown: Node = None
        self._last: Batch | None = None
        # Observations and outputs of steps without an answer yet; an asynchronous manager answers in later rounds.
        self._pending: dict[int, tuple[Batch, PolicyOutput]] = {}
        self._open: list[Steps] = []  # rounds of the same envs that were not reported yet
        self._most_open = 0  # after which they are, as their arrays take memory; 0 before the first
        # Of the running episode of each env, the steps, and its share of the duration of the rounds.
        count = env.env_num
        self._every = list(range(count))
        self._lengths: IntArray = np.zeros(count, np.int64)
        self._seconds = np.zeros(count)
        # Of each env, the number of its episode and `DictBlocks.touched`, as of the end of the last run.
        self._episodes: IntArray = np.zeros(count, np.int64)
        self._touched: IntArray = np.zeros(count, np.int64)
        self._leaves_gap = False  # whether an exception leaves a gap: between a step of the envs and its record
        self._is_wide = False  # whether all envs are acted in in each round of the run, see `DictBlocks.begin`
        self._use(actor, listeners)

    def _use(self, actor: Actor, listeners: Sequence[RolloutListener]) -> None:
        self.actor = actor
        self._threads = fitting_count(actor.model)
        self._listeners = tuple(listeners)
        base = RolloutListener  # only those that override a method
        self._of_round = tuple(each.on_round for each in listeners if type(each).on_round is not base.on_round)
        self._of_rounds = tuple(
            each.on_rounds
            for each in listeners
            if type(each).on_rounds is not base.on_rounds or type(each).on_steps is not base.on_steps
        )
        self._of_ends = tuple(each.on_ends for each in listeners if type(each).on_ends is not base.on_ends)

    def replace(self, actor: Actor, listeners: Sequence[RolloutListener]) -> None:
        """Use another actor and listeners: the episodes continue, but for those of envs that have yet to answer."""
        self._use(actor, listeners)
        for env_id in sorted(self._pending):
            self.restart(env_id)

    def restart(self, env_id: int) -> None:
        """Reset this env and the policy for it; its running episode is void."""
        self._reset_env(env_id)
        self.actor.reset([env_id])
        self.void(env_id)

    def _reset_env(self, env_id: int) -> None:
        was_owned = self._blocks.is_owned
        if was_owned:
            self._blocks.end()
        try:
            self._env.reset({env_id: None})
        finally:
            self._is_wide = False
            if was_owned:
                self._blocks.begin()

    def void(self, env_id: int) -> None:
        """Declare the running episode of this env void."""
        self._report()
        for listener in self._listeners:
            listener.on_abnormal(env_id)
        self._forget(env_id)

    def state_dict(self) -> dict[str, Any]:
        """Return the unfinished episodes between two runs, in plain values, with the states of the listeners.

        What others did to the envs since the last run is reported to the listeners first.
        """
        self._note_others()
        return {**super().state_dict(), "unanswered": sorted(self._pending)}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict`; return why that is not exact, a sentence for each reason.

        An episode that does not continue, because its env was reset, ends as if another caller had reset it.

        Raises:
            ValueError: the state comes from other listeners, or from another number of envs.
        """
        if len(state["listeners"]) != len(self._listeners):
            raise ValueError(f"the state is of {len(state['listeners'])} listeners, not of {len(self._listeners)}")
        if len(state["lengths"]) != len(self._lengths):
            raise ValueError(f"the state is of {len(state['lengths'])} envs, but there are {len(self._lengths)}")
        self._ready = self._last = None
        self._pending.clear()
        problems = super().load_state_dict(state)
        restarted = {*state["unanswered"], *self._every}
        if isinstance(self._env, DictBlocks):
            is_other = (self._env.episodes != self._episodes) & (self._lengths > 0)
            restarted = {*state["unanswered"], *np.flatnonzero(is_other).tolist()}
        for env_id in sorted(restarted):
            self._restarted(env_id)
        self._touched[:] = self._blocks.touched
        return problems

    def run(self, quota: Quota, policy_kwargs: Mapping[str, Any], before_act: Callable[[], None] | None = None) -> None:
        """Step rounds until `quota` is filled; a round is always finished.

        Args:
            policy_kwargs: keyword arguments for the policy's forward.
            before_act: called once a round, when the envs are ready.

        Raises:
            RuntimeError: no env is ready to be stepped for the quota, or another rollout steps the envs.
            FloatingPointError: an env or the policy returned NaN or an infinity.
        """
        blocks = self._blocks
        is_wide = (
            blocks.can_idle
            and self.actor.is_stateless
            and quota.choose is None
            and before_act is None
            and self._normalization is None
        )
        if is_wide != self._is_wide:
            self._ready, self._is_wide = None, is_wide  # other envs are ready for it
        blocks.begin(is_wide)
        try:
            self._note_others()
            with threads(self._threads), fixed_modules() if self.actor.keeps_layers else nullcontext():
                while True:
                    if quota.is_due():
                        self._report()
                        if quota.is_filled():
                            break
                    self._round(quota, policy_kwargs, before_act)
        except BaseException:
            try:
                self._report()  # an observation that is not finite is why a policy returned what it has
            finally:
                if self._leaves_gap:
                    self._interrupt()
            raise
        finally:
            blocks.end()
            self._episodes[:], self._touched[:] = blocks.episodes, blocks.touched

    def _note_others(self) -> None:
        """Report to the listeners which envs others have reset or stepped since the last run."""
        blocks = self._blocks
        episodes = blocks.episodes
        is_touched = (episodes != self._episodes) | (blocks.touched != self._touched)
        if not is_touched.any():
            return
        self._ready = None
        for env_id in np.flatnonzero(is_touched).tolist():
            if self._lengths[env_id]:
                self._restarted(env_id)
            else:  # its first observation is another one
                for listener in self._listeners:
                    listener.on_restart(env_id)
        self._episodes[:], self._touched[:] = episodes, blocks.touched

    def _interrupt(self) -> None:
        """Handle an exception: the next observations may not follow the last step that was recorded."""
        self._leaves_gap = False
        self._ready = self._last = None
        for listener in self._listeners:
            listener.on_interrupt()

    def _round(self, quota: Quota, kwargs: Mapping[str, Any], before_act: Callable[[], None] | None) -> None:
        start = perf_counter()
        acting = self._look() if self._ready is None else self._ready
        env_ids = acting.env_ids
        chosen = env_ids if quota.choose is None else quota.choose(env_ids)
        if not chosen:
            self._wait(start)
            return
        if before_act is not None:
            before_act()
        if chosen is not env_ids:
            acting = _part_of(acting, chosen)
        obs = self._last
        normalization = self._normalization
        if obs is None or self._shown is not acting.obs:  # some were not returned by the last step
            check_finite(acting.env_ids, self._step_of, acting.obs)
            obs = Batch(acting.env_ids, normalization.first_scaled(acting.obs) if normalization else acting.obs)
        if normalization is not None:
            normalization.gather(acting.obs)
        output, actions = self.actor.act(obs, kwargs)
        self._leaves_gap = True
        step: BlockStep = self._blocks.act(actions, obs.env_ids)
        self._ready = step.ready if chosen is env_ids else None  # else there are others
        self._take_in(step, obs, output, start)
        self._leaves_gap = False

    def _look(self) -> Ready:
        """Ask the env manager what its envs show."""
        ready: Ready = self._blocks.ready_block()
        for env_id in [env_id for env_id in ready.env_ids if env_id in self._pending]:
            self._restarted(env_id)  # its answer is lost
        self._ready = ready
        return ready

    def _restarted(self, env_id: int) -> None:
        self._report()
        self.actor.reset([env_id])
        for listener in self._listeners:
            listener.on_restart(env_id)
        self._forget(env_id)

    def _wait(self, start: float) -> None:
        """Wait for envs that have yet to answer or that begin an episode, as the quota selects none that is ready."""
        self._ready = None
        if self._pending:
            self._leaves_gap = True
            step: BlockStep = self._blocks.act([], [])
            if not step.env_ids:
                self._pending.clear()  # another caller has reset these envs
            self._take_in(step, None, {}, start)
            self._leaves_gap = False
            return
        if not self._blocks.wait_another():
            raise RuntimeError(
                "no env is ready to step: the env manager is closed, or its envs have used up their episodes "
                f"(env.manager.episode_num); its state: closed={getattr(self._env, 'closed', '?')}, "
                f"done={getattr(self._env, 'done', '?')}"
            )

    def _take_in(self, step: BlockStep, obs: Batch | None, output: PolicyOutput, start: float) -> None:
        if obs is None or self._pending or step.env_ids != obs.env_ids:
            step, obs, output = self._answered(step, obs, output)
        if step.abnormal:
            step = self._without_abnormal(step, step.abnormal)
            obs = obs.of_envs(step.env_ids)
        if not step.env_ids:
            return
        self._shown = step.obs
        if self._normalization is not None:
            check_finite(step.env_ids, lambda env_id: self._step_of(env_id) + 1, step.obs, step.reward)
            step.obs = self._normalization.scaled(step.obs)
            step.reward = self._normalization.scaled_rewards(step.reward, step.ids, step.ends)
        if self._open and step.env_ids is not self._open[0].env_ids and step.env_ids != self._open[0].env_ids:
            self._report()
        self._last = next_obs = Batch(step.env_ids, step.obs)
        seconds = (perf_counter() - start) / len(step.env_ids)
        steps = Steps(step, obs, output, next_obs, self._blocks.continues, seconds)
        for on_round in self._of_round:
            on_round(steps)
        self._open.append(steps)
        if not self._most_open:
            size = len(step.env_ids) * sum(column.itemsize for column in columns_of(step.obs))
            self._most_open = max(1, MANY_BYTES // max(size, 1024))
        resets = step.any_ends and not self.actor.is_stateless
        if resets or len(self._open) >= self._most_open or (step.any_ends and step.returns is None):
            self._report()  # the infos of an end are read before the env may write into them again
        if resets:
            self.actor.reset(step.ids[step.ends].tolist())

    def _report(self) -> None:
        """Check the rounds that were kept, and report them to the listeners.

        Raises:
            FloatingPointError: an env returned NaN or an infinity; only the rounds before that are reported.
        """
        kept, self._open = self._open, []
        if not kept:
            return
        count = len(kept)
        if not are_finite([node for steps in kept for node in (steps.next_obs.node, steps.reward)]):
            is_wrong = [not (is_finite_node(steps.next_obs.node) and is_finite_node(steps.reward)) for steps in kept]
            count = is_wrong.index(True) if True in is_wrong else count
        before, self._leaves_gap = self._leaves_gap, True
        if count:
            rounds = RoundBlock(kept[:count])
            for on_rounds in self._of_rounds:
                on_rounds(rounds)
            ended = self._count(rounds)
            if ended is not None:
                for on_ends in self._of_ends:
                    on_ends(ended)
        if count < len(kept):
            wrong, step_of = kept[count], self._lengths + 1
            check_finite(wrong.env_ids, step_of.__getitem__, wrong.next_obs.node, wrong.reward)
        self._leaves_gap = before

    def _count(self, rounds: RoundBlock) -> Ended | None:
        """Count steps and seconds of T rounds of K envs; return the episodes that ended in them, if any."""
        ids, active, seconds = rounds.ids, rounds.active, np.array([[steps.seconds] for steps in rounds.steps])
        made = np.arange(1, len(seconds) + 1)[:, None]
        if active is not None:
            made, seconds = active.cumsum(axis=0), active * seconds
        lengths = made + self._lengths[ids]  # [T, K], from the beginning of the first episode on
        seconds = seconds.cumsum(axis=0) + self._seconds[ids]
        self._lengths[ids], self._seconds[ids] = lengths[-1], seconds[-1]
        if not rounds.any_ends:
            return None
        at, rows = rounds.ends.nonzero()
        earlier, later = pairs = pairs_of_same(rows)
        of_episodes = []
        for known, so_far in ((self._lengths, lengths[at, rows]), (self._seconds, seconds[at, rows])):
            own = so_far.copy()
            own[later] -= so_far[earlier]
            last = np.zeros(len(ids), so_far.dtype)
            last[rows] = so_far  # that of the last end of each env
            known[ids] -= last
            of_episodes.append(own)
        steps, own_seconds = of_episodes
        return Ended(rounds, at, rows, ids[rows], steps, own_seconds, pairs)

    def _step_of(self, env_id: int) -> int:
        """Return the number of steps of the running episode of an env."""
        self._report()
        return int(self._lengths[env_id])

    def _answered(
        self, step: BlockStep, obs: Batch | None, output: PolicyOutput
    ) -> tuple[BlockStep, Batch, PolicyOutput]:
        """Return the steps that were asked for, the observations on which the policy acted, and its outputs for them.

        Args:
            obs, output: of the envs that were acted in now, of which some may answer in later rounds.
        """
        if obs is not None:
            self._pending.update(dict.fromkeys(obs.env_ids, (obs, output)))
        asked = [row for row, env_id in enumerate(step.env_ids) if env_id in self._pending]
        step = step if len(asked) == len(step.env_ids) else step.of_rows(asked)
        env_ids = step.env_ids
        answered = [self._pending.pop(env_id) for env_id in env_ids]
        if not answered:
            return step, Batch.copied([], [None]), {}
        first, output = answered[0]
        if all(obs is first for obs, _ in answered):
            return step, first.of_envs(env_ids), output
        sources = list(zip(env_ids, answered, strict=True))
        items = [obs.rows[obs.env_ids.index(env_id)] for env_id, (obs, _) in sources]
        outputs = {id(output): by_env(output) for _, output in answered}
        by_id = {env_id: outputs[id(output)][env_id] for env_id, (_, output) in sources}
        return step, Batch.copied(env_ids, items), by_id

    def _without_abnormal(self, step: BlockStep, broken: Sequence[int]) -> BlockStep:
        """Restart the envs whose step is abnormal, and return the steps of the others."""
        for row in broken:
            env_id = step.env_ids[row]
            self.restart(env_id)
            if self._info is not None:
                self._info(f"env {env_id} returned an abnormal step; it was reset and its running episode dropped")
        self._ready = None
        idle = () if step.active is None else np.flatnonzero(~step.active).tolist()
        return step.of_rows([row for row in range(len(step.env_ids)) if row not in broken and row not in idle])

    def _forget(self, env_id: int) -> None:
        """Forget the running episode of this env; its next observation begins another."""
        self._pending.pop(env_id, None)
        if self._normalization is not None:
            self._normalization.begin_episode(env_id)
        self._lengths[env_id], self._seconds[env_id] = 0, 0.0
