"""Players and leagues by config, and files of weights."""

import pathlib
from typing import Any

from ding.league import BattleSharedPayoff, HistoricalPlayer, NaiveSpPlayer, OneVsOneLeague

SETTINGS = {"one_phase_step": 10, "branch_probs": {"pfsp": 0.5, "sp": 0.5}, "strong_win_rate": 0.7}


def payoff(decay: float = 0.99, min_win_rate_games: int = 8) -> BattleSharedPayoff:
    return BattleSharedPayoff({"type": "battle", "decay": decay, "min_win_rate_games": min_win_rate_games})


def active(of: BattleSharedPayoff, name: str = "home", kind: type = NaiveSpPlayer, **settings: Any) -> Any:
    """A player that is entered in the payoff."""
    player = kind({**SETTINGS, **settings}, "default", of, f"folder/{name}_ckpt.pth", name, 0, lambda: None)
    of.add_player(player)
    return player


def historical(of: BattleSharedPayoff, name: str) -> HistoricalPlayer:
    player = HistoricalPlayer({}, "default", of, f"folder/{name}.pth", name, 0, None, parent_id="home")
    of.add_player(player)
    return player


def games(of: BattleSharedPayoff, home: str, away: str, *results: str) -> None:
    assert of.update({"player_id": [home, away], "result": [list(results)]})


def league(kind: type = OneVsOneLeague, **cfg: Any) -> Any:
    return kind({"path_policy": "policy", **cfg})


def write(path: str, content: str) -> None:
    pathlib.Path(path).write_text(content)


def read(path: str) -> str:
    return pathlib.Path(path).read_text()
