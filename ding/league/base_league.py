"""The base class of leagues."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from easydict import EasyDict

from ding.league.league_config import (
    LEAGUE_SETTINGS,
    active_player_specs,
    check_league_config,
    merge_league_config,
    metric_settings,
    pretrained_path,
    pretrained_player_specs,
)
from ding.league.player import ActivePlayer, HistoricalPlayer, Player, create_player
from ding.league.shared_payoff import create_payoff, flat_results
from ding.utils.config_helper import Configurable
from ding.utils.file_helper import atomic_write
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import LEAGUE_REGISTRY
from ding.utils.system_helper import get_task_uid

if TYPE_CHECKING:
    from ding.league.rating import LeagueMetricEnv


_logger = logging.getLogger("ding")


class BaseLeague(Configurable, ABC):
    """Thread-safe manager of players, their records and ratings, which creates jobs.

    A subclass defines the content of a job (`_get_job_info`), and how a player changes by an update (`_update_player`)
    and after a snapshot (`_mutate_player`).

    Ratings need the package trueskill, which is imported on first access to a rating.

    Args:
        cfg: overrides the defaults; `active_players` is replaced, not merged. `path_policy`, the folder of the weights,
            is required. It is created with its parents.

    Attributes:
        cfg: the merged config.
        active_players: `cfg.active_players` = `{type: count}` players for each category. Their names are
            `<type>_<category>_<number>`, their weights `<path_policy>/<name>_ckpt.pth`.
        historical_players: the snapshots, oldest first.
        payoff: the records of all players.

    Raises:
        ConfigError: a value is missing or not allowed.
        KeyError: no player of a type is registered.
        FileNotFoundError: pretrained weights are missing.
        OSError: the folder cannot be created.
    """

    settings = LEAGUE_SETTINGS

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self.cfg = merge_league_config(merge_league_config(BaseLeague.config, self.default_config()), cfg)
        check_league_config(self.cfg, type(self).__name__)
        self.path_policy = str(self.cfg.path_policy)
        self.league_uid = get_task_uid()
        self.active_players: list[ActivePlayer] = []
        self.historical_players: list[HistoricalPlayer] = []
        self.payoff = create_payoff(self.cfg.payoff)
        self._metric_env: LeagueMetricEnv | None = None
        self._lock = threading.RLock()
        os.makedirs(self.path_policy, exist_ok=True)
        self._make_active_players()
        if self.cfg.use_pretrain_init_historical:
            self._make_pretrained_opponents()

    def _make_active_players(self) -> None:
        for kind, category, player_id in active_player_specs(self.cfg):
            path = os.path.join(self.path_policy, f"{player_id}_ckpt.pth")
            if self.cfg.use_pretrain:
                copy_checkpoint(pretrained_path(self.cfg, category), path, follow_links=True)
            of_kind = self.cfg.get(kind) or EasyDict()
            about = of_kind, category, self.payoff, path, player_id, 0, self.create_rating
            player: Any = create_player(self.cfg, kind, *about)
            self.active_players.append(player)
            self.payoff.add_player(player)

    def _make_pretrained_opponents(self) -> None:
        for (kind, category, player_id), parent_id in pretrained_player_specs(self.cfg):
            path = os.path.join(self.path_policy, f"{player_id}_ckpt.pth")
            copy_checkpoint(pretrained_path(self.cfg, category), path, follow_links=True)
            of_kind = self.cfg.get(kind) or EasyDict()
            about = of_kind, category, self.payoff, path, player_id, 0, self.create_rating
            self._add_historical(HistoricalPlayer(*about, parent_id=parent_id))

    def _add_historical(self, player: HistoricalPlayer) -> None:
        self.payoff.add_player(player)
        self.historical_players.append(player)

    @property
    def active_players_ids(self) -> list[str]:
        """The names of the active players."""
        return [player.player_id for player in self.active_players]

    @property
    def active_players_ckpts(self) -> list[str]:
        """The paths of the weights of the active players."""
        return [player.checkpoint_path for player in self.active_players]

    @property
    def metric_env(self) -> LeagueMetricEnv:
        """The rating environment.

        Raises:
            ImportError: trueskill is not installed.
        """
        with self._lock:
            if self._metric_env is None:
                from ding.league.rating import LeagueMetricEnv

                self._metric_env = LeagueMetricEnv(**metric_settings(self.cfg))
            return self._metric_env

    def create_rating(self, *args: Any, **kwargs: Any) -> Any:
        """Create a rating; see `LeagueMetricEnv.create_rating`."""
        return self.metric_env.create_rating(*args, **kwargs)

    def get_player_by_id(self, player_id: str) -> Player:
        """Return the player with this name.

        Raises:
            KeyError: the name is unknown.
        """
        player: Player = _find([*self.active_players, *self.historical_players], player_id)
        return player

    def get_job_info(self, player_id: str | None = None, eval_flag: bool = False) -> dict[str, Any]:
        """Create a job for an active player, by default the first one; see `_get_job_info`.

        Raises:
            KeyError: the name is unknown.
        """
        with self._lock:
            player = self.active_players[0] if player_id is None else _find(self.active_players, player_id)
            return self._get_job_info(player, eval_flag)

    @abstractmethod
    def _get_job_info(self, player: ActivePlayer, eval_flag: bool = False) -> dict[str, Any]:
        """Create a job for `player`: `launch_player`, its name, and everything else that the collector needs."""

    def judge_snapshot(self, player_id: str, force: bool = False) -> bool:
        """Take a snapshot of an active player if it is trained enough or with `force`; return whether it was taken.

        A second snapshot of the same iteration only replaces the weights.

        Raises:
            KeyError: the name is unknown.
            FileNotFoundError: the player has no weights yet.
        """
        with self._lock:
            player = _find(self.active_players, player_id)
            if not (force or player.is_trained_enough()):
                return False
            historical = player.snapshot(self)  # instead of the metric env, which is imported when it is needed
            self.save_checkpoint(player.checkpoint_path, historical.checkpoint_path)
            if all(known.player_id != historical.player_id for known in self.historical_players):
                self._add_historical(historical)
            self._mutate_player(player)
            return True

    @staticmethod
    def save_checkpoint(src_checkpoint: str, dst_checkpoint: str) -> None:
        """Copy weights for a snapshot.

        Raises:
            FileNotFoundError: `src_checkpoint` does not exist.
        """
        copy_checkpoint(src_checkpoint, dst_checkpoint)

    @abstractmethod
    def _mutate_player(self, player: ActivePlayer) -> None:
        """Change a player after its snapshot."""

    def update_active_player(self, player_info: Mapping[str, Any]) -> Any:
        """Update an active player; see `_update_player`.

        Args:
            player_info: `player_id` and the updated values.

        Returns:
            The result of `_update_player`, or None, after an error is logged, if the player is unknown.
        """
        with self._lock:
            try:
                player = _find(self.active_players, player_info["player_id"])
            except KeyError as e:
                _logger.error("ignored the update %r: %s", player_info, e)
                return None
            return self._update_player(player, player_info)

    @abstractmethod
    def _update_player(self, player: ActivePlayer, player_info: Mapping[str, Any]) -> Any:
        """Update a player."""

    def finish_job(self, job_info: Mapping[str, Any]) -> None:
        """Count the games of a job in the records and, if `eval_flag` is true, in the ratings.

        Args:
            job_info: `player_id`, the names of both players, and `result`; see `BattleSharedPayoff.update`.
        """
        with self._lock:
            if not self.payoff.update(job_info) or not job_info.get("eval_flag", False):
                return
            home, away = map(self.get_player_by_id, job_info["player_id"])
            if home is not away:
                results = flat_results(job_info["result"])
                home.rating, away.rating = self.metric_env.rate_1vs1(home.rating, away.rating, result=results)

    def state_dict(self) -> dict[str, Any]:
        """Return the players, their records and ratings, in plain values and arrays, without the weights."""
        with self._lock:
            historical = [
                {
                    "player_id": player.player_id,
                    "parent_id": player.parent_id,
                    "category": player.category,
                    "checkpoint": os.path.basename(player.checkpoint_path),
                    **player.state_dict(),
                }
                for player in self.historical_players
            ]
            return {
                "active_players": {player.player_id: player.state_dict() for player in self.active_players},
                "historical_players": historical,
                "payoff": self.payoff.state_dict(),
            }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a `state_dict`. The weights of its players must be in `path_policy`.

        Raises:
            KeyError: its active players differ.
        """
        with self._lock:
            active, states = {player.player_id: player for player in self.active_players}, state_dict["active_players"]
            if active.keys() != states.keys():
                raise KeyError(
                    f"the state has the active players {', '.join(states)}, the league {', '.join(active)}; create the "
                    "league with the config of the state"
                )
            for player_id, own in active.items():
                own.load_state_dict(states[player_id], self.create_rating)
            known = {player.player_id: player for player in self.historical_players}
            added = []
            for state in state_dict["historical_players"]:
                player = known.get(state["player_id"])
                if player is None:
                    player = self._historical_player(active[state["parent_id"]], state)
                    added.append(player)
                player.load_state_dict(state, self.create_rating)
            self.payoff.load_state_dict(state_dict["payoff"])
            for player in added:
                self._add_historical(player)

    def _historical_player(self, parent: ActivePlayer, state: Mapping[str, Any]) -> HistoricalPlayer:
        path = os.path.join(self.path_policy, state["checkpoint"])
        about = state["category"], self.payoff, path, state["player_id"], state["total_agent_step"], None
        return HistoricalPlayer(parent._cfg, *about, parent_id=parent.player_id)

    def player_rank(self, string: bool = False) -> dict[str, float] | str:
        """Return the rating of each player as a number, `PlayerRating.exposure`.

        Args:
            string: whether to return a table, best first, instead of a dict.
        """
        with self._lock:
            players: list[Player] = [*self.active_players, *self.historical_players]
            rank = {player.player_id: player.rating.exposure for player in players}
        if not string:
            return rank
        from tabulate import tabulate

        rows = sorted(rank.items(), key=lambda row: -row[1])
        return tabulate(rows, headers=["player_id", "rating"], tablefmt="pipe")


