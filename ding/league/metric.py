"""Ratings of players: Elo, and TrueSkill of `rating.py`, imported on access, since it needs the package trueskill."""

from __future__ import annotations

import numpy as np

from ding.utils.import_helper import lazy_names

__getattr__ = lazy_names(
    __name__, dict.fromkeys(("LeagueMetricEnv", "PlayerRating"), "ding.league.rating"), is_listed=False
)

_SCORES = {1: 1.0, 0: 0.5, -1: 0.0}


def get_elo(rating_a: int, rating_b: int, result: int, k_factor: int = 32, beta: int = 200) -> tuple[int, int]:
    """Return the rounded Elo ratings of two players after a game.

    They are `R' = R + K (S - 1 / (1 + 10^(-(R - R_other) / (2 beta))))`, where the score S is 1 for a win, 0.5 for a
    draw and 0 for a loss.

    Args:
        rating_a, rating_b: the ratings before the game.
        result: result of the first player: 1 for a win, 0 for a draw, -1 for a loss.
        k_factor: k, the maximum change of a rating.
        beta: half the difference of ratings at which the odds are 10 to 1.

    Raises:
        ValueError: `result` has another value.

    Example:
        >>> get_elo(1613, 1573, 0), get_elo(1611, 1575, 1)
        ((1611, 1575), (1625, 1561))
    """
    if result not in _SCORES:
        raise ValueError(f"result = {result!r} is not allowed; it must be 1 (a win), 0 (a draw) or -1 (a loss)")
    gain = k_factor * (_SCORES[result] - 1 / (1 + 10 ** ((rating_b - rating_a) / (2 * beta))))
    return round(rating_a + gain), round(rating_b - gain)


def get_elo_array(
    rating: np.ndarray, result: np.ndarray, game_count: np.ndarray, k_factor: int = 32, beta: int = 200
) -> np.ndarray:
    """Return the rounded Elo ratings [players] after a round of games, all computed from the ratings before it.

    Args:
        rating: [players], the ratings before the round.
        result: [players, players], at [a, b] the wins of a against b minus its losses.
        game_count: [players, players], at [a, b] the number of games of a and b.
        k_factor, beta: see `get_elo`.

    Raises:
        ValueError: the shapes do not match.

    Example:
        >>> games = np.array([[0, 1], [1, 0]])
        >>> get_elo_array(np.array([1613, 1573]), np.zeros((2, 2)), games).tolist()
        [1611, 1575]
    """
    rating, result, game_count = np.asarray(rating), np.asarray(result), np.asarray(game_count)
    square = (len(rating), len(rating))
    if rating.ndim != 1 or result.shape != square or game_count.shape != square:
        raise ValueError(
            f"shapes {rating.shape}, {result.shape} and {game_count.shape} are not allowed; they must be [players], "
            "[players, players] and [players, players]"
        )
    expected = 1 / (1 + 10 ** ((rating[None, :] - rating[:, None]) / (2 * beta)))
    gains = (result + game_count) / 2 - game_count * expected
    rated: np.ndarray = np.rint(rating + k_factor * gains.sum(axis=1)).astype(np.int64)
    return rated
