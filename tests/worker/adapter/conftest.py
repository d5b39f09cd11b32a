import pytest


@pytest.fixture(autouse=True)
def _without_an_operator(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVER_URL", raising=False)
