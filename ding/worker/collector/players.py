"""Several players in every env, each with its own policy: actor, trajectories, infos, and the base of collectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from ding.utils.msgpack_helper import can_pack
from ding.worker.collector.actor import Actor, SoloActor
from ding.worker.collector.base_serial_collector import SerialCollector
from ding.worker.collector.collect_limits import episode_data
from ding.worker.collector.env_round import Batch, PlayerOutputs, PolicyOutput, Steps, by_env, entries_of
from ding.worker.collector.rollout import RolloutListener
from ding.worker.collector.trajectory import INF, TrajBuffer, TrajectoryRecorder


def check_policies(policies: Any, where: str, exactly: int | None = None) -> list[Any]:
    """Check the policies of the players, and return them as a list.

    Raises:
        AssertionError: they are not a list or tuple, fewer than two, or not exactly as many as required.
    """
    allowed = "at least 2" if exactly is None else f"exactly {exactly}"
    if not isinstance(policies, list | tuple) or hasattr(policies, "_fields"):
        raise AssertionError(f"{where} needs a list of {allowed} policies, one for each player, got {policies!r:.200}")
    if len(policies) < 2 or len(policies) != (exactly or len(policies)):
        raise AssertionError(f"{where} needs a list of {allowed} policies, one for each player, got {len(policies)}")
    return list(policies)


class BattleActor:
    """The actor with one policy for each player; observations and actions hold one entry for each player.

    Args:
        policies: anything with `forward` and `reset`, in the order of the players.
        float_obs: pass float32 tensors to the policies instead of the observations themselves.
        keep_integers: with `float_obs`, convert no integers except bytes.
    """

    def __init__(self, policies: Sequence[Any], float_obs: bool = False, keep_integers: bool = False) -> None:
        self._actors = [SoloActor(policy, float_obs, keep_integers) for policy in policies]

    @property
    def model(self) -> nn.Module | None:
        """The network of the first player."""
        return self._actors[0].model

    def act(self, obs: Batch, kwargs: Mapping[str, Any]) -> tuple[PlayerOutputs, list[list[Any]]]:
        """Return the outputs of the policies, and for each env the list of the players' actions."""
        acts = [actor.act(obs.of_player(player), kwargs) for player, actor in enumerate(self._actors)]
        outputs, actions = zip(*acts, strict=True)
        return PlayerOutputs(outputs), [list(of_env) for of_env in zip(*actions, strict=True)]

    def reset(self, env_ids: Sequence[int] | None = None) -> None:
        """Handle the end of the episodes of these envs, or of all."""
        for actor in self._actors:
            actor.reset(env_ids)


