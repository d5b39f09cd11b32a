import numpy as np
import pytest

from ding.league import get_elo, get_elo_array


def test_a_draw_draws_ratings_together_and_a_win_apart():
    assert get_elo(1613, 1573, 0) == (1611, 1575)
    assert get_elo(1611, 1575, 1) == (1625, 1561)


def test_a_loss_is_a_win_of_the_other():
    assert get_elo(1611, 1575, -1) == get_elo(1575, 1611, 1)[::-1]


def test_k_factor_and_beta_scale_what_is_won():
    assert get_elo(1000, 1000, 1, k_factor=10) == (1005, 995)
    assert get_elo(1400, 1000, 1, beta=100) == (1400, 1000)


@pytest.mark.parametrize("result", [2, 0.5, "wins", None])
def test_another_result_is_refused(result):
    with pytest.raises(ValueError, match="must be 1"):
        get_elo(1000, 1000, result)


@pytest.mark.parametrize("result", [1, 0, -1])
def test_a_single_game_in_an_array_counts_like_one_of_two_players(result):
    rated = get_elo_array(np.array([1613, 1573]), np.array([[0, result], [-result, 0]]), np.array([[0, 1], [1, 0]]))
    assert tuple(rated) == get_elo(1613, 1573, result) and rated.dtype == np.int64


@pytest.mark.differs(
    "counts several games of a pair as one in `get_elo_array`",
    "counts each; `result` is wins less losses",
)
def test_all_games_of_a_round_are_rated_by_the_ratings_before_it():
    counts = np.array([[0, 3, 0], [3, 0, 1], [0, 1, 0]])
    results = np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 0]])  # two wins and a loss; a draw
    assert get_elo_array(np.array([1000, 1000, 1000]), results, counts).tolist() == [1016, 984, 1000]
