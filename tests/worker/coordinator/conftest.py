import numpy as np
import pytest

from tests.worker.coordinator.trainings import Trainer


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own_with_a_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.random.seed(0)


@pytest.fixture
def trainer():
    trainer = Trainer()
    yield trainer
    trainer.close()
