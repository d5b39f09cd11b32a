import pytest


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    """What the environment of the test run says about tokens and hosts is not meant for these tests."""
    for name in ("DING_TOKEN", "DING_TOKEN_FILE", "DING_HOSTS"):
        monkeypatch.delenv(name, raising=False)
