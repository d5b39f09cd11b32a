import pickle
import sys
import types

import numpy as np
import pytest
import torch
from easydict import EasyDict
from torch.utils.data import DataLoader

from ding.policy.common_utils import default_preprocess_learn
from ding.utils.data.collate_fn import default_collate
from ding.utils.data.dataset import (
    HDF5Dataset,
    MinariDataset,
    NaiveRLDataset,
    NpzDataset,
    create_dataset,
    hdf5_save,
    naive_save,
    npz_save,
    offline_data_save_type,
)
from ding.utils.data.samples import Samples
from ding.utils.msgpack_helper import pack
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


@pytest.mark.differs(
    "pickles demonstrations, which then run code when they are read",
    "writes msgpack; reads pickles with `trusted=True` only",
)
def test_a_pickle_is_read_only_if_it_is_trusted(tmp_path):
    path = tmp_path / "expert.pkl"
    path.write_bytes(pickle.dumps(TRANSITIONS))
    for refused in (str(path), config(path), config(path, trusted=False)):
        with pytest.raises(pickle.UnpicklingError, match="trusted"):
            NaiveRLDataset(refused)
    assert_same(NaiveRLDataset(str(path), trusted=True))
    assert_same(create_dataset(config(path, trusted=True)))
    assert_same(create_dataset(config(path), trusted=True))


@pytest.mark.parametrize("content", [b"", b"garbage", pack([1, 2]), pack({"format": "other", "items": []})])
def test_another_file_is_a_value_error(content, tmp_path):
    path = tmp_path / "expert.pkl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="does not hold demonstrations"):
        NaiveRLDataset(path)


@pytest.fixture
def h5py():
    return pytest.importorskip("h5py")


@pytest.mark.parametrize(("kind", "cls"), [("hdf5", HDF5Dataset), ("npz", NpzDataset)])
def test_what_was_saved_as_arrays_is_read_back_row_by_row(kind, cls, tmp_path):
    if kind == "hdf5":
        pytest.importorskip("h5py")
    offline_data_save_type(TRANSITIONS, str(tmp_path / "new" / "expert.pkl"), data_type=kind)
    path = tmp_path / "new" / f"expert_demos.{kind}"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    data = create_dataset(config(path, kind))
    assert_same(data)
    assert_same(cls(str(path)))
    assert data[3]["done"] and data[0]["obs"].dtype == np.float32 and data[0]["action"].dtype == np.int64
    assert data.mean.tolist() == [1.5] * 3 and data.std.tolist() == pytest.approx([1.25**0.5 + 1e-3] * 3)
    batch = default_collate([data[0], data[1]])
    assert batch["reward"].tolist() == [0.0, 0.5] and batch["action"].tolist() == [0, 1]


def test_what_makes_no_arrays_is_not_saved_as_hdf5(h5py, tmp_path):
    for rows, error, word in (
        ([], ValueError, "transition"),
        ([{**TRANSITIONS[0], "obs": {"a": 1}}], TypeError, "'obs'"),
        ([dict.fromkeys(("obs", "action", "reward", "done"), 1.0)], KeyError, "next_obs"),
        ([TRANSITIONS[0], {**TRANSITIONS[1], "obs": torch.zeros(2)}], ValueError, "shape"),
    ):
        with pytest.raises(error, match=word):
            hdf5_save(rows, str(tmp_path / "expert"))


def write(h5py, path, arrays):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array)


# Two episodes: of three steps, cut off, and of two, terminated and cut off; then one step of another.
D4RL = {
    "observations": np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [20.0]]),
    "actions": np.arange(6.0).reshape(6, 1),
    "rewards": np.arange(6.0),
    "terminals": np.array([0, 0, 0, 0, 1, 0]),
    "timeouts": np.array([0, 0, 1, 0, 1, 0]),
}


def test_a_file_of_d4rl_becomes_transitions(h5py, tmp_path):
    path = tmp_path / "hopper.hdf5"
    write(h5py, path, {**D4RL, "infos/qpos": np.zeros(6), "metadata/seed": 3, "extra": np.zeros(9)})
    data = HDF5Dataset(str(path))
    assert [row["obs"].tolist() for row in data] == [[0], [1], [10], [11]]  # what follows the others is unknown
    assert [row["next_obs"].tolist() for row in data][:3] == [[1], [2], [11]]
    assert [row["action"].tolist() for row in data] == [[0], [1], [3], [4]]
    assert [row["reward"].tolist() for row in data] == [[0], [1], [3], [4]]
    ends = [(bool(row["done"]), bool(row["terminated"]), bool(row["truncated"])) for row in data]
    assert ends == [(False,) * 3] * 3 + [(True, True, True)]
    assert data[0]["reward"].dtype == np.float32