class PlayerRecorder(TrajectoryRecorder):
    """A recorder of the trajectories of one player; an episode ends for all players at once.

    Args:
        player: the player whose entries of observations, rewards, infos and outputs are recorded.
        args, kwargs: as for `TrajectoryRecorder`.
    """

    def __init__(self, player: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._player = player

    def on_steps(self, steps: Steps) -> None:
        super().on_steps(steps.of_player(self._player, _of_player(steps.output, self._player)))


class PlayerInfos(RolloutListener):
    """A listener that gathers the last info of each player in each episode; it comes after the players' recorders.

    Args:
        players: the number of players.
        recorders: the recorders of the players whose trajectories are kept.
        by_episode: whether each piece is an episode and makes one sample; then all players keep equally many.

    Attributes:
        steps: env steps recorded since the last `take`, each counted once however many players there are.
    """

    def __init__(self, players: int, recorders: Sequence[TrajectoryRecorder], by_episode: bool = False) -> None:
        self._infos: list[list[Any]] = [[] for _ in range(players)]
        self._recorders, self._by_episode = recorders, by_episode
        self.steps = 0

    def episodes(self) -> int:
        """Return the number of finished episodes that are whole for every player and not yet taken."""
        return min([len(self._infos[0]), *(len(recorder.pieces) for recorder in self._recorders)])

    def take(self, limit: int | None = None) -> tuple[list[list[Any]], int]:
        """Return the infos, a list for each player, and the steps since the last call; `limit` as for the recorders."""
        infos = [of_player[:limit] for of_player in self._infos]
        self._infos = [[] if limit is None else of_player[limit:] for of_player in self._infos]
        steps, self.steps = self.steps, 0
        return infos, steps

    def state_dict(self) -> dict[str, Any]:
        return {"infos": self._infos if can_pack(self._infos) else None, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        self.steps = state["steps"]
        if state["infos"] is None:
            self._keep(0)
            return ["infos not collected yet hold values that are not plain; their episodes are dropped"]
        self._infos = [list(of_player) for of_player in state["infos"]]
        return []

    def on_steps(self, steps: Steps) -> None:
        self.steps += len(steps.env_ids)
        if steps.any_ends:
            infos = [steps.infos[row] for row in np.flatnonzero(steps.ends).tolist()]
            by_player = [entries_of(infos, player) for player in range(len(self._infos))]
            for known, new in zip(self._infos, by_player, strict=True):
                known.extend(new)

    def on_interrupt(self) -> None:
        if self._by_episode:  # the round that raised may have ended an episode for some of the players only
            self._keep(self.episodes())

    def _keep(self, number: int) -> None:
        for infos in self._infos:
            del infos[number:]
        for recorder in self._recorders:
            recorder.keep(number)


class BattleCollector(SerialCollector):
    """Base of the collectors of battles; settings such as `n_sample` are those of policy 0 (or the first that has any).

    Observations, rewards and infos of the envs hold one entry for each player, by index; `done` may do so, too. An env
    is given the list of the players' actions. The trajectories of a policy whose attribute `collect_data` is False are
    not kept; it needs `forward` and `reset` only.
    """

    _needs_policy = False
    _exact_players: int | None = None
    _gathers_episodes = False
    _fixed_rollout = False
    _policy_collect_data: Sequence[bool] = ()

    def _checked_policy(self, policy: Any) -> Any:
        return check_policies(policy, type(self).__name__, self._exact_players)

    def _acting_policies(self) -> list[Any]:
        return self._policy or []

    def _read_policy(self) -> None:
        self._players = self._policy_num = len(self._policy)
        self._policy_collect_data = [bool(getattr(policy, "collect_data", True)) for policy in self._policy]
        first = next((policy for policy in self._policy if hasattr(policy, "get_attribute")), self._policy[0])
        self._policy_cfg = first.get_attribute("cfg")
        self._unroll_len = first.get_attribute("unroll_len")
        self._on_policy = self._policy_cfg.get("on_policy", False)
        self._are_on_policy = [self._is_on_policy(policy) for policy in self._policy]
        collect_cfg = self._policy_cfg.get("collect") or {}
        self._default_n_sample, self._default_n_episode = collect_cfg.get("n_sample"), collect_cfg.get("n_episode")
        self._traj_len = self._piece_length(collect_cfg)

    def _is_on_policy(self, policy: Any) -> bool:
        cfg = policy.get_attribute("cfg") if hasattr(policy, "get_attribute") else self._policy_cfg
        return bool(cfg.get("on_policy", False))

    def _piece_length(self, collect_cfg: Mapping[str, Any]) -> float:
        """Return the number of transitions of a trajectory piece, by the policy's section `collect`."""
        return INF

    def _plugs(self, begins_episodes: bool) -> tuple[Actor, Sequence[RolloutListener]]:
        self._recorders = {
            player: PlayerRecorder(
                player,
                policy,
                self._env_num,
                INF if self._fixed_rollout else self._traj_len,
                fixed_rollout=self._fixed_rollout,
                share_next_obs=not self._deepcopy_obs,
                make_samples=partial(episode_data, self._cfg, policy) if self._gathers_episodes else None,
            )
            for player, policy in enumerate(self._policy)
            if self._policy_collect_data[player]
        }
        recorders = list(self._recorders.values())
        self._infos = self._recorder = PlayerInfos(self._policy_num, recorders, by_episode=self._gathers_episodes)
        return BattleActor(self._policy, self._transform_obs), [*recorders, self._infos]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "collect_data": list(self._policy_collect_data)}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        if self._is_prepared and state.get("collect_data", []) not in ([], self._policy_collect_data):
            raise ValueError("the state is of other players: trajectories are kept for a player in one of the two only")
        return super().load_state_dict(state)

    def _fragments_under_way(self, env_id: int) -> Any:
        kept = {player: recorder.under_way(env_id) for player, recorder in self._recorders.items()}
        return {player: kept.get(player, TrajBuffer(None)) for player in range(self._policy_num)}

    def _begin(self, train_iter: int) -> None:
        """Note the iteration of a collect.

        Raises:
            RuntimeError: there are no policies yet.
        """
        if not self._is_prepared:
            raise RuntimeError(f"{type(self).__name__} has no policies yet: give it a list of them with reset_policy")
        for recorder in self._recorders.values():
            recorder.collect_iter = train_iter

    def _take(self, limit: int | None = None) -> tuple[list[list[Any]], list[list[Any]], int]:
        """Return samples and infos, a list of each for each player, and the number of steps, all since the last call.

        With a `limit`, the episodes beyond that number are kept for the next call.
        """
        samples = {player: recorder.take(limit)[0] for player, recorder in self._recorders.items()}
        return [samples.get(player, []) for player in range(self._policy_num)], *self._infos.take(limit)


def _of_player(output: PolicyOutput, player: int) -> PolicyOutput:
    if isinstance(output, PlayerOutputs):
        return output.players[player]
    return {env_id: of_players[player] for env_id, of_players in by_env(output).items()}
