"""Base of the collectors of battles: a policy and a trajectory cutter for each player."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from ding.worker.collector.actor import Actor
from ding.worker.collector.players import BattleActor, PlayerTrajectories, check_policies
from ding.worker.collector.rollout import Listener
from ding.worker.collector.serial_collector import SerialCollector
from ding.worker.collector.trajectory import TrajBuffer, TrajectoryCutter


class BattleCollector(SerialCollector):
    """Base of the collectors of battles; settings such as `n_sample` are those of policy 0 (or the first that has any).

    Observations, rewards and infos of the envs hold one entry for each player, by index; `done` may. An env is given
    the list of the players' actions. The trajectories of a policy whose attribute `collect_data` is False are not
    kept; it needs `forward` and `reset` only.
    """

    _needs_policy = False
    _exact_players: int | None = None
    _gathers_episodes = False

    def _checked_policy(self, policy: Any) -> Any:
        return check_policies(policy, type(self).__name__, self._exact_players)

    def _acting_policies(self) -> list[Any]:
        return self._policy or []

    def _read_policy(self) -> None:
        self._players = self._policy_num = len(self._policy)
        self._policy_collect_data = [getattr(policy, "collect_data", True) for policy in self._policy]
        first = next((policy for policy in self._policy if hasattr(policy, "get_attribute")), self._policy[0])
        self._policy_cfg = first.get_attribute("cfg")
        self._unroll_len = first.get_attribute("unroll_len")
        self._on_policy = self._policy_cfg.get("on_policy", False)
        self._are_on_policy = [self._is_on_policy(policy) for policy in self._policy]
        self._read_amounts(self._policy_cfg.get("collect") or {})

    def _is_on_policy(self, policy: Any) -> bool:
        cfg = policy.get_attribute("cfg") if hasattr(policy, "get_attribute") else self._policy_cfg
        return bool(cfg.get("on_policy", False))

    @abstractmethod
    def _read_amounts(self, collect_cfg: Any) -> None:
        """Take the default amount, and the length of trajectory pieces, from the policy's section `collect`."""

    @abstractmethod
    def _cutter_of(self, policy: Any) -> TrajectoryCutter:
        """The cutter of this player's trajectories."""

    def _plugs(self, begins_episodes: bool) -> tuple[Actor, Sequence[Listener]]:
        cutters = [
            self._cutter_of(policy) if is_wanted else None
            for policy, is_wanted in zip(self._policy, self._policy_collect_data, strict=True)
        ]
        self._trajectories = self._recorder = PlayerTrajectories(cutters, by_episode=self._gathers_episodes)
        self._cutters = cutters
        return BattleActor(self._policy, self._transform_obs), [self._trajectories]

    def _fragments_under_way(self, env_id: int) -> Any:
        return {
            player: TrajBuffer(None) if cutter is None else cutter.under_way(env_id)
            for player, cutter in enumerate(self._cutters)
        }

    def _begin(self, train_iter: int) -> None:
        """Note the iteration of a collect.

        Raises:
            RuntimeError: there are no policies yet.
        """
        if not self._is_prepared:
            raise RuntimeError(f"{type(self).__name__} has no policies yet: give it a list of them with reset_policy")
        for cutter in self._trajectories.cutters:
            cutter.collect_iter = train_iter