def test_next_observations_of_d4rl_leave_no_step_out(tmp_path):
    following = np.arange(6.0)[:, None] + 100
    np.savez(tmp_path / "a.npz", **D4RL, next_observations=following)
    data = NpzDataset(tmp_path / "a.npz")
    assert [row["next_obs"].tolist() for row in data] == following.tolist()
    assert [bool(row["done"]) for row in data] == [False, False, True, False, True, False]
    without = {key: array for key, array in D4RL.items() if key != "timeouts"}
    np.savez(tmp_path / "b.npz", **without, next_observations=following)
    data = NpzDataset(tmp_path / "b.npz")
    assert "truncated" not in data[0] and [bool(row["done"]) for row in data] == [False] * 4 + [True, False]


@pytest.mark.parametrize("key", ["actions", "rewards", "terminals", "timeouts"])
def test_a_file_of_d4rl_without_an_array_is_refused(key, tmp_path):
    np.savez(tmp_path / "a.npz", **{name: array for name, array in D4RL.items() if name != key})
    with pytest.raises(ValueError, match=f"lacks {key};"):
        NpzDataset(tmp_path / "a.npz")


def test_a_missing_h5py_is_named(put_module, tmp_path):
    put_module("h5py", None)
    for use in (lambda: hdf5_save(TRANSITIONS, str(tmp_path / "a")), lambda: HDF5Dataset(str(tmp_path / "a"))):
        with pytest.raises(ImportError, match="pip install h5py"):
            use()


def test_how_episodes_ended_is_saved_where_all_transitions_tell(tmp_path):
    told = [{**row, "terminated": False, "truncated": row["done"], "value_gamma": 0.5} for row in TRANSITIONS]
    npz_save(told, str(tmp_path / "told"))
    row = NpzDataset(tmp_path / "told_demos.npz")[3]
    assert row["done"] and row["truncated"] and not row["terminated"] and row["value_gamma"] == 0.5
    npz_save([told[0], *TRANSITIONS[1:]], str(tmp_path / "partly"))
    assert sorted(NpzDataset(tmp_path / "partly_demos.npz")[3]) == ["action", "done", "next_obs", "obs", "reward"]


def test_a_loader_gets_batches_of_columns(tmp_path):
    npz_save(TRANSITIONS, str(tmp_path / "expert"))
    data = NpzDataset(tmp_path / "expert_demos.npz")
    (batch,) = DataLoader(data, 3, sampler=[2, 0, 3], collate_fn=lambda batch: batch)
    assert isinstance(batch, Samples) and batch.table is not None
    collated = default_preprocess_learn(batch, use_nstep=True)
    assert collated["obs"][:, 0].tolist() == [2, 0, 3] and collated["action"].tolist() == [0, 0, 1]
    assert collated["reward"].tolist() == [[1.0, 0.0, 1.5]] and collated["done"].tolist() == [0, 0, 1]
    assert [row["obs"][0] for row in batch] == [2, 0, 3]


def test_observations_are_normalized_on_demand_and_double_precision_becomes_single(tmp_path):
    np.savez(tmp_path / "demos.npz", obs=np.array([[0.0], [4.0]]), next_obs=np.array([[2.0], [4.0]]))
    plain = NpzDataset(tmp_path / "demos.npz")
    assert plain[1]["obs"].dtype == np.float32 and plain[1]["obs"] == 4
    data = create_dataset(config(tmp_path / "demos.npz", "npz", normalize_states=True))
    assert data.mean.tolist() == [2] and data.std.tolist() == pytest.approx([2.001])
    assert data[1]["obs"].tolist() == pytest.approx([2 / 2.001]) and data[0]["next_obs"].tolist() == [0]
    assert data[1]["obs"].dtype == np.float32


@pytest.mark.guarantees("data")
@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e39])
@pytest.mark.parametrize("key", ["obs", "next_obs", "action", "reward"])
def test_what_is_not_finite_is_named_with_its_place(key, value, tmp_path):
    rows = [{**row, "action": torch.tensor([0.5])} for row in TRANSITIONS]
    rows[2][key] = np.full(3, value)
    naive_save([*rows[:2], {"label": 1}, rows[2:]], tmp_path / "demos.pkl")
    with pytest.raises(FloatingPointError, match=rf"demos.pkl, item 3, .* in {key}:"):
        NaiveRLDataset(tmp_path / "demos.pkl")
    columns = {name: np.stack([np.broadcast_to(row[name], 3) for row in rows]) for name in rows[0]}
    np.savez(tmp_path / "demos.npz", **columns)
    with pytest.raises(FloatingPointError, match=rf"demos.npz, transition 2, .* in {key}:"):
        NpzDataset(tmp_path / "demos.npz")


def test_a_mask_of_actions_may_hold_minus_infinity(tmp_path):
    row = {"obs": {"action_mask": np.array([0.0, -np.inf])}, "done": np.nan}
    naive_save([row], tmp_path / "demos.pkl")
    assert len(NaiveRLDataset(tmp_path / "demos.pkl")) == 1


