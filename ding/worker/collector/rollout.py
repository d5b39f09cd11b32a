"""The rollout loop under every collector and evaluator: ready obs -> act -> env step -> per-env record.

A collector or evaluator is the loop with an actor, which acts, a quota, which selects the envs that step and ends the
rollout, and listeners, which record. Abnormal steps and timing are handled here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_
from time import perf_counter
from typing import Any, Protocol

from ding.utils.msgpack_helper import can_pack
from ding.worker.collector.actor import Actor
from ding.worker.collector.batch import Batch, Steps, is_done, is_same


class Quota(Protocol):
    """How much a rollout gathers."""

    def is_filled(self) -> bool:
        """Whether the rollout may end; asked between rounds."""

    def choose(self, ready_obs: Mapping[int, Any]) -> Mapping[int, Any]:
        """Those of the ready envs `{env_id: obs}` that step in this round."""


class Listener:
    """Records a rollout. Each method does nothing here; override those that are needed."""

    def on_steps(self, steps: Steps) -> None:
        """The normal steps of a round."""

    def on_done(self, env_id: int, timestep: Any, steps: int, seconds: float) -> None:
        """The step that ended an episode (arrays are the env's); called after `on_steps`, before the policy is reset.

        Args:
            steps: length of the episode.
            seconds: cost of the episode: its share of the rounds that it took part in.
        """

    def on_abnormal(self, env_id: int) -> None:
        """The env broke off; its running episode is void and the env has been reset."""

    def on_gap(self, env_id: int) -> None:
        """The env continues, but shows another observation than it returned."""

    def on_restart(self, env_id: int) -> None:
        """The env was reset by another caller; its running episode ended with its last step, unfinished."""

    def on_interrupt(self) -> None:
        """An exception ended a round: unfinished data may have a gap."""

    def state_dict(self) -> dict[str, Any]:
        """The state between two rounds, in plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict`; return why that is not exact, a sentence for each reason."""
        return []


class _Episode:
    """What a running episode has cost."""

    __slots__ = ("seconds", "steps")

    def __init__(self, steps: int = 0, seconds: float = 0.0) -> None:
        self.steps = steps
        self.seconds = seconds


_FORGOTTEN = object()  # in place of an observation


class Rollout:
    """Steps an env manager with an actor and reports to listeners.

    Each observation is copied once, into the batch that a round's timesteps make: envs may reuse their arrays, and
    the actor gets that batch in the next round if all envs continue.

    Args:
        env: a launched env manager.
        actor: acts; the attribute `actor` may be set between runs, for another way to call the same policy.
        listeners: called for each step, in this order.
        info: where a line of text about abnormal steps goes.
    """

    def __init__(
        self,
        env: Any,
        actor: Actor,
        listeners: Sequence[Listener],
        *,
        info: Callable[[str], None] | None = None,
    ) -> None:
        self._env = env
        self.actor = actor
        self._listeners = tuple(listeners)
        self._info = info
        # The observations returned last, and the objects that they are copies of.
        self._last: Batch | None = None
        self._last_raw: list[Any] = []
        # The same of envs in mid-episode that answered before: (raw, batch, row).
        self._returned: dict[int, tuple[Any, Batch, int]] = {}
        # Observations and outputs of steps without an answer yet; an asynchronous manager answers in later rounds.
        self._pending: dict[int, tuple[Batch, Mapping[int, Any]]] = {}
        self._stale: set[int] = set()  # envs that have yet to answer an actor that was replaced
        self._episodes: dict[int, _Episode] = {}  # the running ones
        self._acted: tuple[Batch, Mapping[int, Any]] | None = None
        self._reset_count = getattr(env, "reset_count", None)
        self._may_be_reset = False  # by another caller, since the last round

    def replace(self, actor: Actor, listeners: Sequence[Listener]) -> None:
        """Use another actor and listeners: the episodes continue, but steps that the former actor began are dropped."""
        self.actor = actor
        self._listeners = tuple(listeners)
        stale = {*self._stale, *self._pending}
        self._forget_actions()
        self._stale = stale

    def restart(self, env_id: int) -> None:
        """Reset this env and the policy for it; its running episode is void."""
        self._notice_resets()
        self._env.reset({env_id: None})
        self._reset_count = getattr(self._env, "reset_count", None)
        self.actor.reset([env_id])
        self.void(env_id)

    def void(self, env_id: int) -> None:
        """The running episode of this env is void."""
        for listener in self._listeners:
            listener.on_abnormal(env_id)
        self.forget(env_id)

    def under_way(self) -> dict[int, tuple[Any, Any, int, float]]:
        """`{env_id: (observation acted on last, output of the policy, steps, seconds)}` of the running episodes.

        After `load_state_dict` the first two are None until an env is acted on.
        """
        acted: dict[int, tuple[Any, Any]] = {}
        if self._acted is not None:
            obs, output = self._acted
            acted = {env_id: (row, output[env_id]) for env_id, row in zip(obs.env_ids, obs.rows, strict=True)}
        return {
            env_id: (*acted.get(env_id, (None, None)), episode.steps, episode.seconds)
            for env_id, episode in self._episodes.items()
        }

    def state_dict(self) -> dict[str, Any]:
        """The unfinished episodes between two rounds, in plain values, with the states of the listeners."""
        self._notice_resets()
        return {
            "episodes": {env_id: [episode.steps, episode.seconds] for env_id, episode in self._episodes.items()},
            "reset_counts": getattr(self._env, "reset_counts", None),
            "may_be_reset": self._may_be_reset,
            "returned": self._unlike_returned(),
            "unanswered": sorted({*self._pending, *self._stale}),
            "listeners": [listener.state_dict() for listener in self._listeners],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Restore a state of `state_dict`, after the envs; return why that is not exact.

        An episode that does not continue, because its env was reset, ends as if another caller had reset it.

        Raises:
            ValueError: the state is of other listeners.
        """
        if len(state["listeners"]) != len(self._listeners):
            raise ValueError(f"the state is of {len(state['listeners'])} listeners, not of {len(self._listeners)}")
        self._last, self._last_raw, self._acted = None, [], None
        self._forget_actions()
        problems = [
            problem
            for listener, own in zip(self._listeners, state["listeners"], strict=True)
            for problem in listener.load_state_dict(own)
        ]
        self._episodes = {env_id: _Episode(*spent) for env_id, spent in state["episodes"].items()}
        self._reset_count, self._may_be_reset = getattr(self._env, "reset_count", None), state["may_be_reset"]
        ready = self._env.ready_obs
        self._returned = {
            env_id: (ready.get(env_id) if is_own else object(), Batch.copied([env_id], [obs]), 0)
            for env_id, (obs, is_own) in state["returned"].items()
        }
        for env_id in self._reset_since(state["reset_counts"]).union(state["unanswered"]):
            self._restarted(env_id)
        return problems

    def _reset_since(self, reset_counts: Mapping[int, int] | None) -> set[int]:
        """The envs that were reset since these counts; all if the env manager does not count resets."""
        now = getattr(self._env, "reset_counts", None)
        if now is None or reset_counts is None or not hasattr(type(self._env), "load_state_dict"):
            return set(range(self._env.env_num))
        return {env_id for env_id, count in now.items() if count != reset_counts.get(env_id)}

    def _unlike_returned(self) -> dict[int, list[Any]]:
        """`{env_id: [observation returned last, whether its object is shown]}` of envs that may show something else."""
        unlike = {}
        for env_id, raw in self._env.ready_obs.items():
            returned = self._returned_by(env_id, 0)
            if returned is not None and (returned[0] is not raw or self._may_be_reset):
                own_raw, batch, row = returned
                if can_pack(batch.rows[row]):
                    unlike[env_id] = [batch.rows[row], own_raw is raw]
        return unlike

    def run(self, quota: Quota, policy_kwargs: Mapping[str, Any], before_act: Callable[[], None] | None = None) -> None:
        """Step rounds until `quota` is filled; a round is always finished.

        Args:
            policy_kwargs: keyword arguments for the policy's forward.
            before_act: called once a round, when the envs are ready.

        Raises:
            RuntimeError: no env is ready that the quota could step.
            FloatingPointError: an env or the policy returned NaN.
        """
        if self._reset_count is None:  # the env manager does not count resets
            self._may_be_reset = True
        while not quota.is_filled():
            self._round(quota, policy_kwargs, before_act)

    def _notice_resets(self) -> None:
        count = getattr(self._env, "reset_count", None)
        if count != self._reset_count:
            self._reset_count, self._may_be_reset = count, True

    def _forget_actions(self) -> None:
        """Drop the actions without an answer: record none."""
        self._pending.clear()
        self._stale.clear()

    def _interrupt(self) -> None:
        """The next observations may not follow the last step that was recorded."""
        self._last = None
        self._returned.clear()
        for listener in self._listeners:
            listener.on_interrupt()

    def _round(self, quota: Quota, kwargs: Mapping[str, Any], before_act: Callable[[], None] | None) -> None:
        start = perf_counter()
        self._notice_resets()
        chosen = quota.choose(self._env.ready_obs)
        if not chosen:
            self._wait(start)
            return
        if before_act is not None:
            before_act()
        obs = self._observe(chosen)
        output, actions = self.actor.act(obs, kwargs)
        self._acted = obs, output
        self._step(obs, output, actions, start)

    def _observe(self, ready: Mapping[int, Any]) -> Batch:
        """The observations `{env_id: obs}` that the env manager has ready, as one batch."""
        last, env_ids = self._last, list(ready)
        is_same_round = last is not None and last.env_ids == env_ids and not self._may_be_reset
        if last is not None and is_same_round and all(map(is_, self._last_raw, ready.values())):
            return last
        batch = Batch.copied(env_ids, list(ready.values()))
        batch.refuse_nan("the observation")
        may_be_reset, self._may_be_reset = self._may_be_reset, False
        for row, (env_id, raw) in enumerate(ready.items()):
            if self._pending and env_id in self._pending:
                self._restarted(env_id)  # its answer is lost
                continue
            returned = self._returned_by(env_id, row)
            if returned is not None and (returned[0] is not raw or may_be_reset):
                self._check_continuity(env_id, raw, batch.rows[row], returned, may_be_reset)
        return batch

    def _check_continuity(
        self, env_id: int, raw: Any, obs: Any, returned: tuple[Any, Batch, int], may_be_reset: bool
    ) -> None:
        """Report to listeners if an env in mid-episode shows another observation than it returned."""
        own_raw, batch, row = returned
        is_continued = is_same(batch.rows[row], obs)
        if may_be_reset and not (is_continued and (own_raw is raw or self._reset_count is None)):
            self._restarted(env_id)
        elif not is_continued:
            for listener in self._listeners:
                listener.on_gap(env_id)

    def _returned_by(self, env_id: int, row: int) -> tuple[Any, Batch, int] | None:
        """What an env in mid-episode returned last: (the object, the batch that has the copy, the row there)."""
        last = self._last
        if last is not None:
            env_ids = last.env_ids
            if row >= len(env_ids) or env_ids[row] != env_id:  # usually it is in its place
                row = env_ids.index(env_id) if env_id in env_ids else -1
            if row >= 0:
                raw = self._last_raw[row]
                return None if raw is _FORGOTTEN else (raw, last, row)
        return self._returned.get(env_id)

    def _restarted(self, env_id: int) -> None:
        self.actor.reset([env_id])
        for listener in self._listeners:
            listener.on_restart(env_id)
        self.forget(env_id)

    def _wait(self, start: float) -> None:
        """Wait for envs that have yet to answer or that begin an episode: the quota selects none that is ready."""
        if self._pending or self._stale:
            if not self._step(None, {}, {}, start):
                self._forget_actions()  # another caller has reset these envs
            return
        wait_another = getattr(self._env, "wait_another", None)
        if wait_another is None or not wait_another():
            raise RuntimeError(
                "no env is ready to step: the env manager is closed, or its envs have used up their episodes "
                f"(env.manager.episode_num); its state: closed={getattr(self._env, 'closed', '?')}, "
                f"done={getattr(self._env, 'done', '?')}"
            )

    def _step(self, obs: Batch | None, output: Mapping[int, Any], actions: Mapping[int, Any], start: float) -> bool:
        """Step the envs of `actions` and record what has been answered; return whether anything has."""
        try:
            timesteps = self._env.step(actions)
            self._take_in(timesteps, obs, output, start)
        except BaseException:
            self._interrupt()
            raise
        return bool(timesteps)

    def _take_in(
        self, timesteps: Mapping[int, Any], obs: Batch | None, output: Mapping[int, Any], start: float
    ) -> None:
        if obs is None or self._pending or list(timesteps) != obs.env_ids:
            if obs is not None:
                self._pending.update(dict.fromkeys(obs.env_ids, (obs, output)))
            timesteps = self._without_unasked(timesteps)
            obs, output = self._answered(list(timesteps))
        kept = self._without_abnormal(timesteps)
        if not kept:
            return
        if len(kept) < len(timesteps):
            obs = obs.of_envs(list(kept))
        steps = Steps(kept, obs, output)
        steps.next_obs.refuse_nan("the observation")
        steps.rewards.refuse_nan("the reward")
        self._remember(steps)
        for listener in self._listeners:
            listener.on_steps(steps)
        self._count(steps, (perf_counter() - start) / len(kept))

    def _remember(self, steps: Steps) -> None:
        last = self._last
        if last is not None and last.env_ids != steps.env_ids:
            for row, env_id in enumerate(last.env_ids):
                if self._last_raw[row] is not _FORGOTTEN:
                    self._returned[env_id] = self._last_raw[row], last, row
        self._last, self._last_raw = steps.next_obs, [step.obs for step in steps.raw]

    def _count(self, steps: Steps, seconds: float) -> None:
        episodes = self._episodes
        for env_id in steps.env_ids:
            episode = episodes.get(env_id)
            if episode is None:
                episode = episodes[env_id] = _Episode()
            episode.steps += 1
            episode.seconds += seconds
        if True in steps.ends:
            for row, env_id in enumerate(steps.env_ids):
                if steps.ends[row]:
                    self._finish(env_id, steps.raw[row])

    def _without_unasked(self, timesteps: Mapping[int, Any]) -> Mapping[int, Any]:
        """The timesteps of envs that the present actor acted on; the others answer an actor that was replaced."""
        unasked = timesteps.keys() - self._pending.keys()
        self._stale -= unasked
        for env_id in unasked:
            if is_abnormal(timesteps[env_id]):
                self.restart(env_id)
            elif is_done(timesteps[env_id]):
                self.forget(env_id)
        return {env_id: timestep for env_id, timestep in timesteps.items() if env_id not in unasked}

    def _answered(self, env_ids: list[int]) -> tuple[Batch, Mapping[int, Any]]:
        """The observations and outputs of the envs that answered, from the time when they were acted on."""
        asked = [self._pending.pop(env_id) for env_id in env_ids]
        if not asked:
            return Batch([], ()), {}
        first, output = asked[0]
        if all(obs is first for obs, _ in asked):
            return first.of_envs(env_ids), output
        sources = list(zip(env_ids, asked, strict=True))
        items = [obs.rows[obs.env_ids.index(env_id)] for env_id, (obs, _) in sources]
        return Batch.copied(env_ids, items), {env_id: outputs[env_id] for env_id, (_, outputs) in sources}

    def _without_abnormal(self, timesteps: Mapping[int, Any]) -> Mapping[int, Any]:
        """Restart the envs whose timestep is abnormal; return the timesteps of the others."""
        # The plain info dict of most envs is looked at here, without a call.
        broken = [
            env_id
            for env_id, timestep in timesteps.items()
            if (type(info := timestep.info) is not dict or "abnormal" in info) and is_abnormal(timestep)
        ]
        if not broken:
            return timesteps
        for env_id in broken:
            self.restart(env_id)
            if self._info is not None:
                self._info(f"env {env_id} returned an abnormal step; it was reset and its running episode dropped")
        return {env_id: timestep for env_id, timestep in timesteps.items() if env_id not in broken}

    def _finish(self, env_id: int, timestep: Any) -> None:
        episode = self._episodes[env_id]
        for listener in self._listeners:
            listener.on_done(env_id, timestep, episode.steps, episode.seconds)
        self.actor.reset([env_id])
        self.forget(env_id)

    def forget(self, env_id: int) -> None:
        """Begin a new episode of this env with its next observation."""
        self._stale.discard(env_id)
        for of_env in (self._returned, self._pending, self._episodes):
            of_env.pop(env_id, None)
        if self._last is not None and env_id in self._last.env_ids:
            self._last_raw[self._last.env_ids.index(env_id)] = _FORGOTTEN


def is_abnormal(timestep: Any) -> bool:
    """Whether the env flags this step as void through `info['abnormal']`, for several players through any info."""
    info = timestep.info
    if isinstance(info, Mapping):
        return bool(info.get("abnormal", False))
    for player in info or ():
        if isinstance(player, (dict, Mapping)) and "abnormal" in player and player["abnormal"]:
            return True
    return False
