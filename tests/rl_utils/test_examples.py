import doctest
import importlib
import pkgutil

import pytest

import ding.rl_utils

MODULES = [f"ding.rl_utils.{module.name}" for module in pkgutil.iter_modules(ding.rl_utils.__path__)]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_the_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0
