"""Leagues: players, matchmaking, records and ratings for self-play training."""

from typing import TYPE_CHECKING

from ding.league.base_league import BaseLeague, OneVsOneLeague, create_league
from ding.league.metric import get_elo, get_elo_array
from ding.league.player import ActivePlayer, HistoricalPlayer, NaiveSpPlayer, Player, create_player, pfsp, uniform
from ding.league.shared_payoff import BattleSharedPayoff, create_payoff
from ding.utils.import_helper import lazy_names

if TYPE_CHECKING:
    from ding.league.rating import LeagueMetricEnv, PlayerRating

__all__ = [
    "ActivePlayer",
    "BaseLeague",
    "BattleSharedPayoff",
    "HistoricalPlayer",
    "LeagueMetricEnv",
    "NaiveSpPlayer",
    "OneVsOneLeague",
    "Player",
    "PlayerRating",
    "create_league",
    "create_payoff",
    "create_player",
    "get_elo",
    "get_elo_array",
    "pfsp",
    "uniform",
]

# They need the optional package trueskill.
__getattr__ = lazy_names(
    __name__, dict.fromkeys(("LeagueMetricEnv", "PlayerRating"), "ding.league.rating"), is_listed=False
)