def copy_checkpoint(source: str, target: str, follow_links: bool = False) -> None:
    """Copy a file of weights atomically, creating the folder of `target`.

    Args:
        source: path of the file.
        target: path of the copy.
        follow_links: whether `source` may be a symbolic link. It must be false for folders that other users can write
            to, because they could choose the file that is copied.

    Raises:
        FileNotFoundError: `source` does not exist.
        OSError: it is a symbolic link and `follow_links` is false, or the copy cannot be written.
    """
    flags = os.O_RDONLY | (0 if follow_links else getattr(os, "O_NOFOLLOW", 0))
    try:
        descriptor = os.open(source, flags)
    except FileNotFoundError as e:
        raise FileNotFoundError(e.errno, "no weights to copy; check that a learner has written them", source) from e
    with open(descriptor, "rb") as content, atomic_write(target) as copy:
        shutil.copyfileobj(content, copy)


def _find(players: list[Any], player_id: Any) -> Any:
    for player in players:
        if player.player_id == player_id:
            return player
    names = ", ".join(player.player_id for player in players)
    raise KeyError(f"the player {player_id!r} is unknown; the players are {names or 'none'}")


def create_league(cfg: Mapping[str, Any], *args: Any) -> BaseLeague:
    """Import `cfg['import_names']`, then create the league `cfg['league_type']`.

    Raises:
        KeyError: no league of this type is registered.
    """
    import_module(cfg.get("import_names", []))
    league: BaseLeague = LEAGUE_REGISTRY.get(cfg.get("league_type", ""))(cfg, *args)
    return league
