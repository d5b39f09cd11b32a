"""The rollout loop under every collector and evaluator: ready obs -> act -> env step -> record.

A collector or evaluator is the loop with an actor, which acts, a quota, which selects the envs that step and ends the
rollout, and listeners, which record. A round is a block: one array of observations, one of actions, one step of all
envs. Abnormal steps and timing are handled here, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from ding.envs.env_manager.block import BlockStep, DictBlocks, Ready, overrides_dicts
from ding.envs.env_manager.normalization import Normalization
from ding.torch_utils.thread_count import fitting_count, threads
from ding.utils.data.samples import IntArray, Node, map_node, node_rows
from ding.utils.object_state import SavedAttributes
from ding.utils.time_helper import PULSE
from ding.worker.collector.actor import Actor
from ding.worker.collector.env_round import Batch, Ended, PolicyOutput, Steps, by_env, check_finite, is_same

# Rounds in a row that other callers may spoil.
MAX_LOST_ROUNDS = 1000


class Quota(Protocol):
    """The interface of quotas, which decide which envs step and when a rollout ends."""

    def is_filled(self) -> bool:
        """Return whether the rollout may end; called between rounds."""

    def choose(self, env_ids: list[int]) -> list[int]:
        """Return those of the ready envs that step in this round; for all of them, the very list `env_ids`."""


class RolloutListener(SavedAttributes):
    """The interface of what records a rollout. The methods do nothing here; override those that are needed.

    Its state between two rounds is that of the attributes in `_saved`.
    """

    def on_steps(self, steps: Steps) -> None:
        """Handle the normal steps of a round."""

    def on_ends(self, ended: Ended) -> None:
        """Handle the episodes that ended in a round, after every `on_steps` and before the policy is reset."""

    def on_abnormal(self, env_id: int) -> None:
        """Handle that an env broke off: its running episode is void, and the env has been reset."""

    def on_gap(self, env_id: int) -> None:
        """Handle that an env continues its episode, but shows another observation than it returned."""

    def on_restart(self, env_id: int) -> None:
        """Handle that another caller has reset an env: its running episode ended with its last step, unfinished."""

    def on_interrupt(self) -> None:
        """Handle that an exception ended a round: unfinished data may have a gap."""


class CustomManagerBlocks(DictBlocks):
    """An env manager of another class, or with overridden methods, of which only the documented interface is used.

    Calls of others to an env are recognised by what it shows: if that is not the observation that it returned last, it
    has been moved; between two runs of a rollout, this means that it has begun another episode.
    """

    version = math.nan  # equal to nothing that was known before

    def __init__(self, env: Any) -> None:
        self._env = env
        self._numbers = env if isinstance(env, DictBlocks) else None  # tells the numbers of episodes
        self.normalization = None if self._numbers is None else self._numbers.normalization
        self._returned: dict[int, Any] = {}  # the last observations, by env in mid-episode
        self._episodes: IntArray = np.zeros(env.env_num, np.int64)
        self.moves = np.zeros(env.env_num, np.int64)
        self.is_first_look = True  # whether the next look is the first of a run

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

    def episodes_of(self, env_ids: Sequence[int]) -> IntArray:
        """Return the numbers of the episodes: the manager's, or else those counted here."""
        return self._episodes[list(env_ids)] if self._numbers is None else self._numbers.episodes_of(env_ids)

    def ready_block(self, env_ids: Sequence[int] | None = None) -> Ready:
        ready = super().ready_block(env_ids)
        if self._returned:
            for env_id, shown in zip(ready.env_ids, node_rows(ready.obs), strict=True):
                if env_id in self._returned and not is_same(self._returned[env_id], shown):
                    self._returned[env_id] = shown
                    self.moves[env_id] += 1
                    self._episodes[env_id] += self.is_first_look
        self.is_first_look = False
        return ready._replace(episodes=self.episodes_of(ready.env_ids))

    def leave(self) -> None:
        """Count the moves of other callers up to now; from now on the envs are not stepped through this object."""
        if self._returned:
            self.ready_block()
            self._returned.clear()

    def step_block(self, actions: Sequence[Any], env_ids: list[int]) -> BlockStep:
        step = super().step_block(actions, env_ids)
        self.moves[env_ids] += 1
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
    return Ready(env_ids, ready.ids[rows], obs, ready.episodes[rows])


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

    _saved = ("_steps", "_seconds", "_episodes", "_listeners")

    def __init__(
        self,
        env: Any,
        actor: Actor,
        listeners: Sequence[RolloutListener],
        *,
        info: Callable[[str], None] | None = None,
    ) -> None:
        self._env = env
        self._foreign = CustomManagerBlocks(env)
        self._blocks: Any = self._foreign
        self._normalization: Normalization | None = self._foreign.normalization
        self._info = info
        self._ready: Ready | None = None  # what the envs show, as of `_version` of the env manager
        self._version: Any = None
        self._stepped = 0  # envs, in this run
        # The observations returned last, which are finite: as the envs show them, and as they are recorded.
        self._shown: Node = None
        self._last: Batch | None = None
        self._acted: tuple[Batch, PolicyOutput] | None = None
        self._lost_rounds = 0  # in a row, in which other callers moved all envs while the policy acted
        # Observations and outputs of steps without an answer yet; an asynchronous manager answers in later rounds.
        self._pending: dict[int, tuple[Batch, PolicyOutput]] = {}
        self._stale: set[int] = set()  # envs that have yet to answer an actor that was replaced
        # Of each env: steps and seconds of the running episode, its number, and the moves that are known, see
        # `DictBlocks.moves`; the latter are out of date for envs that begin an episode.
        count = env.env_num
        self._every = list(range(count))
        self._steps: IntArray = np.zeros(count, np.int64)
        self._seconds = np.zeros(count)
        self._episodes: IntArray = np.zeros(count, np.int64)
        self._moves: IntArray = np.zeros(count, np.int64)
        self._use(actor, listeners)

    def _use(self, actor: Actor, listeners: Sequence[RolloutListener]) -> None:
        self.actor = actor
        self._threads = fitting_count(actor.model)
        self._listeners = tuple(listeners)
        # Only those that override the method.
        self._of_steps = tuple(
            each.on_steps for each in listeners if type(each).on_steps is not RolloutListener.on_steps
        )
        self._of_ends = tuple(each.on_ends for each in listeners if type(each).on_ends is not RolloutListener.on_ends)

    def replace(self, actor: Actor, listeners: Sequence[RolloutListener]) -> None:
        """Use another actor and listeners: the episodes continue, but steps that the former actor began are dropped."""
        self._use(actor, listeners)
        stale = {*self._stale, *self._pending}
        self._forget_actions()
        self._stale = stale

    def restart(self, env_id: int) -> None:
        """Reset this env and the policy for it; its running episode is void."""
        self._env.reset({env_id: None})
        self.actor.reset([env_id])
        self.void(env_id)

    def void(self, env_id: int) -> None:
        """Declare the running episode of this env void."""
        for listener in self._listeners:
            listener.on_abnormal(env_id)
        self._forget(env_id)

    def under_way(self) -> dict[int, tuple[Any, Any, int, float]]:
        """Return `{env_id: (observation acted on last, output of the policy, steps, seconds)}` of the running episodes.

        After `load_state_dict` the first two are None until an env is acted on.
        """
        acted: dict[int, tuple[Any, Any]] = {}
        if self._acted is not None:
            obs, output = self._acted[0], by_env(self._acted[1])
            acted = {env_id: (row, output[env_id]) for env_id, row in zip(obs.env_ids, obs.rows, strict=True)}
        return {
            env_id: (*acted.get(env_id, (None, None)), int(self._steps[env_id]), float(self._seconds[env_id]))
            for env_id in np.flatnonzero(self._steps).tolist()
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the unfinished episodes between two rounds, in plain values, with the states of the listeners.

        Moves of other callers since the last round are reported to the listeners first.
        """
        self._choose_blocks()
        if self._blocks.version != self._version:
            self._look()
        return {**super().state_dict(), "unanswered": sorted({*self._pending, *self._stale})}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict`; return why that is not exact, a sentence for each reason.

        An episode that does not continue, because its env was reset, ends as if another caller had reset it.

        Raises:
            ValueError: the state comes from other listeners, or from another number of envs.
        """
        if len(state["listeners"]["items"]) != len(self._listeners):
            raise ValueError(
                f"the state is of {len(state['listeners']['items'])} listeners, not of {len(self._listeners)}"
            )
        if len(state["steps"]) != len(self._steps):
            raise ValueError(f"the state is of {len(state['steps'])} envs, but there are {len(self._steps)}")
        self._ready = self._last = self._acted = None
        self._forget_actions()
        problems = super().load_state_dict(state)
        restarted = {*state["unanswered"], *self._every}
        if isinstance(self._env, DictBlocks):
            is_other = (self._env.episodes_of(self._every) != self._episodes) & (self._steps > 0)
            restarted = {*state["unanswered"], *np.flatnonzero(is_other).tolist()}
        for env_id in sorted(restarted):
            self._restarted(env_id)
        self._choose_blocks()
        self._version = self._blocks.version
        self._moves[:] = self._blocks.moves
        return problems

    def run(self, quota: Quota, policy_kwargs: Mapping[str, Any], before_act: Callable[[], None] | None = None) -> None:
        """Step rounds until `quota` is filled; a round is always finished.

        Args:
            policy_kwargs: keyword arguments for the policy's forward.
            before_act: called once a round, when the envs are ready.

        Raises:
            RuntimeError: no env is ready to be stepped for the quota.
            FloatingPointError: an env or the policy returned NaN or an infinity.
        """
        self._choose_blocks()
        self._foreign.is_first_look = True
        with threads(self._threads):
            self._stepped = 0
            while not quota.is_filled():
                self._round(quota, policy_kwargs, before_act)
                if perf_counter() > PULSE.due:
                    PULSE.beat(self._stepped)

    def _choose_blocks(self) -> None:
        """Step the env manager itself in blocks unless its documented methods are overridden, which may change."""
        blocks = self._env if is_in_blocks(self._env) else self._foreign
        if blocks is not self._blocks:
            self._foreign.leave()
            self._moves += blocks.moves - self._blocks.moves
            self._blocks = blocks

    def _forget_actions(self) -> None:
        """Forget the actions that have no answer yet; their steps are not recorded."""
        self._pending.clear()
        self._stale.clear()

    def _interrupt(self) -> None:
        """Handle an exception: the next observations may not follow the last step that was recorded."""
        self._ready = self._last = None
        for listener in self._listeners:
            listener.on_interrupt()

    def _round(self, quota: Quota, kwargs: Mapping[str, Any], before_act: Callable[[], None] | None) -> None:
        start = perf_counter()
        ready = self._ready
        if ready is None or self._blocks.version != self._version:
            ready = self._look()
        chosen = quota.choose(ready.env_ids)
        if not chosen:
            self._wait(start)
            return
        if before_act is not None:
            before_act()
        acting = ready if chosen is ready.env_ids else _part_of(ready, chosen)
        obs = self._obs_of(acting)
        self._episodes[acting.ids] = acting.episodes
        np.copyto(self._moves, self._blocks.moves)
        self._moves[acting.ids] += 1
        output, actions = self.actor.act(obs, kwargs)
        self._acted = obs, output
        if self._blocks.version != self._version:
            rows = self._rows_to_step(acting)
            if len(rows) < len(chosen):
                obs = obs.of_envs([chosen[row] for row in rows])
                actions = [actions[row] for row in rows]
                chosen = obs.env_ids
        if chosen:
            self._lost_rounds = 0
            self._stepped += len(chosen)
            self._step(obs, output, actions, start)
        if chosen is not ready.env_ids:
            self._ready = None  # there are others

    def _obs_of(self, acting: Ready) -> Batch:
        """Return the observations to act on, normalized if they are to be, and count them."""
        obs, normalization = self._last, self._normalization
        if obs is None or self._shown is not acting.obs or obs.env_ids != acting.env_ids:
            check_finite("the observation", acting.obs, acting.env_ids, self._steps)
            obs = Batch(acting.env_ids, normalization.first_scaled(acting.obs) if normalization else acting.obs)
        if normalization is not None:
            normalization.gather(acting.obs)
        return obs

    def _rows_to_step(self, acting: Ready) -> list[int]:
        """Return the rows of the envs that still show what the policy acted on; report the others, which were moved.

        If only the documented interface of the env manager is used, this may go unnoticed.

        Raises:
            RuntimeError: others have moved all envs in each of `MAX_LOST_ROUNDS` rounds.
        """
        blocks, ids = self._blocks, acting.ids
        if blocks is self._foreign:
            is_moved = blocks.episodes_of(acting.env_ids) != acting.episodes
        else:
            is_moved = blocks.moves[ids] != self._moves[ids] - 1
        rows = (~is_moved).nonzero()[0]
        if len(rows) < len(ids):
            self._moves[ids] -= 1  # they were sent no action yet
            self._note_moves()
            self._moves[ids[rows]] += 1
            self._version = blocks.version
        self._lost_rounds += not len(rows)
        if self._lost_rounds >= MAX_LOST_ROUNDS:
            raise RuntimeError(
                f"{self._lost_rounds} rounds in a row, all envs that the policy acted in were reset or stepped by "
                "another caller before they were stepped here; does the policy, or a hook, reset them at each forward?"
            )
        rows_to_step: list[int] = rows.tolist()
        return rows_to_step

    def _look(self) -> Ready:
        """Ask the env manager what its envs show, and report what other callers did to them."""
        ready: Ready = self._blocks.ready_block()
        if self._pending:
            for env_id in [env_id for env_id in ready.env_ids if env_id in self._pending]:
                self._restarted(env_id)  # its answer is lost
        version = self._blocks.version
        if version != self._version:
            self._note_moves()
        self._ready, self._version = ready, version
        return ready

    def _note_moves(self) -> None:
        """Report to listeners which envs in mid-episode were reset, or stepped, by other callers."""
        moves, episodes = self._blocks.moves, self._blocks.episodes_of(self._every)
        is_reset = episodes != self._episodes
        for env_id in np.flatnonzero((is_reset | (moves != self._moves)) & (self._steps > 0)).tolist():
            if is_reset[env_id]:
                self._restarted(env_id)
            else:
                for listener in self._listeners:
                    listener.on_gap(env_id)
        self._moves[:] = moves

    def _restarted(self, env_id: int) -> None:
        self.actor.reset([env_id])
        for listener in self._listeners:
            listener.on_restart(env_id)
        self._forget(env_id)

    def _wait(self, start: float) -> None:
        """Wait for envs that have yet to answer or that begin an episode, as the quota selects none that is ready."""
        self._ready = None
        if self._pending or self._stale:
            if not self._step(None, {}, [], start):
                self._forget_actions()  # another caller has reset these envs
            return
        if not self._blocks.wait_another():
            raise RuntimeError(
                "no env is ready to step: the env manager is closed, or its envs have used up their episodes "
                f"(env.manager.episode_num); its state: closed={getattr(self._env, 'closed', '?')}, "
                f"done={getattr(self._env, 'done', '?')}"
            )

    def _step(self, obs: Batch | None, output: PolicyOutput, actions: Sequence[Any], start: float) -> bool:
        """Step these envs, record the answers that have come, and return whether there were any."""
        try:
            blocks, before = self._blocks, self._version
            step: BlockStep = blocks.step_block(actions, [] if obs is None else obs.env_ids)
            self._version, self._ready = blocks.version, step.ready
            if self._version != before + 1:  # somebody else was at the envs within the step
                self._version = None
            answered = len(step.env_ids)
            self._take_in(step, obs, output, start)
        except BaseException:
            self._interrupt()
            raise
        return answered > 0

    def _take_in(self, step: BlockStep, obs: Batch | None, output: PolicyOutput, start: float) -> None:
        if obs is None or self._pending or self._stale or step.env_ids != obs.env_ids:
            if obs is not None:
                self._pending.update(dict.fromkeys(obs.env_ids, (obs, output)))
            step = self._without_unasked(step)
            obs, output = self._answered(step.env_ids)
        broken = step.abnormal_rows()
        if broken:
            step = self._without_abnormal(step, broken)
            obs = obs.of_envs(step.env_ids)
        if not step.env_ids:
            return
        number = self._steps + 1
        check_finite("the observation", step.obs, step.env_ids, number)
        check_finite("the reward", step.reward, step.env_ids, number)
        self._shown = step.obs
        if self._normalization is not None:
            step.obs = self._normalization.scaled(step.obs)
            step.reward = self._normalization.scaled_rewards(step.reward, step.ids, step.ends)
        self._last = next_obs = Batch(step.env_ids, step.obs)
        steps = Steps(step, obs, output, next_obs)
        for on_steps in self._of_steps:
            on_steps(steps)
        seconds = (perf_counter() - start) / len(step.env_ids)
        if step.env_ids == self._every:
            self._steps += 1
            self._seconds += seconds
        else:
            self._steps[step.ids] += 1
            self._seconds[step.ids] += seconds
        if step.any_ends:
            self._finish(step)

    def _finish(self, step: BlockStep) -> None:
        rows = step.ends.nonzero()[0]
        ids = step.ids[rows]
        ended = Ended(step, rows, self._steps[ids], self._seconds[ids])
        for on_ends in self._of_ends:
            on_ends(ended)
        self.actor.reset(ended.env_ids)
        self._steps[ids] = 0
        self._seconds[ids] = 0.0

    def _without_unasked(self, step: BlockStep) -> BlockStep:
        """Return the steps that answer the present actor; drop those that answer an actor that was replaced."""
        asked = [row for row, env_id in enumerate(step.env_ids) if env_id in self._pending]
        if len(asked) == len(step.env_ids):
            return step
        abnormal = set(step.abnormal_rows())
        for row, env_id in enumerate(step.env_ids):
            if env_id in self._pending:
                continue
            self._stale.discard(env_id)
            if row in abnormal:
                self.restart(env_id)
            elif step.ends[row]:
                self._forget(env_id)
        return step.of_rows(asked)

    def _answered(self, env_ids: list[int]) -> tuple[Batch, PolicyOutput]:
        """Return the observations on which the policy acted in these envs, and its outputs for them."""
        asked = [self._pending.pop(env_id) for env_id in env_ids]
        if not asked:
            return Batch.copied([], [None]), {}
        first, output = asked[0]
        if all(obs is first for obs, _ in asked):
            return first.of_envs(env_ids), output
        sources = list(zip(env_ids, asked, strict=True))
        items = [obs.rows[obs.env_ids.index(env_id)] for env_id, (obs, _) in sources]
        outputs = {id(output): by_env(output) for _, output in asked}
        return Batch.copied(env_ids, items), {env_id: outputs[id(output)][env_id] for env_id, (_, output) in sources}

    def _without_abnormal(self, step: BlockStep, broken: Sequence[int]) -> BlockStep:
        """Restart the envs whose step is abnormal, and return the steps of the others."""
        for row in broken:
            env_id = step.env_ids[row]
            self.restart(env_id)
            if self._info is not None:
                self._info(f"env {env_id} returned an abnormal step; it was reset and its running episode dropped")
        self._ready = None
        return step.of_rows([row for row in range(len(step.env_ids)) if row not in broken])

    def _forget(self, env_id: int) -> None:
        """Forget the running episode of this env; its next observation begins another."""
        self._stale.discard(env_id)
        self._pending.pop(env_id, None)
        if self._normalization is not None:
            self._normalization.begin_episode(env_id)
        self._steps[env_id] = 0
        self._seconds[env_id] = 0.0
