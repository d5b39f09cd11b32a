"""The short way as a newcomer walks it, see `tests/newcomer.py`."""

import pytest

from tests.newcomer import walk


@pytest.mark.slow
def test_a_newcomer_walks_the_short_way(tmp_path):
    walk(tmp_path)
