import pytest


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    """What the environment of the test run says about tokens, hosts and certificates is not meant for these tests."""
    for name in ("DING_TOKEN", "DING_TOKEN_FILE", "DING_HOSTS", "DING_TLS_CERT", "DING_TLS_KEY", "DING_TLS_CA"):
        monkeypatch.delenv(name, raising=False)
