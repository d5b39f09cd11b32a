import importlib
import pickle
import sys
import types

import numpy as np
import pytest
import torch
from easydict import EasyDict
from torch.utils.data import DataLoader

from ding.utils.data.collate_fn import default_collate
from ding.utils.data.dataset import (
    HDF5Dataset,
    NaiveRLDataset,
    create_dataset,
    hdf5_save,
    naive_save,
    offline_data_save_type,
)
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.registry_factory import DATASET_REGISTRY


def transition(index):
    return {
        "obs": torch.full((3,), float(index)),
        "action": torch.tensor([index % 2]),
        "reward": torch.tensor([index / 2]),
        "done": index == 3,
        "next_obs": np.full(3, index + 1, np.float32),
    }


TRANSITIONS = [transition(index) for index in range(4)]


def config(path, data_type="naive", **collect):
    return EasyDict(policy={"collect": {"data_type": data_type, "data_path": str(path), **collect}})


def assert_same(rows):
    assert len(rows) == 4
    for row, expected in zip(rows, TRANSITIONS, strict=True):
        assert row.keys() == expected.keys()
        assert all(torch.equal(torch.as_tensor(row[key]), torch.as_tensor(expected[key])) for key in row)


def test_what_was_saved_is_read_back_at_exactly_that_path(tmp_path):
    path = tmp_path / "new" / "expert.pkl"
    offline_data_save_type(TRANSITIONS, str(path))
    for cfg in (path, str(path), config(path)):
        assert_same(NaiveRLDataset(cfg))
    assert_same(create_dataset(config(path)))


def test_torchs_loader_takes_it(tmp_path):
    naive_save(TRANSITIONS, tmp_path / "expert.pkl")
    batches = list(DataLoader(NaiveRLDataset(tmp_path / "expert.pkl"), 2, collate_fn=default_collate))
    assert [batch["obs"][:, 0].tolist() for batch in batches] == [[0, 1], [2, 3]]


def test_episodes_may_be_of_different_lengths(tmp_path):
    naive_save([TRANSITIONS[:1], TRANSITIONS[1:]], tmp_path / "episodes")
    assert [len(episode) for episode in NaiveRLDataset(tmp_path / "episodes")] == [1, 3]


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "expert.pkl"
    naive_save(TRANSITIONS, path)
    with pytest.raises(TypeError, match="object"):
        naive_save([{"obs": object()}], path)
    assert_same(NaiveRLDataset(path))
    assert [file.name for file in tmp_path.iterdir()] == ["expert.pkl"]


def test_a_pickle_is_read_only_if_it_is_trusted(tmp_path):
    path = tmp_path / "expert.pkl"
    path.write_bytes(pickle.dumps(TRANSITIONS))
    for refused in (str(path), config(path), config(path, trusted=False)):
        with pytest.raises(pickle.UnpicklingError, match=r"is a pickle, and reading it can run any code.*trusted=True"):
            NaiveRLDataset(refused)
    assert_same(NaiveRLDataset(str(path), trusted=True))
    assert_same(create_dataset(config(path, trusted=True)))
    assert_same(create_dataset(config(path), trusted=True))


def test_a_pickle_runs_nothing_while_it_is_refused(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (tmp_path.joinpath("ran").write_text, ("boom",))

    path = tmp_path / "expert.pkl"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(pickle.UnpicklingError):
        NaiveRLDataset(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"garbage", pack([1, 2]), pack({"format": "other", "items": []})])
def test_another_file_is_a_value_error(content, tmp_path):
    path = tmp_path / "expert.pkl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="does not hold demonstrations"):
        NaiveRLDataset(path)


def test_demonstrations_are_a_list(tmp_path):
    path = tmp_path / "expert.pkl"
    path.write_bytes(pickle.dumps({"obs": 1}))
    with pytest.raises(ValueError, match="holds a dict; demonstrations are a list"):
        NaiveRLDataset(path, trusted=True)


def fake_h5py(monkeypatch):
    """Files with the interface of h5py that hold packed arrays."""

    class File:
        def __init__(self, target, mode):
            self._target, self._arrays = target, {}
            if mode == "r":
                with open(target, "rb") as file:
                    self._arrays = unpack(file.read())

        def create_dataset(self, name, data, compression):
            assert compression == "gzip"
            self._arrays[name] = data

        def __iter__(self):
            return iter(self._arrays)

        def __getitem__(self, name):
            return self._arrays[name]

        def __enter__(self):
            return self

        def __exit__(self, *exc_info):
            if not isinstance(self._target, str):
                self._target.write(pack(self._arrays))

    monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace(File=File))


