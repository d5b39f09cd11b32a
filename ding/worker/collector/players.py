"""Several players in every env, each with its own policy: the actor, and the trajectories of each player."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ding.utils.msgpack_helper import can_pack
from ding.worker.collector.actor import env_actions, output_of
from ding.worker.collector.batch import Batch, PlayerOutputs, PolicyOutput, Steps, by_env, entries_of
from ding.worker.collector.rollout import Listener
from ding.worker.collector.trajectory import TrajectoryCutter


def check_policies(policies: Any, where: str, exactly: int | None = None) -> list[Any]:
    """The policies of the players, as a list.

    Raises:
        AssertionError: they are no list or tuple, fewer than two, or not exactly as many as required.
    """
    allowed = "at least 2" if exactly is None else f"exactly {exactly}"
    if not isinstance(policies, list | tuple) or hasattr(policies, "_fields"):
        raise AssertionError(f"{where} needs a list of {allowed} policies, one for each player, got {policies!r:.200}")
    if len(policies) < 2 or len(policies) != (exactly or len(policies)):
        raise AssertionError(f"{where} needs a list of {allowed} policies, one for each player, got {len(policies)}")
    return list(policies)


class BattleActor:
    """A policy for each player; observations and actions hold one entry for each player.

    Args:
        policies: anything with `forward` and `reset`, in the order of the players.
        float_obs: pass float32 tensors to the policies instead of the observations themselves.
        keep_integers: with `float_obs`, convert no integers except bytes.
    """

    def __init__(self, policies: Sequence[Any], float_obs: bool = False, keep_integers: bool = False) -> None:
        self._policies = tuple(policies)
        self._obs_form = float_obs, keep_integers

    def act(self, obs: Batch, kwargs: Mapping[str, Any]) -> tuple[PlayerOutputs, list[list[Any]]]:
        """Return the outputs of the policies, and for each env the list of the players' actions."""
        outputs = [
            output_of(policy, obs.of_player(player), self._obs_form, kwargs)
            for player, policy in enumerate(self._policies)
        ]
        actions = [env_actions(output, obs.env_ids) for output in outputs]
        return PlayerOutputs(outputs), [list(of_env) for of_env in zip(*actions, strict=True)]

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        """The episodes of these envs, or of all, have ended."""
        for policy in self._policies:
            if env_ids is None:
                policy.reset()
            else:
                policy.reset(env_ids)


class PlayerCutters(Listener):
    """Gathers what each player sees and does; an episode ends for all of them at once.

    Args:
        cutters: one for each player; None for a player whose trajectories are not kept.

    Attributes:
        cutters: the cutters other than None.
    """

    def __init__(self, cutters: Sequence[TrajectoryCutter | None]) -> None:
        self._cutters = tuple(cutters)
        self.cutters = tuple(cutter for cutter in cutters if cutter is not None)

    def state_dict(self) -> dict[str, Any]:
        return {"cutters": [None if cutter is None else cutter.state_dict() for cutter in self._cutters]}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        problems = []
        for cutter, own in zip(self._cutters, state["cutters"], strict=True):
            if (cutter is None) is not (own is None):
                raise ValueError(
                    "the state is of other players: trajectories are kept for a player in one of the two only"
                )
            if cutter is not None:
                problems += cutter.load_state_dict(own)
        return problems

    def on_steps(self, steps: Steps) -> None:
        for player, cutter in enumerate(self._cutters):
            if cutter is not None:
                cutter.on_steps(steps.of_player(player, _of_player(steps.output, player)))

    def on_abnormal(self, env_id: int) -> None:
        for cutter in self.cutters:
            cutter.on_abnormal(env_id)

    def on_gap(self, env_id: int) -> None:
        for cutter in self.cutters:
            cutter.on_gap(env_id)

    def on_restart(self, env_id: int) -> None:
        for cutter in self.cutters:
            cutter.on_restart(env_id)

    def on_interrupt(self) -> None:
        for cutter in self.cutters:
            cutter.on_interrupt()


class PlayerTrajectories(PlayerCutters):
    """Also gathers the info of each player at the end of its episodes.

    Args:
        cutters: see `PlayerCutters`.
        by_episode: each piece is an episode and makes one sample; players then keep as many of them.

    Attributes:
        infos: for each player, its infos of the finished episodes, in the order of their ends.
        steps: env steps recorded since the last `take`, each counted once however many players there are.
    """

    def __init__(self, cutters: Sequence[TrajectoryCutter | None], by_episode: bool = False) -> None:
        super().__init__(cutters)
        self._by_episode = by_episode
        self.infos: list[list[Any]] = [[] for _ in cutters]
        self.steps = 0

    def episodes(self) -> int:
        """Number of finished episodes that are whole for every player and not yet taken."""
        return min([len(self.infos[0]), *(len(cutter.pieces) for cutter in self.cutters)])

    def take(self, limit: int | None = None) -> tuple[list[list[Any]], list[list[Any]], int]:
        """Samples and infos, a list of each for each player, and the number of steps, since the last call.

        With a `limit`, the episodes beyond that number stay for the next call.
        """
        samples = [[] if cutter is None else cutter.take(limit)[0] for cutter in self._cutters]
        infos = [of_player[:limit] for of_player in self.infos]
        self.infos = [[] if limit is None else of_player[limit:] for of_player in self.infos]
        steps, self.steps = self.steps, 0
        return samples, infos, steps

    def clear(self, of_players: Sequence[bool]) -> None:
        """Throw away the pieces under way of the players for which `of_players` is true."""
        for cutter, is_meant in zip(self._cutters, of_players, strict=True):
            if cutter is not None and is_meant:
                cutter.clear()

    def state_dict(self) -> dict[str, Any]:
        infos = self.infos if can_pack(self.infos) else None
        return {**super().state_dict(), "infos": infos, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        problems = super().load_state_dict(state)
        self.steps = state["steps"]
        if state["infos"] is None:
            self.infos = [[] for _ in self._cutters]
            for cutter in self.cutters:
                cutter.keep(0)
            return [*problems, "infos not collected yet hold values that are not plain; their episodes are dropped"]
        self.infos = [list(of_player) for of_player in state["infos"]]
        return problems

    def on_steps(self, steps: Steps) -> None:
        super().on_steps(steps)
        self.steps += len(steps.env_ids)
        if steps.any_ends:
            infos = [steps.infos[row] for row in np.flatnonzero(steps.ends).tolist()]
            by_player = [entries_of(infos, player) for player in range(len(self.infos))]
            for known, new in zip(self.infos, by_player, strict=True):
                known.extend(new)

    def on_interrupt(self) -> None:
        super().on_interrupt()
        if self._by_episode:  # the round that raised may have ended an episode for some of the players only
            whole = self.episodes()
            for infos in self.infos:
                del infos[whole:]
            for cutter in self.cutters:
                cutter.keep(whole)


def _of_player(output: PolicyOutput, player: int) -> PolicyOutput:
    if isinstance(output, PlayerOutputs):
        return output.players[player]
    return {env_id: of_players[player] for env_id, of_players in by_env(output).items()}
