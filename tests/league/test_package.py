import doctest
import importlib
import pathlib

import pytest

import ding.league

FOLDER = pathlib.Path(ding.league.__file__).parent
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("module", [name for name in MODULES if name != "rating"])
def test_the_examples_in_the_documentation_are_true(module):
    assert doctest.testmod(importlib.import_module(f"ding.league.{module}")).failed == 0


def test_the_example_of_the_ratings_is_true():
    pytest.importorskip("trueskill")
    assert doctest.testmod(importlib.import_module("ding.league.rating")).failed == 0


def test_all_names_are_there_without_the_package_for_ratings():
    later = {"LeagueMetricEnv", "PlayerRating"}
    assert [name for name in ding.league.__all__ if name not in later and not hasattr(ding.league, name)] == []


def test_all_names_are_there_with_it():
    pytest.importorskip("trueskill")
    assert [name for name in ding.league.__all__ if not hasattr(ding.league, name)] == []
