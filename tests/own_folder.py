"""A folder of its own for each test of the packages whose conftest imports the fixture."""

import pytest

from ding.utils import log_helper


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Run the test in an empty folder, and tell it also the warnings that an earlier test has had."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(log_helper, "_warned", set())
    log_helper.one_time_warning.cache_clear()
    return tmp_path
