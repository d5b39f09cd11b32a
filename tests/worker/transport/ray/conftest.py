"""Each test in a folder of its own, with the same seed."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def own_folder_and_seed(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.random.seed(0)
