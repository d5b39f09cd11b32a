"""How the games between the players of a league have ended."""

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
    """Games of two players, seen from one of them: `wins`, `draws`, `losses` and `games`, older games weighing less."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys((*RESULTS, "games"), 0.0))

    def add(self, result: str, decay: float = 1.0) -> None:
        """Count a game, after all counters were multiplied by `decay`."""
        for key in self:
            self[key] *= decay
        self[result] += 1
        self["games"] += 1


class BattleSharedPayoff:
    """The records of all pairs of players. Thread-safe.

    Args:
        cfg: `decay`, by which all counters of a pair are multiplied with each game of it, and `min_win_rate_games`, the
            number of games below which the win rate counts as 0.5.

    Raises:
        ConfigError: a value is not allowed, or missing.

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
        """All players, in the order in which they came."""
        return list(self._players.values())

    def add_player(self, player: Player) -> None:
        """Keep the records of another player.

        Raises:
            ValueError: another player has its id.
        """
        with self._lock:
            if player.player_id in self._players:
                raise ValueError(f"there is a player {player.player_id!r} already; ids must differ")
            self._players[player.player_id] = player

    def get_key(self, home: str, away: str) -> tuple[str, bool]:
        """The key under which the games of two players are kept, and whether it names the second one first."""
        return (f"{home}-{away}", False) if home <= away else (f"{away}-{home}", True)

    def __getitem__(self, players: tuple[Player | Sequence[Player], Player | Sequence[Player]]) -> np.ndarray:
        """Win rates, `(wins + draws / 2) / games`, of the first players against the second ones.

        Returns:
            [homes, aways], or a vector where one side is a single player.
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
        """Count the games of a job. A player's games against itself count as one draw.

        Args:
            job_info: `player_id`, those of the first and the second player, and `result`, a list (or a list of lists)
                of what the games were for the first one: 'wins', 'draws' or 'losses'.

        Returns:
            whether they were counted; none is where a player is unknown or a result is not allowed, which is logged.
        """
        try:
            home, away, results = self._checked(job_info)
        except (KeyError, TypeError, ValueError) as e:
            _logger.error("the games %r are not counted: %s", job_info, e)
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
                raise KeyError(f"the player {player_id!r} is unknown; there are {', '.join(self._players) or 'none'}")
        return home, away, flat_results(job_info["result"])

    def state_dict(self) -> dict[str, dict[str, float]]:
        """The records by pair of players."""
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
    """The results in a list, or in a list of lists, one after the other.

    Raises:
        TypeError: it is no such list.
        ValueError: there is a result that is not allowed.
    """
    if isinstance(results, str):
        raise TypeError(f"result must be a list, got {results!r}")
    flat: list[str] = []
    for entry in results:
        flat.extend([entry] if isinstance(entry, str) else entry)
    for result in flat:
        if result not in RESULTS:
            raise ValueError(f"the result {result!r} is not allowed; it must be one of {', '.join(RESULTS)}")
    return flat


_PAYOFFS = {"battle": BattleSharedPayoff}


def create_payoff(cfg: Mapping[str, Any]) -> BattleSharedPayoff:
    """The payoff of the type `cfg['type']`: 'battle'.

    Raises:
        ConfigError: there is no such type, or a value is not allowed.
    """
    check_config(cfg, "payoff", dict.fromkeys(("decay", "min_win_rate_games"), anything))
    kind = cfg.get("type")
    if kind not in _PAYOFFS:
        raise ConfigError(f"payoff.type = {kind!r} is not allowed; it must be one of {', '.join(_PAYOFFS)}")
    return _PAYOFFS[kind](cfg)
