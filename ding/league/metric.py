"""Ratings of players; TrueSkill ratings are imported on first access, because they need the package trueskill."""

from typing import TYPE_CHECKING

from ding.league.elo import get_elo, get_elo_array
from ding.utils.import_helper import lazy_names

if TYPE_CHECKING:
    from ding.league.rating import LeagueMetricEnv, PlayerRating

__all__ = ["LeagueMetricEnv", "PlayerRating", "get_elo", "get_elo_array"]

__getattr__ = lazy_names(__name__, dict.fromkeys(("LeagueMetricEnv", "PlayerRating"), "ding.league.rating"))
