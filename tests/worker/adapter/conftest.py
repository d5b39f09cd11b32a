import pytest


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own_without_tokens_or_an_operator(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("DING_TOKEN", "DING_TOKEN_FILE", "DING_HOSTS", "KUBERNETES_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
