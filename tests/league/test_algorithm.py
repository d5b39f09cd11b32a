import numpy as np
import pytest

from ding.league.player import pfsp, uniform


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [("squared", [64 / 93, 4 / 93, 25 / 93]), ("variance", [16 / 57, 16 / 57, 25 / 57])],
)
def test_opponents_are_weighted_by_the_win_rate_against_them(weighting, expected):
    np.testing.assert_allclose(pfsp(np.array([0.2, 0.8, 0.5]), weighting), expected)


@pytest.mark.differs("gives NaN in `pfsp` if every win rate is 1", "treats all opponents as equally probable")
@pytest.mark.parametrize(("weighting", "rates"), [("squared", [1, 1]), ("variance", [0, 1]), ("squared", [0, 0])])
def test_opponents_without_any_weight_are_equally_probable(weighting, rates):
    assert pfsp(np.array(rates), weighting).tolist() == [0.5, 0.5]


def test_an_unknown_weighting_is_refused_with_those_there_are():
    with pytest.raises(KeyError):
        pfsp(np.array([0.5]), "cubed")


def test_uniform_looks_at_the_number_of_opponents_alone():
    assert uniform(np.array([0.0, 1.0, 0.3, 0.3])).tolist() == [0.25] * 4
