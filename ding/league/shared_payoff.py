"""Records of the games between players of a league."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ding.league.player import Player
from ding.utils.config_helper import ConfigError, anything, check_config, integer, number

RESULTS = ("wins", "draws", "losses")
_REVERSED = {"wins": "losses", "draws": "draws", "losses": "wins"}
_logger = logging.getLogger("ding")


class BattleRecord(dict[str, float]):
    """The games of two players from the view of one, as decayed counts `wins`, `draws`, `losses` and `games`."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys((*RESULTS, "games"), 0.0))

    def add(self, result: str, decay: float = 1.0) -> None:
        """Multiply all counts by `decay`, then count a game."""
        for key in self:
            self[key] *= decay
        self[result] += 1
        self["games"] += 1


class BattleSharedPayoff:
    """Thread-safe records of all pairs of players.

    Args:
        cfg: `decay`, by which each game multiplies the earlier counts of its pair, and `min_win_rate_games`, the number
            of games below which the win rate is 0.5.

    Raises:
        ConfigError: a value is missing or not allowed.

    Example:
        >>> from ding.league.player import Player
        >>> payoff = BattleSharedPayoff({"decay": 0.99, "min_win_rate_games": 2})
        >>> home, away = (Player({}, "default", payoff, f"{name}_ckpt.pth", name, 0, None) for name in ("b", "a"))
        >>> payoff.add_player(home), payoff.add_player(away)
        (None, None)
        >>> payoff.update({"player_id": ["b", "a"], "result": [["wins"], ["draws", "wins", "wins"]]})
        True
        >>> payoff[home, away].round(3).tolist(), payoff[away, [home, away]].round(3).tolist()
        ([0.876], [0.124, 0.5])
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        rules = {"decay": number(0, 1), "min_win_rate_games": integer(0)}
        check_config(cfg, type(self).__name__, rules, required=rules)
        self._decay = float(cfg["decay"])
        self._min_win_rate_games = cfg["min_win_rate_games"]
        self._players: dict[str, Player] = {}
        self._data: dict[str, BattleRecord] = defaultdict(BattleRecord)  # of pairs that have played
        self._lock = threading.Lock()

    @property
    def players(self) -> list[Player]:
        """All players, in the order in which they were added."""
        return list(self._players.values())

    def add_player(self, player: Player) -> None:
        """Add a player.

        Raises:
            ValueError: another player has the same id.
        """
        with self._lock:
            if player.player_id in self._players:
                raise ValueError(f"player_id = {player.player_id!r} is not allowed: it is taken; ids must be unique")
            self._players[player.player_id] = player

    def get_key(self, home: str, away: str) -> tuple[str, bool]:
        """Return the key of the record of two players, and whether it names the second player first."""
        return (f"{home}-{away}", False) if home <= away else (f"{away}-{home}", True)

    def __getitem__(self, players: tuple[Player | Sequence[Player], Player | Sequence[Player]]) -> np.ndarray:
        """Return the win rates, `(wins + draws / 2) / games`, of the first players against the second ones.

        The shape is [homes, aways], or a vector if one side has a single player.
        """
        homes, aways = ([side] if isinstance(side, Player) else list(side) for side in players)
        with self._lock:
            rates = [[self._win_rate(home.player_id, away.player_id) for away in aways] for home in homes]
        table = np.array(rates, dtype=np.float64).reshape(len(homes), len(aways))
        return table.reshape(-1) if 1 in table.shape else table

    def _win_rate(self, home: str, away: str) -> float:
        key, is_reversed = self.get_key(home, away)
        record = self._data.get(key)
        if record is None or record["games"] < self._min_win_rate_games:
            return 0.5
        won = record["losses" if is_reversed else "wins"]
        return (won + record["draws"] / 2) / record["games"]

    def update(self, job_info: Mapping[str, Any]) -> bool:
        """Count the games of a job; games of a player against itself count as one draw.

        Args:
            job_info: `player_id`, the names of the first and the second player, and `result`, a list (or a list of
                lists) of the results of the first one: 'wins', 'draws' or 'losses'.

        Returns:
            Whether the games were counted. If a player is unknown or a result is not allowed, an error is logged, and
            no game counts.
        """
        try:
            home, away, results = self._checked(job_info)
        except (KeyError, TypeError, ValueError) as e:
            _logger.error("ignored the games %r: %s", job_info, e)
            return False
        key, is_reversed = self.get_key(home, away)
        with self._lock:
            if home == away:
                self._data[key].add("draws")
                return True
            for result in results:
                self._data[key].add(_REVERSED[result] if is_reversed else result, self._decay)
        return True

    def _checked(self, job_info: Mapping[str, Any]) -> tuple[str, str, list[str]]:
        home, away = job_info["player_id"]
        for player_id in (home, away):
            if player_id not in self._players:
                names = ", ".join(self._players) or "none"
                raise KeyError(f"the player {player_id!r} is unknown; the players are {names}")
        return home, away, flat_results(job_info["result"])

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Return the records by pair of players."""
        with self._lock:
            return {key: dict(record) for key, record in self._data.items()}

    def load_state_dict(self, state_dict: Mapping[str, Mapping[str, float]]) -> None:
        """Replace all records."""
        with self._lock:
            self._data.clear()
            for key, record in state_dict.items():
                self._data[key].update(record)

    def __repr__(self) -> str:
        from tabulate import tabulate

        with self._lock:
            rows = [[key, *(round(count, 3) for count in record.values())] for key, record in self._data.items()]
        return tabulate(rows, headers=["players", *BattleRecord()], tablefmt="pipe")


def flat_results(results: Iterable[Any]) -> list[str]:
    """Flatten a list, or a list of lists, of results.

    Raises:
        TypeError: `results` is not such a list.
        ValueError: a result is not allowed.
    """
    if isinstance(results, str):
        raise TypeError(f"result = {results!r} is not allowed; it must be a list")
    flat: list[str] = []
    for entry in results:
        flat.extend([entry] if isinstance(entry, str) else entry)
    for result in flat:
        if result not in RESULTS:
            raise ValueError(f"result = {result!r} is not allowed; it must be one of {', '.join(RESULTS)}")
    return flat


def create_payoff(cfg: Mapping[str, Any]) -> BattleSharedPayoff:
    """Create the payoff of the type `cfg['type']`: 'battle'.

    Raises:
        ConfigError: the type is unknown, or a value is missing or not allowed.
    """
    check_config(cfg, "payoff", dict.fromkeys(("decay", "min_win_rate_games"), anything))
    if cfg.get("type") != "battle":
        raise ConfigError(f"payoff.type = {cfg.get('type')!r} is not allowed; it must be 'battle'")
    return BattleSharedPayoff(cfg)