@pytest.fixture
def h5py(monkeypatch):
    fake_h5py(monkeypatch)
    return importlib.import_module("h5py")


@pytest.mark.parametrize("module", ["fake", "real"])
def test_what_was_saved_as_hdf5_is_read_back_row_by_row(module, monkeypatch, tmp_path):
    if module == "real":
        pytest.importorskip("h5py")
    else:
        fake_h5py(monkeypatch)
    offline_data_save_type(TRANSITIONS, str(tmp_path / "new" / "expert.pkl"), data_type="hdf5")
    path = tmp_path / "new" / "expert_demos.hdf5"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    data = create_dataset(config(path, "hdf5"))
    assert_same(data)
    assert_same(HDF5Dataset(str(path)))
    assert data[3]["done"] and data[0]["obs"].dtype == np.float32 and data[0]["action"].dtype == np.int64
    assert data.mean.tolist() == [1.5] * 3 and data.std.tolist() == pytest.approx([1.25**0.5 + 1e-3] * 3)
    batch = default_collate([data[0], data[1]])
    assert batch["reward"].tolist() == [0.0, 0.5] and batch["action"].tolist() == [0, 1]


def test_an_hdf5_path_without_pkl_gets_the_ending_too(h5py, tmp_path):
    hdf5_save(TRANSITIONS, str(tmp_path / "expert"))
    assert (tmp_path / "expert_demos.hdf5").exists()


def test_what_makes_no_arrays_is_not_saved_as_hdf5(h5py, tmp_path):
    with pytest.raises(ValueError, match="at least one transition"):
        hdf5_save([], str(tmp_path / "expert"))
    with pytest.raises(TypeError, match="'obs' of type dict does not make an array"):
        hdf5_save([{**TRANSITIONS[0], "obs": {"a": 1}}], str(tmp_path / "expert"))
    with pytest.raises(KeyError, match="next_obs"):
        hdf5_save([dict.fromkeys(("obs", "action", "reward", "done"), 1.0)], str(tmp_path / "expert"))
    with pytest.raises(ValueError, match="same shape"):
        hdf5_save([TRANSITIONS[0], {**TRANSITIONS[1], "obs": torch.zeros(2)}], str(tmp_path / "expert"))


@pytest.mark.parametrize(
    ("arrays", "found"),
    [
        ({}, "none"),
        ({"reward": np.zeros(2)}, "{'reward': 2}"),
        ({"obs": np.zeros(2), "reward": np.zeros(3)}, "{'obs': 2, 'reward': 3}"),
    ],
)
def test_an_hdf5_file_with_other_data_sets_is_refused(h5py, arrays, found, tmp_path):
    with open(tmp_path / "demos.hdf5", "w+b") as target, h5py.File(target, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression="gzip")
    with pytest.raises(ValueError, match="data sets of one length, obs among them") as error:
        HDF5Dataset(str(tmp_path / "demos.hdf5"))
    assert str(error.value).endswith(f"it has {found}")


def test_a_missing_h5py_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "h5py", None)
    for use in (lambda: hdf5_save(TRANSITIONS, str(tmp_path / "a")), lambda: HDF5Dataset(str(tmp_path / "a"))):
        with pytest.raises(ImportError, match="pip install h5py"):
            use()


def test_data_sets_of_others_are_imported_and_built_with_the_config(monkeypatch, tmp_path):
    (tmp_path / "counted_data.py").write_text(
        "from ding.utils.registry_factory import DATASET_REGISTRY\n"
        "@DATASET_REGISTRY.register('counted')\n"
        "def make(cfg, size):\n"
        "    return cfg.policy.collect.data_path, size\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    cfg = config("nowhere", "counted")
    with pytest.raises(KeyError, match="counted"):
        create_dataset(cfg)
    cfg.import_names = ["counted_data"]
    try:
        assert create_dataset(cfg, size=3) == ("nowhere", 3)
    finally:
        DATASET_REGISTRY.pop("counted", None)
        sys.modules.pop("counted_data", None)


def test_the_path_must_be_told():
    with pytest.raises(TypeError, match="a path or a config, got int"):
        NaiveRLDataset(3)
    with pytest.raises(ValueError, match=r"policy\.collect\.data_path is missing"):
        NaiveRLDataset(EasyDict(policy={"collect": {}}))


def test_an_unknown_way_to_save_is_a_key_error():
    with pytest.raises(KeyError, match="'csv_save' is unknown"):
        offline_data_save_type([], "nowhere", data_type="csv")
