"""The rollout loop under every collector and evaluator: ready obs -> act -> env step -> per-env record.

Three plugs make a collector or evaluator of it: the actor (who acts), the quota (which envs step, and when it is
enough) and the listeners (what is recorded). Abnormal steps and timing are handled here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol

import torch

from ding.torch_utils.data_helper import to_tensor
from ding.utils.data.env_batch import EnvBatch
from ding.worker.collector.actor import Actor
from ding.worker.collector.frames import FrameKeeper, StepBatch
from ding.worker.collector.frames import is_done as is_done
from ding.worker.collector.rows import Rows


class Quota(Protocol):
    """How much a rollout gathers."""

    def is_filled(self) -> bool:
        """Whether the rollout may end; asked between rounds."""

    def choose(self, ready_obs: Mapping[int, Any]) -> Mapping[int, Any]:
        """Those of the ready envs `{env_id: obs}` that step in this round."""


class Listener:
    """Records a rollout. Each method does nothing here; override what is needed."""

    def on_steps(self, steps: StepBatch, obs: Rows, output: Mapping[int, Any]) -> None:
        """The normal steps of a round; `obs` and `output` have what each env was acted on with, among others."""
        if type(self).on_step is not Listener.on_step:
            for env_id, timestep in zip(steps.env_ids, steps.timesteps(), strict=True):
                self.on_step(env_id, obs[env_id], output[env_id], timestep)

    def on_step(self, env_id: int, obs: Any, output: Any, timestep: Any) -> None:
        """A normal step: the observation acted on, what the policy returned, and the timestep (arrays are ours)."""

    def on_done(self, env_id: int, timestep: Any, steps: int, seconds: float) -> None:
        """The step that ended an episode (arrays are the env's); called after `on_steps`, before the policy is reset.

        Args:
            steps: length of the episode.
            seconds: what the episode cost: its share of the rounds it took part in.
        """

    def on_abnormal(self, env_id: int) -> None:
        """The env broke off; its running episode is void and the env has been reset."""

    def on_interrupt(self) -> None:
        """What is under way may have a gap: an exception ended a round, or somebody else has reset envs."""


class _Episode:
    """What a running episode has cost."""

    __slots__ = ("seconds", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = 0.0


class Rollout:
    """Steps an env manager with an actor and tells listeners.

    Args:
        env: a launched env manager.
        actor: who acts; the attribute `actor` may be set between runs, for another way to ask the same policy.
        listeners: told of each step, in this order.
        float_obs: give the actor float32 tensors instead of the observations as they are.
        share_next_obs: see `FrameKeeper`.
        info: where a line of text about abnormal steps goes.
    """

    def __init__(
        self,
        env: Any,
        actor: Actor,
        listeners: Sequence[Listener],
        *,
        float_obs: bool = False,
        share_next_obs: bool = True,
        info: Callable[[str], None] | None = None,
    ) -> None:
        self._env = env
        self.actor = actor
        self._listeners = tuple(listeners)
        self._float_obs = float_obs
        self._info = info
        self._frames = FrameKeeper(share_next_obs)
        # What the envs were acted on with that have not answered yet; an asynchronous manager answers in later rounds.
        self._obs: dict[int, tuple[Rows, int]] = {}
        self._output: dict[int, Mapping[int, Any]] = {}
        self._stale: set[int] = set()  # envs that have yet to answer an actor that was replaced
        self._episodes: dict[int, _Episode] = {}  # the running ones
        self._reset_count = getattr(env, "reset_count", None)

    def plug(self, actor: Actor, listeners: Sequence[Listener]) -> None:
        """Go on with other plugs: the episodes go on, but steps that the former actor began are not recorded."""
        self.actor = actor
        self._listeners = tuple(listeners)
        stale = {*self._stale, *self._output}
        self._forget_actions()
        self._stale = stale

    def restart(self, env_id: int) -> None:
        """Reset this env and the policy for it; its running episode is void."""
        self._env.reset({env_id: None})
        self.actor.reset([env_id])
        for listener in self._listeners:
            listener.on_abnormal(env_id)
        self._drop(env_id)

    def run(self, quota: Quota, policy_kwargs: Mapping[str, Any], before_act: Callable[[], None] | None = None) -> None:
        """Step rounds until `quota` is filled; a round is always finished.

        Args:
            policy_kwargs: keyword arguments for the policy's forward.
            before_act: called once a round, when the envs are ready.

        Raises:
            RuntimeError: no env is ready that the quota could step.
            FloatingPointError: an env returned NaN.
        """
        if getattr(self._env, "reset_count", None) != self._reset_count:
            self._interrupt()  # somebody else reset envs since the last run
        try:
            while not quota.is_filled():
                self._round(quota, policy_kwargs, before_act)
        finally:
            self._reset_count = getattr(self._env, "reset_count", None)

    def _forget_actions(self) -> None:
        """Record no answer to what the envs were acted on with."""
        self._obs.clear()
        self._output.clear()
        self._stale.clear()

    def _interrupt(self) -> None:
        """What the envs show next is not what followed the last step that was recorded."""
        self._frames.clear()
        for listener in self._listeners:
            listener.on_interrupt()

    def _round(self, quota: Quota, kwargs: Mapping[str, Any], before_act: Callable[[], None] | None) -> None:
        start = perf_counter()
        chosen = quota.choose(self._env.ready_obs)
        if not chosen:
            self._wait(start)
            return
        if before_act is not None:
            before_act()
        obs = self._frames.observe(chosen)
        output, actions = self.actor.act(as_float_batch(obs) if self._float_obs else obs, kwargs)
        self._step(obs, output, actions, start)

    def _wait(self, start: float) -> None:
        """Wait for envs that have yet to answer, or that begin an episode: those that are ready are not wanted."""
        if self._output or self._stale:
            if not self._step(Rows([], None, list), {}, {}, start):
                self._forget_actions()  # somebody else has reset these envs
            return
        wait_another = getattr(self._env, "wait_another", None)
        if wait_another is None or not wait_another():
            raise RuntimeError(
                "no env is ready to step: the env manager is closed, or its envs have used up their episodes "
                f"(env.manager.episode_num); its state: closed={getattr(self._env, 'closed', '?')}, "
                f"done={getattr(self._env, 'done', '?')}"
            )

    def _step(self, obs: Rows, output: Mapping[int, Any], actions: Mapping[int, Any], start: float) -> bool:
        """Step the envs of `actions` and record what has been answered; return whether anything has."""
        try:
            timesteps = self._env.step(actions)
            self._take_in(timesteps, obs, output, start)
        except BaseException:
            self._interrupt()
            raise
        return bool(timesteps)

    def _take_in(self, timesteps: Mapping[int, Any], obs: Rows, output: Mapping[int, Any], start: float) -> None:
        if self._obs or timesteps.keys() != obs.keys():
            timesteps = self._without_unasked(timesteps, obs)
            obs, output = self._answered(timesteps, obs, output)
        timesteps = self._without_abnormal(timesteps)
        if not timesteps:
            return
        steps = self._frames.keep(timesteps)
        for listener in self._listeners:
            listener.on_steps(steps, obs, output)
        seconds = (perf_counter() - start) / len(timesteps)
        episodes = self._episodes
        for env_id in timesteps:
            episode = episodes.get(env_id)
            if episode is None:
                episode = episodes[env_id] = _Episode()
            episode.steps += 1
            episode.seconds += seconds
        if True in steps.ends:
            for env_id, ended in zip(steps.env_ids, steps.ends, strict=True):
                if ended:
                    self._finish(env_id, timesteps[env_id])

    def _without_unasked(self, timesteps: Mapping[int, Any], obs: Rows) -> Mapping[int, Any]:
        """The timesteps of envs that the present actor acted on; the others answer an actor that was replaced."""
        unasked = timesteps.keys() - obs.keys() - self._obs.keys()
        self._stale -= unasked
        for env_id in unasked:
            if is_abnormal(timesteps[env_id]):
                self.restart(env_id)
            elif is_done(timesteps[env_id]):
                self._drop(env_id)
        return {env_id: timestep for env_id, timestep in timesteps.items() if env_id not in unasked}

    def _answered(
        self, timesteps: Mapping[int, Any], obs: Rows, output: Mapping[int, Any]
    ) -> tuple[Rows, Mapping[int, Any]]:
        """What the envs that answered had been acted on with, and what the policy returned for them then."""
        for row, env_id in enumerate(obs.env_ids):
            self._obs[env_id] = obs, row
            self._output[env_id] = output
        env_ids = list(timesteps)
        answered = {env_id: self._output.pop(env_id)[env_id] for env_id in env_ids}
        return Rows.gathered(env_ids, [self._obs.pop(env_id) for env_id in env_ids]), answered

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
        self._drop(env_id)

    def _drop(self, env_id: int) -> None:
        self._frames.forget(env_id)
        self._stale.discard(env_id)
        for of_env in (self._obs, self._output, self._episodes):
            of_env.pop(env_id, None)


def is_abnormal(timestep: Any) -> bool:
    """Whether the env flags this step as void through `info['abnormal']`, for several players through any info."""
    info = timestep.info
    if isinstance(info, Mapping):
        return bool(info.get("abnormal", False))
    for player in info or ():
        if isinstance(player, (dict, Mapping)) and "abnormal" in player and player["abnormal"]:
            return True
    return False


def as_float_batch(obs: EnvBatch) -> EnvBatch:
    """The observations as float32 tensors, nested as they were."""
    if obs.stacked is None:
        return EnvBatch(obs, [to_tensor(item, torch.float32) for item in obs.values()])
    stacked = to_tensor(obs.stacked, torch.float32)
    return EnvBatch(obs, _rows(stacked, len(obs)), stacked)


def _rows(stacked: Any, count: int) -> list[Any]:
    if isinstance(stacked, dict):
        columns = {key: _rows(value, count) for key, value in stacked.items()}
        return [{key: column[i] for key, column in columns.items()} for i in range(count)]
    return list(stacked.unbind(0))
