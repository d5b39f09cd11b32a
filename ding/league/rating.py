"""TrueSkill ratings of the players of a league, which need the package trueskill."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ding.league.metric import get_elo
from ding.utils.import_helper import missing_package

try:
    import trueskill
except ImportError as e:
    raise missing_package("the rating of a league", "trueskill", "league") from e


class PlayerRating(trueskill.Rating):  # type: ignore[misc]
    """A player's skill, normally distributed with mean `mu` and standard deviation `sigma`, and an Elo rating `elo`."""

    def __init__(self, mu: float | None = None, sigma: float | None = None, elo_init: int = 1200) -> None:
        super().__init__(mu, sigma)
        self.elo = elo_init

    @property
    def exposure(self) -> float:
        """A conservative estimate of the skill: `mu - 3 sigma`."""
        return float(self.mu - 3 * self.sigma)

    def __repr__(self) -> str:
        return f"PlayerRating(mu={self.mu:.3f}, sigma={self.sigma:.3f}, elo={self.elo})"


class LeagueMetricEnv(trueskill.TrueSkill):  # type: ignore[misc]
    """Environment of ratings by TrueSkill and by Elo.

    See Herbrich et al., "TrueSkill: A Bayesian skill rating system" (2006).

    Args:
        args, kwargs: arguments of `trueskill.TrueSkill`: `mu`, `sigma`, `beta`, `tau`, `draw_probability`.
        elo_init: Elo rating of a new player.

    Example:
        >>> env = LeagueMetricEnv(mu=0, sigma=25 / 3, beta=25 / 6, tau=0.0, draw_probability=0.02)
        >>> env.rate_1vs1(env.create_rating(), env.create_rating(), result=["wins"])
        (PlayerRating(mu=4.243, sigma=7.190, elo=1216), PlayerRating(mu=-4.243, sigma=7.190, elo=1184))
    """

    def __init__(self, *args: Any, elo_init: int = 1200, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.elo_init = elo_init

    def create_rating(
        self, mu: float | None = None, sigma: float | None = None, elo_init: int | None = None
    ) -> PlayerRating:
        """Create a rating, by default that of a new player."""
        return PlayerRating(
            self.mu if mu is None else mu,
            self.sigma if sigma is None else sigma,
            self.elo_init if elo_init is None else elo_init,
        )

    def rate_1vs1(
        self, team1: PlayerRating, team2: PlayerRating, result: Iterable[str] | None = None, **kwargs: Any
    ) -> tuple[PlayerRating, PlayerRating]:
        """Return the new ratings of two players after their games; the given ratings do not change.

        Args:
            team1, team2: the ratings before the games.
            result: result of each game for the first player: 'wins', 'draws' or 'losses'; None for a single game that
                the first player won, or with `drawn=True` for a draw.
            kwargs: arguments of `trueskill.rate_1vs1`.

        Raises:
            ValueError: a result has another value.
        """
        drawn = bool(kwargs.pop("drawn", False))
        for game in [("draws" if drawn else "wins")] if result is None else result:
            team1, team2 = self._rate(team1, team2, game, kwargs)
        return team1, team2

    def _rate(
        self, team1: PlayerRating, team2: PlayerRating, game: str, kwargs: dict[str, Any]
    ) -> tuple[PlayerRating, PlayerRating]:
        if game == "losses":
            team2, team1 = self._rate(team2, team1, "wins", kwargs)
            return team1, team2
        if game not in ("wins", "draws"):
            raise ValueError(f"result = {game!r} is not allowed; it must be 'wins', 'draws' or 'losses'")
        drawn = game == "draws"
        new1, new2 = trueskill.rate_1vs1(team1, team2, drawn=drawn, env=self, **kwargs)
        elo1, elo2 = get_elo(team1.elo, team2.elo, 0 if drawn else 1)
        return PlayerRating(new1.mu, new1.sigma, elo1), PlayerRating(new2.mu, new2.sigma, elo2)

    def rate_1vsC(self, team1: PlayerRating, team2: PlayerRating, result: Iterable[str]) -> PlayerRating:
        """Return the rating of the first player after games against a fixed rating; see `rate_1vs1`."""
        for game in result:
            team1, _ = self.rate_1vs1(team1, team2, [game])
        return team1
