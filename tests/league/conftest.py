import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own_with_a_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.random.seed(0)
