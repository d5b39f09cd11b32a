"""The base class of leagues."""

from __future__ import annotations

import copy
import itertools
import logging
import os
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from easydict import EasyDict

from ding.league.player import ActivePlayer, HistoricalPlayer, Player, create_player
from ding.league.shared_payoff import create_payoff, flat_results
from ding.utils.config_helper import (
    NO_DEFAULT,
    ConfigError,
    Configurable,
    Setting,
    Settings,
    anything,
    boolean,
    check_config,
    instance_of,
    integer,
    number,
)
from ding.utils.default_helper import deep_merge_dicts
from ding.utils.file_helper import atomic_write
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import LEAGUE_REGISTRY
from ding.utils.system_helper import get_task_uid

if TYPE_CHECKING:
    from ding.league.rating import LeagueMetricEnv

LEAGUE_SETTINGS = Settings(
    {
        "league_type": Setting("base", instance_of(str), "Registered name of the league."),
        "import_names": Setting(["ding.league"], None, "Modules to import first."),
        "player_category": Setting(["default"], instance_of(list, tuple), "Names of the categories of players."),
        "active_players": Setting({}, instance_of(Mapping), "Number of players of each type, for each category."),
        "use_pretrain": Setting(
            False, boolean, "Whether players start with the weights in `pretrain_checkpoint_path`."
        ),
        "use_pretrain_init_historical": Setting(
            False, boolean, "Whether historical players with these weights are added."
        ),
        "pretrain_checkpoint_path": Setting(
            {"default": "default_cate_pretrain.pth"}, anything, "Files of weights, by category."
        ),
        "payoff": Setting(
            {"type": "battle", "decay": 0.99, "min_win_rate_games": 8}, instance_of(Mapping), "Settings of the payoff."
        ),
        "metric.mu": Setting(0, number(), "Initial mean of a rating."),
        "metric.sigma": Setting(25 / 3, number(1e-9), "Initial standard deviation of a rating."),
        "metric.beta": Setting(25 / 6, number(0), "Standard deviation of the performance in a game."),
        "metric.tau": Setting(0.0, number(0), "Growth of the standard deviation before each game."),
        "metric.draw_probability": Setting(0.02, number(0, 1), "Probability of a draw between equal players."),
        "metric.elo_init": Setting(NO_DEFAULT, integer(), "Initial Elo rating."),
        "path_policy": Setting(NO_DEFAULT, instance_of(str), "Folder of the weights."),
    }
)


