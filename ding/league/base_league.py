"""A league: players that are trained, earlier selves of them, and who plays against whom."""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from easydict import EasyDict

from ding.league.checkpoints import copy_checkpoint
from ding.league.league_config import (
    active_seats,
    check_league_config,
    merge_league_config,
    metric_settings,
    pretrained_path,
    pretrained_seats,
)
from ding.league.league_state import league_state, restore_league
from ding.league.player import ActivePlayer, HistoricalPlayer, Player, create_player
from ding.league.shared_payoff import create_payoff, flat_results
from ding.utils.config_helper import default_config_of
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import LEAGUE_REGISTRY
from ding.utils.system_helper import get_task_uid

if TYPE_CHECKING:
    from ding.league.rating import LeagueMetricEnv

_logger = logging.getLogger("ding")


class BaseLeague(ABC):
    """Keeps players, their records and ratings, and gives jobs. Thread-safe.

    A subclass says what a job is (`_get_job_info`), and what becomes of a player when something is told of it
    (`_update_player`) and after a snapshot (`_mutate_player`).

    Ratings need the package trueskill; it is loaded when one of them is first asked for.

    Args:
        cfg: merged into the defaults; its `active_players` replace them. `path_policy`, the folder of the weights, must
            be given; the folder is made with its parents.

    Attributes:
        cfg: the merged config.
        active_players: as many of each type, for each category, as `cfg.active_players` = `{type: count}` says; they
            are called `<type>_<category>_<number>`, their weights are `<path_policy>/<name>_ckpt.pth`.
        historical_players: in the order in which they came.
        payoff: the records of all players.

    Raises:
        ConfigError: a value is not allowed, or missing.
        KeyError: no player is registered under a type.
        FileNotFoundError: weights to begin with are not there.
        OSError: the folder cannot be made.
    """

    config: dict[str, Any] = {
        "league_type": "base",
        "import_names": ["ding.league"],
        "player_category": ["default"],
        # How many players of which type, for each category.
        "active_players": {},
        # Whether players begin with the weights in `pretrain_checkpoint_path`, by category, and whether there are
        # opponents with these weights, too.
        "use_pretrain": False,
        "use_pretrain_init_historical": False,
        "pretrain_checkpoint_path": {"default": "default_cate_pretrain.pth"},
        "payoff": {"type": "battle", "decay": 0.99, "min_win_rate_games": 8},
        # See `LeagueMetricEnv`.
        "metric": {"mu": 0, "sigma": 25 / 3, "beta": 25 / 6, "tau": 0.0, "draw_probability": 0.02},
    }

    @classmethod
    def default_config(cls) -> EasyDict:
        """A fresh copy of the class's defaults, with `cfg_type` = `<ClassName>Dict`."""
        return default_config_of(cls)

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
        for kind, category, player_id in active_seats(self.cfg):
            path = os.path.join(self.path_policy, f"{player_id}_ckpt.pth")
            if self.cfg.use_pretrain:
                copy_checkpoint(pretrained_path(self.cfg, category), path, follow_links=True)
            of_kind = self.cfg.get(kind) or EasyDict()
            about = of_kind, category, self.payoff, path, player_id, 0, self.create_rating
            player: Any = create_player(self.cfg, kind, *about)
            self.active_players.append(player)
            self.payoff.add_player(player)

    def _make_pretrained_opponents(self) -> None:
        for (kind, category, player_id), parent_id in pretrained_seats(self.cfg):
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
        """The names of the players that are trained."""
        return [player.player_id for player in self.active_players]

    @property
    def active_players_ckpts(self) -> list[str]:
        """Where their weights lie."""
        return [player.checkpoint_path for player in self.active_players]

    @property
    def metric_env(self) -> LeagueMetricEnv:
        """What rates the players.

        Raises:
            ImportError: the package trueskill is not installed.
        """
        with self._lock:
            if self._metric_env is None:
                from ding.league.rating import LeagueMetricEnv

                self._metric_env = LeagueMetricEnv(**metric_settings(self.cfg))
            return self._metric_env

    def create_rating(self, *args: Any, **kwargs: Any) -> Any:
        """A rating; see `LeagueMetricEnv.create_rating`."""
        return self.metric_env.create_rating(*args, **kwargs)

    def get_player_by_id(self, player_id: str) -> Player:
        """The player of that name.

        Raises:
            KeyError: there is none.
        """
        player: Player = _find([*self.active_players, *self.historical_players], player_id)
        return player

    def get_job_info(self, player_id: str | None = None, eval_flag: bool = False) -> dict[str, Any]:
        """Games for an active player, the first one by default; see `_get_job_info`.

        Raises:
            KeyError: there is no such active player.
        """
        with self._lock:
            player = self.active_players[0] if player_id is None else _find(self.active_players, player_id)
            return self._get_job_info(player, eval_flag)

    @abstractmethod
    def _get_job_info(self, player: ActivePlayer, eval_flag: bool = False) -> dict[str, Any]:
        """Games for `player`: `launch_player`, its name, and whatever those must know who have them played."""

    def judge_snapshot(self, player_id: str, force: bool = False) -> bool:
        """Add the player as it is now to the historical players if it is trained enough, or with `force`.

        A further snapshot of the same iteration only replaces the weights.

        Returns:
            whether a snapshot was taken.

        Raises:
            KeyError: there is no such active player.
            FileNotFoundError: it has no weights yet.
        """
        with self._lock:
            player = _find(self.active_players, player_id)
            if not (force or player.is_trained_enough()):
                return False
            historical = player.snapshot(self)  # in the place of the metric env, which is loaded when it is needed
            self.save_checkpoint(player.checkpoint_path, historical.checkpoint_path)
            if all(known.player_id != historical.player_id for known in self.historical_players):
                self._add_historical(historical)
            self._mutate_player(player)
            return True

    @staticmethod
    def save_checkpoint(src_checkpoint: str, dst_checkpoint: str) -> None:
        """Copy weights for a snapshot.

        Raises:
            FileNotFoundError: there are none.
        """
        copy_checkpoint(src_checkpoint, dst_checkpoint)

    @abstractmethod
    def _mutate_player(self, player: ActivePlayer) -> None:
        """What becomes of a player after its snapshot."""

    def update_active_player(self, player_info: Mapping[str, Any]) -> Any:
        """Take news of an active player; see `_update_player`.

        Args:
            player_info: `player_id` and the news.

        Returns:
            what `_update_player` returns; None where the player is unknown, which is logged.
        """
        with self._lock:
            try:
                player = _find(self.active_players, player_info["player_id"])
            except KeyError as e:
                _logger.error("the news %r are ignored: %s", player_info, e)
                return None
            return self._update_player(player, player_info)

    @abstractmethod
    def _update_player(self, player: ActivePlayer, player_info: Mapping[str, Any]) -> Any:
        """Take news of a player."""

    def finish_job(self, job_info: Mapping[str, Any]) -> None:
        """Count the games of a job in the records and, where `eval_flag` is true, in the ratings.

        Args:
            job_info: `player_id`, those of both players, and `result`; see `BattleSharedPayoff.update`.
        """
        with self._lock:
            if not self.payoff.update(job_info) or not job_info.get("eval_flag", False):
                return
            home, away = map(self.get_player_by_id, job_info["player_id"])
            if home is not away:
                results = flat_results(job_info["result"])
                home.rating, away.rating = self.metric_env.rate_1vs1(home.rating, away.rating, result=results)

    def state_dict(self) -> dict[str, Any]:
        """The players, their records and their ratings, in plain values and arrays; the weights are not in it."""
        with self._lock:
            return league_state(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on with the league that a `state_dict` tells of, the weights of whose players must be in `path_policy`.

        Raises:
            KeyError: its active players are others.
        """
        with self._lock:
            for player in restore_league(self, state_dict):
                self._add_historical(player)

    def player_rank(self, string: bool = False) -> dict[str, float] | str:
        """The ratings of all players, as one number each: `PlayerRating.exposure`.

        Args:
            string: as a table, best first.
        """
        with self._lock:
            players: list[Player] = [*self.active_players, *self.historical_players]
            rank = {player.player_id: player.rating.exposure for player in players}
        if not string:
            return rank
        from tabulate import tabulate

        rows = sorted(rank.items(), key=lambda row: -row[1])
        return tabulate(rows, headers=["player_id", "rating"], tablefmt="pipe")


def _find(players: list[Any], player_id: Any) -> Any:
    for player in players:
        if player.player_id == player_id:
            return player
    names = ", ".join(player.player_id for player in players)
    raise KeyError(f"the player {player_id!r} is unknown; there are {names or 'none'}")


def create_league(cfg: Mapping[str, Any], *args: Any) -> BaseLeague:
    """The league of the type `cfg['league_type']`, after importing `cfg['import_names']`.

    Raises:
        KeyError: no league is registered under that type.
    """
    import_module(cfg.get("import_names", []))
    league: BaseLeague = LEAGUE_REGISTRY.get(cfg.get("league_type", ""))(cfg, *args)
    return league
