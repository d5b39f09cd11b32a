import pytest

from tests.entry.fakes import TinyEnv
from tests.own_folder import own_folder as own_folder


@pytest.fixture(autouse=True)
def no_env_made(monkeypatch):
    monkeypatch.setattr(TinyEnv, "made", [])