def merge_league_config(defaults: Mapping[str, Any], cfg: Mapping[str, Any]) -> EasyDict:
    """Return `defaults` updated by `cfg`, with `active_players` replaced; neither argument is changed."""
    merged = EasyDict(deep_merge_dicts(dict(defaults), copy.deepcopy(dict(cfg))))
    if "active_players" in cfg:
        merged.active_players = EasyDict(cfg["active_players"])
    return merged


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
        of_types = {key: anything for key, value in self.cfg.items() if isinstance(value, Mapping) and key != "metric"}
        rules = {**of_types, **LEAGUE_SETTINGS.rules()}  # the sections of types are checked by their players
        check_config(self.cfg, type(self).__name__, rules, required=("path_policy",))
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
        for kind, count in self.cfg.active_players.items():
            allowed = integer(0)(count)
            if allowed is not None:
                raise ConfigError(f"active_players.{kind} = {count!r} is not allowed; it must be {allowed}")
            for category, index in itertools.product(self.cfg.player_category, range(int(count))):
                player_id = f"{kind}_{category}_{index}"
                if self.cfg.use_pretrain:
                    self._copy_pretrained(category, player_id)
                make = partial(create_player, self.cfg, kind)
                player: Any = self._make_player(make, self.cfg.get(kind) or EasyDict(), category, player_id)
                self.active_players.append(player)
                self.payoff.add_player(player)

    def _make_pretrained_opponents(self) -> None:
        """Add a historical player with the pretrained weights of each category.

        Raises:
            ConfigError: its type is ambiguous.
        """
        kinds = [key for key in self.cfg if "main_player" in key] or list(self.cfg.active_players)
        if len(kinds) != 1:
            raise ConfigError(
                "use_pretrain_init_historical needs exactly one config key that contains 'main_player' or, without "
                f"any, one type of active players; found {', '.join(kinds) or 'none'}"
            )
        for category in self.cfg.player_category:
            parent_id = f"{kinds[0]}_{category}_0"
            player_id = f"{parent_id}_pretrain_historical"
            self._copy_pretrained(category, player_id)
            make, settings = partial(HistoricalPlayer, parent_id=parent_id), self.cfg.get(kinds[0]) or EasyDict()
            self._add_historical(self._make_player(make, settings, category, player_id))

    def _make_player(self, make: Callable[..., Any], settings: Any, category: str, player_id: str) -> Any:
        path = self._path_of(player_id)
        return make(settings, category, self.payoff, path, player_id, 0, self.create_rating)

    def _path_of(self, player_id: str) -> str:
        return os.path.join(self.path_policy, f"{player_id}_ckpt.pth")

    def _copy_pretrained(self, category: str, player_id: str) -> None:
        paths = self.cfg.pretrain_checkpoint_path
        path = paths.get(category) if isinstance(paths, Mapping) else None
        if not isinstance(path, str):
            raise ConfigError(
                f"pretrain_checkpoint_path = {paths!r} is not allowed; it must be a dict with the path of a file for "
                f"the category {category!r}"
            )
        copy_checkpoint(path, self._path_of(player_id))

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

                known = {key: value for key, value in self.cfg.metric.items() if f"metric.{key}" in LEAGUE_SETTINGS}
                self._metric_env = LeagueMetricEnv(**known)
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
            KeyError: the name is unknown, or there is no active player.
        """
        with self._lock:
            if not self.active_players:
                raise KeyError("the league has no active player: set active_players and player_category in its config")
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
            for player_id, active_player in active.items():
                self._restore(active_player, states[player_id])
            known = {player.player_id: player for player in self.historical_players}
            for state in state_dict["historical_players"]:
                player = known.get(state["player_id"])
                if player is None:
                    parent, path = active[state["parent_id"]], os.path.join(self.path_policy, state["checkpoint"])
                    category, player_id = state["category"], state["player_id"]
                    player = HistoricalPlayer(
                        parent._cfg, category, self.payoff, path, player_id, 0, None, parent_id=parent.player_id
                    )
                    self._add_historical(player)
                self._restore(player, state)
            self.payoff.load_state_dict(state_dict["payoff"])

    def _restore(self, player: Player, state: Mapping[str, Any]) -> None:
        player.load_state_dict(state)
        if state["rating"] is not None:
            player.rating = partial(self.create_rating, **state["rating"])

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


def copy_checkpoint(source: str, target: str) -> None:
    """Copy a file of weights atomically, creating the folder of `target`.

    Raises:
        FileNotFoundError: `source` does not exist.
        OSError: the copy cannot be written.
    """
    with open(source, "rb") as content, atomic_write(target) as copy:
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


@LEAGUE_REGISTRY.register("one_vs_one")
class OneVsOneLeague(BaseLeague):
    """A league whose jobs are games of two players; see `BaseLeague`.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> league = OneVsOneLeague({"path_policy": folder.name})
        >>> job = league.get_job_info()
        >>> job["player_id"], job["player_active_flag"]
        (['naive_sp_player_default_0', 'naive_sp_player_default_0'], [True, True])
        >>> league.finish_job({"player_id": job["player_id"], "result": [["wins", "losses"]]})
        >>> league.get_job_info(eval_flag=True)["eval_opponent"]
        'RULE_BASED'
        >>> folder.cleanup()
    """

    settings = Settings(
        {
            "league_type": "one_vs_one",
            "active_players": {"naive_sp_player": 1},
            "naive_sp_player.one_phase_step": Setting(
                10, None, "Number of iterations after which a snapshot may be taken; after twice as many it always is."
            ),
            "naive_sp_player.branch_probs": Setting(
                {"pfsp": 0.5, "sp": 0.5}, None, "Probability of each kind of opponent."
            ),
            "naive_sp_player.strong_win_rate": Setting(
                0.7, None, "Win rate against all historical players that an early snapshot requires."
            ),
        },
        BaseLeague.settings,
    )

    def _get_job_info(self, player: ActivePlayer, eval_flag: bool = False) -> dict[str, Any]:
        """Create a job for `player`.

        Returns:
            `agent_num`, `launch_player` (its name), and lists for all players of the game: `player_id`,
            `checkpoint_path` and `player_active_flag` (whether the player is trained). An evaluation has one player,
            and `eval_opponent`.
        """
        opponent = player.get_job(eval_flag)["opponent"]
        players = [player] if eval_flag else [player, opponent]
        job_info = {
            "agent_num": len(players),
            "launch_player": player.player_id,
            "player_id": [one.player_id for one in players],
            "checkpoint_path": [one.checkpoint_path for one in players],
            "player_active_flag": [isinstance(one, ActivePlayer) for one in players],
        }
        return {**job_info, "eval_opponent": opponent} if eval_flag else job_info

    def _mutate_player(self, player: ActivePlayer) -> None:
        """Do nothing: the player continues training."""

    def _update_player(self, player: ActivePlayer, player_info: Mapping[str, Any]) -> bool:
        """Update a player by `train_iteration`, or by `eval_win`, whether it won an evaluation.

        Return whether the difficulty of its evaluations increased.
        """
        if "train_iteration" in player_info:
            player.total_agent_step = player_info["train_iteration"]
            return False
        return bool(player_info.get("eval_win")) and player.increment_eval_difficulty()
