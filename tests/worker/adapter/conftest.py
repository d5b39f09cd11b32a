import pytest


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own_without_an_operator(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVER_URL", raising=False)