def test_an_npz_file_never_runs_code(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (tmp_path.joinpath("ran").write_text, ("boom",))

    np.savez(tmp_path / "objects.npz", obs=np.array([Bomb()]))
    (tmp_path / "garbage.npz").write_bytes(b"garbage")
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(Bomb()))
    with open(tmp_path / "array.npz", "wb") as file:
        np.save(file, np.zeros(3))
    (tmp_path / "ran").unlink(missing_ok=True)
    for name in ("objects", "garbage", "plain", "array"):
        with pytest.raises(ValueError, match="does not hold demonstrations"):
            NpzDataset(tmp_path / f"{name}.npz")
    with pytest.raises(ValueError, match="one array"):
        NpzDataset(tmp_path / "array.npz")
    assert not (tmp_path / "ran").exists()


class FakeMinari(types.SimpleNamespace):
    """Two episodes, of two steps (cut off) and of one (terminated), of an env with one number to see and to do."""

    def load_dataset(self, name, download):
        self.asked = name, download
        shown, rewards, ends = np.array([[0.0], [1], [2], [8], [9]]), np.array([1.0, 2, 3]), np.eye(3, dtype=bool)
        actions = np.array([[-2.0], [0], [1]], np.float32) if self.real else np.array([1, 0, 2])
        episodes = [
            types.SimpleNamespace(
                id=number, observations=shown[first + number : last + number + 1], actions=actions[first:last],
                rewards=rewards[first:last], terminations=ends[2][first:last], truncations=ends[1][first:last],
            )
            for number, (first, last) in enumerate(((0, 2), (2, 3)))
        ][: self.number]  # fmt: skip
        space = types.SimpleNamespace(low=np.array([-2.0], np.float32), high=np.array([2.0], np.float32))
        return types.SimpleNamespace(
            iterate_episodes=lambda: iter(episodes),
            action_space=types.SimpleNamespace(start=self.start) if "start" in vars(self) else space,
            total_steps=sum(len(episode.actions) for episode in episodes),
        )


@pytest.fixture
def minari(put_module):
    """Puts a `FakeMinari` in place of the package."""

    def install(**how):
        made = FakeMinari(**how)
        put_module("minari", made)
        return made

    return install


def test_a_minari_data_set_becomes_transitions(minari):
    package = minari(real=False, number=2)
    data = MinariDataset("some/data-v0")
    assert package.asked == ("some/data-v0", False)
    assert [row["obs"].tolist() for row in data] == [[0], [1], [8]]
    assert [row["next_obs"].tolist() for row in data] == [[1], [2], [9]]
    assert [row["action"].tolist() for row in data] == [[1], [0], [2]]
    assert [row["reward"].tolist() for row in data] == [[1], [2], [3]]
    ends = [(bool(row["done"]), bool(row["terminated"]), bool(row["truncated"])) for row in data]
    assert ends == [(False, False, False), (True, False, True), (True, True, False)]
    assert data[0]["obs"].dtype == data[0]["reward"].dtype == np.float32 and data[0]["action"].dtype == np.int64


def test_choices_of_a_minari_data_set_count_from_0_wherever_their_space_starts(minari):
    minari(real=False, number=2, start=-1)
    assert [row["action"].tolist() for row in MinariDataset("some/data-v0")] == [[2], [1], [3]]


def test_actions_of_a_minari_data_set_are_scaled_as_those_of_the_env(minari):
    package = minari(real=True, number=2)
    cfg = config("some/data-v0", "minari", download=True)
    assert [row["action"].tolist() for row in create_dataset(cfg)] == [[-2], [0], [1]]
    assert package.asked == ("some/data-v0", True)
    cfg.env = {"act_scale": True}
    assert [row["action"].tolist() for row in create_dataset(cfg)] == [[-1], [0], [0.5]]


def test_a_minari_data_set_without_episodes_and_a_missing_package_are_told(minari, put_module):
    minari(real=True, number=0)
    with pytest.raises(ValueError, match="no episode"):
        MinariDataset("some/data-v0")
    put_module("minari", None)
    with pytest.raises(ImportError, match="pip install 'minari"):
        MinariDataset("some/data-v0")


def test_data_sets_of_others_are_imported_and_built_with_the_config(import_folder):
    (import_folder / "counted_data.py").write_text(
        "from ding.utils.registry_factory import DATASET_REGISTRY\n"
        "@DATASET_REGISTRY.register('counted')\n"
        "def make(cfg, size):\n"
        "    return cfg.policy.collect.data_path, size\n"
    )
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
    with pytest.raises(TypeError, match="of type int"):
        NaiveRLDataset(3)
    with pytest.raises(ValueError, match=r"policy\.collect\.data_path is missing"):
        NaiveRLDataset(EasyDict(policy={"collect": {}}))


def test_an_unknown_way_to_save_is_a_key_error():
    with pytest.raises(KeyError, match="data_type = 'csv' is not allowed"):
        offline_data_save_type([], "nowhere", data_type="csv")
