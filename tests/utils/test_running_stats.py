import numpy as np
import pytest
import torch

from ding.utils.default_helper import RunningMeanStd, get_shape0, split_data_generator


def batches_of(data, *args, **kwargs):
    return list(split_data_generator(data, *args, **kwargs))


def test_batches_follow_in_order_without_shuffle_and_the_last_is_shifted_back_to_full_size():
    rows = [batch["a"].tolist() for batch in batches_of({"a": torch.arange(8)}, 3, shuffle=False)]
    assert rows == [[0, 1, 2], [3, 4, 5], [5, 6, 7]]


def test_all_entries_are_cut_by_the_same_rows():
    data = {
        "text": ["x", "y"],
        "none": None,
        "a": torch.arange(6),
        "b": {"c": np.arange(6) * 10},
        "d": [torch.arange(6) * 2, torch.arange(6) * 3],
        "name": "run",
    }
    np.random.seed(0)
    batches = batches_of(data, 2)
    assert sorted(int(i) for batch in batches for i in batch["a"]) == list(range(6))
    for batch in batches:
        assert batch["text"] == ["x", "y"] and batch["none"] is None and batch["name"] == "run"
        assert batch["b"]["c"].tolist() == (batch["a"] * 10).tolist()
        assert batch["d"][1].tolist() == (batch["a"] * 3).tolist()


def test_shuffle_is_decided_by_the_global_numpy_seed():
    orders = []
    for _ in range(2):
        np.random.seed(3)
        orders.append([batch["a"].tolist() for batch in batches_of({"a": torch.arange(9)}, 4)])
    assert orders[0] == orders[1]


def test_split_refuses_what_cannot_be_split():
    with pytest.raises(AssertionError, match="split_size = 0"):
        split_data_generator({"a": torch.arange(3)}, 0)
    for bad in ((1, 2), [1, 2], 3):
        with pytest.raises(TypeError, match="cannot be split"):
            batches_of({"a": torch.arange(2), "bad": bad}, 1)
    with pytest.raises(ValueError, match="no entry with rows"):
        batches_of({"a": None, "b": ["x"]}, 1)


class Tree:
    """Stands in for a tree of tensors; its length is the number of entries."""

    def __init__(self, **entries):
        self.__dict__.update(entries)

    def json(self):
        return {key: value.json() if isinstance(value, Tree) else value for key, value in self.__dict__.items()}

    def __len__(self):
        return len(self.__dict__)


def test_get_shape0_looks_into_dicts_lists_and_trees():
    assert get_shape0({"a": [torch.zeros(3, 2)]}) == 3
    assert get_shape0(np.zeros((4, 1))) == 4
    assert get_shape0(Tree(obs=Tree(image=torch.zeros(5, 2)), reward=torch.zeros(5))) == 5
    with pytest.raises(TypeError):
        get_shape0(5)


def test_running_mean_std_of_numbers_has_the_documented_values():
    stats = RunningMeanStd()
    stats.reset()
    stats.update(np.arange(1, 10))
    assert stats.mean == pytest.approx(5, abs=1e-4) and stats.std == pytest.approx(2.582030, abs=1e-5)
    stats.update(np.arange(2, 11))
    assert stats.mean == pytest.approx(5.5, abs=1e-4) and stats.std == pytest.approx(2.629981, abs=1e-5)
    stats.reset()
    assert stats.mean == 0 and stats.std == pytest.approx(1, abs=1e-5)
    assert np.isscalar(stats.mean) and np.isscalar(stats.std)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_statistics_go_on_from_their_state(shape):
    rng = np.random.default_rng(0)
    batches = rng.normal(5, 2, (3, 20, *shape))
    whole, first, second = (RunningMeanStd(shape=shape) for _ in range(3))
    for batch in batches:
        whole.update(batch)
    for batch in batches[:2]:
        first.update(batch)
    second.load_state_dict(first.state_dict())
    second.update(batches[2])
    assert np.array_equal(np.asarray(second.mean), np.asarray(whole.mean))
    assert np.array_equal(np.asarray(second.std), np.asarray(whole.std))
    assert np.isscalar(second.std) is (shape == ())
