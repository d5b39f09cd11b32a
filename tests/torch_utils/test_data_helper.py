import logging
import threading
from collections import namedtuple

import numpy as np
import pytest
import torch
from easydict import EasyDict
from torch import nn

from ding.torch_utils import (
    CudaFetcher,
    LogDict,
    build_log_buffer,
    get_null_data,
    get_tensor_data,
    same_shape,
    squeeze,
    tensor_to_list,
    to_device,
    to_dtype,
    to_item,
    to_list,
    to_ndarray,
    to_tensor,
    unsqueeze,
    zeros_like,
)
from ding.torch_utils.network.nn_module import DataParallel
from ding.torch_utils.optimizer_helper import is_differentiable

Pair = namedtuple("Pair", ["a", "b"])


class Tree:
    """Stands in for a tree of tensors."""

    def __init__(self, **leaves):
        self.__dict__.update(leaves)

    def json(self):
        return dict(self.__dict__)

    def to(self, target):
        assert "prev_state" not in self
        return Tree(**{key: value.to(target) for key, value in self.__dict__.items()})

    def __contains__(self, key):
        return key in self.__dict__

    def pop(self, key):
        return self.__dict__.pop(key)


def test_float64_arrays_become_float32_and_others_share_memory():
    wide, narrow = np.ones(2), np.ones(2, np.float32)
    tensor = to_tensor(wide)
    assert tensor.dtype == torch.float32
    wide[:] = 5
    assert tensor.tolist() == [1, 1]
    shared = to_tensor(narrow)
    narrow[0] = 5
    assert shared.tolist() == [5, 1]
    every_second = np.arange(4)
    assert np.shares_memory(to_tensor(every_second[::2]).numpy(), every_second)
    assert to_tensor(np.ones(2), dtype=torch.float64).dtype == torch.float64


def test_to_tensor_keeps_structure_and_leaves_bools_text_and_none():
    item = {"a": [np.zeros(1, np.int64), "x"], "b": (), "c": True, "d": None, "e": EasyDict(f=1), "g": torch.ones(1)}
    result = to_tensor(item)
    assert result["a"][0].tolist() == [0] and result["a"][1] == "x"
    assert (result["b"], result["c"], result["d"]) == ([], True, None)
    assert type(result["e"]) is dict and torch.equal(result["e"]["f"], torch.tensor(1))
    assert result["g"] is item["g"]


def test_lists_of_numbers_become_one_tensor():
    assert torch.equal(to_tensor([1, 2]), torch.tensor([1, 2]))
    assert torch.equal(to_tensor((1.0, 2)), torch.tensor([1.0, 2.0]))
    assert torch.equal(to_tensor([True, False]), torch.tensor([True, False]))
    assert to_tensor([1, 2], dtype=torch.float32).dtype == torch.float32
    assert torch.equal(to_tensor([1, 2], transform_scalar=False), torch.tensor([1, 2]))


def test_single_numbers_become_0_dimensional_tensors_unless_told_otherwise():
    assert torch.equal(to_tensor(1.5), torch.tensor(1.5))
    assert to_tensor(np.float64(1.5)).dtype == torch.float64
    assert torch.equal(to_tensor(np.bool_(True)), torch.tensor(True))
    assert to_tensor(1, dtype=torch.float32).dtype == torch.float32
    kept = to_tensor({"a": 1, "b": np.bool_(True), "c": np.float32(1)}, transform_scalar=False)
    assert {key: type(value) for key, value in kept.items()} == {"a": int, "b": np.bool_, "c": np.float32}


def test_namedtuples_keep_their_type_and_convert_all_their_numbers():
    result = to_tensor({"p": Pair(1, {"skip": np.zeros(1)})}, ignore_keys=["skip"], transform_scalar=False)["p"]
    assert type(result) is Pair
    assert torch.equal(result.a, torch.tensor(1))
    assert isinstance(result.b["skip"], torch.Tensor)


def test_ignored_keys_are_those_of_the_outermost_dicts():
    obs = np.zeros(2)
    item = {"next_obs": obs, "obs": {"next_obs": obs, "list": [{"next_obs": obs}]}}
    for result in (to_tensor(item, ignore_keys=["next_obs"]), to_tensor([item], ignore_keys=["next_obs"])[0]):
        assert result["next_obs"] is obs
        assert isinstance(result["obs"]["next_obs"], torch.Tensor)
        assert isinstance(result["obs"]["list"][0]["next_obs"], torch.Tensor)


def test_to_tensor_converts_the_dtype_of_tensors_and_trees():
    assert to_tensor([torch.zeros(1)], dtype=torch.int64)[0].dtype == torch.int64
    tree = Tree(a=torch.zeros(1))
    assert to_tensor(tree) is tree
    assert to_tensor(tree, dtype=torch.int64).a.dtype == torch.int64


@pytest.mark.parametrize("convert", [to_tensor, to_ndarray, to_list, tensor_to_list, to_item])
def test_foreign_objects_are_a_type_error(convert):
    for item in (object(), [object()], {"a": object()}):
        with pytest.raises(TypeError, match="cannot convert"):
            convert(item)


def test_to_ndarray_shares_memory_and_keeps_structure():
    tensor = torch.zeros(2)
    result = to_ndarray(
        {"t": tensor, "n": [1, 2.5], "e": [], "s": 2, "f": True, "x": "x", "none": None, "p": Pair(1, 2)}
    )
    tensor[0] = 3
    assert result["t"].tolist() == [3, 0]
    assert result["n"].tolist() == [1, 2.5]
    assert result["e"] is None
    assert result["s"].shape == () and result["s"] == 2
    assert (result["f"], result["x"], result["none"]) == (True, "x", None)
    assert type(result["p"]) is Pair
    assert [x.tolist() for x in to_ndarray([torch.ones(1), np.zeros(1)])] == [[1], [0]]


def test_to_ndarray_converts_to_a_given_dtype():
    result = to_ndarray([torch.ones(1), np.zeros(1), {"x": 1}, [2]], dtype=np.float32)
    assert [x.dtype for x in (result[0], result[1], result[2]["x"], result[3])] == [np.float32] * 4


def test_to_list_gives_python_values():
    item = {
        "a": torch.ones(2),
        "b": np.zeros((1, 2)),
        "c": (1, np.float32(2)),
        "d": "x",
        "e": None,
        "f": torch.tensor(3),
    }
    result = to_list(item)
    assert result == {"a": [1.0, 1.0], "b": [[0.0, 0.0]], "c": [1, 2.0], "d": "x", "e": None, "f": 3}
    assert type(result["c"][1]) is float


def test_tensor_to_list_refuses_arrays():
    assert tensor_to_list({"a": [torch.ones(1)], "b": 1, "c": None}) == {"a": [[1.0]], "b": 1, "c": None}
    with pytest.raises(TypeError):
        tensor_to_list([np.zeros(1)])


def test_to_item_gives_scalars_and_drops_larger_entries_of_dicts():
    item = {
        "a": torch.ones(1),
        "b": np.array([[2]]),
        "c": np.float32(3),
        "d": "x",
        "big": torch.ones(2),
        "bigs": [np.ones(2)],
        "n": {"big": np.ones(2), "e": None},
        "l": [torch.tensor(True)],
    }
    assert to_item(item) == {"a": 1.0, "b": 2, "c": 3.0, "d": "x", "n": {"e": None}, "l": [True]}
    assert to_item(Tree(a=torch.ones(1), big=torch.ones(2))) == {"a": 1.0}


def test_to_item_raises_for_several_elements_outside_a_dict_or_when_told_so():
    for item in (torch.ones(2), [np.ones(2)], np.ones(0)):
        with pytest.raises(ValueError, match="expected one element"):
            to_item(item)
    with pytest.raises(ValueError):
        to_item({"a": torch.ones(2)}, ignore_error=False)


def test_to_device_moves_tensors_modules_and_trees_and_keeps_the_rest():
    module, array = nn.Linear(1, 1), np.zeros(1)
    distribution = torch.distributions.Normal(0, 1)
    item = {"m": module, "s": (torch.zeros(1), 1), "a": array, "d": distribution, "t": "x", "n": None}
    result = to_device(item, "meta", ignore_keys=["m"])
    assert result["m"] is module
    assert isinstance(result["s"], list) and result["s"][0].is_meta and result["s"][1] == 1
    assert result["a"] is array and result["d"] is distribution
    assert (result["t"], result["n"]) == ("x", None)
    assert to_device(module, "meta").weight.is_meta


def test_nested_tensor_operations_reach_every_tensor():
    item = {"a": torch.ones(2, 1), "b": [torch.ones(1, 2)]}
    assert to_dtype(item, torch.int64)["b"][0].dtype == torch.int64
    assert unsqueeze(item, 1)["a"].shape == (2, 1, 1)
    assert unsqueeze(item)["b"][0].shape == (1, 1, 2)
    assert squeeze(item, 1)["a"].shape == (2,)
    assert squeeze(item, 1)["b"][0].shape == (1, 2)
    assert zeros_like(item)["b"][0].tolist() == [[0, 0]]


def test_get_tensor_data_copies_without_gradient():
    tensor = torch.ones(1, requires_grad=True)
    copy = get_tensor_data({"a": [tensor], "b": None})
    assert copy["b"] is None
    assert not copy["a"][0].requires_grad
    copy["a"][0][0] = 5
    assert tensor.item() == 1


def test_same_shape_compares_all_tensors_of_a_list():
    assert same_shape([torch.zeros(2), torch.ones(2)])
    assert not same_shape([torch.zeros(2), torch.zeros(2), torch.zeros(1)])
    with pytest.raises(AssertionError, match="list or tuple"):
        same_shape(torch.zeros(2))


def test_null_data_is_done_and_without_reward():
    template = {"obs": torch.ones(2), "done": False, "reward": torch.ones(1)}
    rows = get_null_data(template, 2)
    assert [(row["null"], row["done"], row["reward"].item()) for row in rows] == [(True, True, 0.0)] * 2
    assert template["reward"].item() == 1 and "null" not in template
    assert rows[0]["obs"] is not rows[1]["obs"]


def test_log_buffer_holds_no_tensors():
    buffer = build_log_buffer()
    assert type(buffer) is LogDict
    buffer["a"] = torch.tensor(0.5)
    buffer.update({"b": torch.tensor([1.0]), "c": "x"})
    assert buffer == {"a": 0.5, "b": [1.0], "c": "x"}
    with pytest.raises(TypeError):
        buffer.update(d=1)


# DataParallel on at most one device: the model as it is.


class Net(nn.Linear):
    def greet(self):
        return f"{self.in_features} in"


def test_attributes_and_methods_of_the_model_can_be_asked_for():
    model = DataParallel(Net(4, 2))
    assert model.out_features == 2 and model.greet() == "4 in"
    assert model.weight is model.module.weight
    with pytest.raises(AttributeError):
        _ = model.colour


def test_it_runs_and_trains_the_model_under_torchs_names():
    torch.manual_seed(0)
    model = DataParallel(Net(4, 2))
    x = torch.rand(3, 4, device=model.weight.device)
    assert torch.equal(model(x), model.module(x))
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    model(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


# is_differentiable.


def loss_of(*nets):
    return sum(net(torch.ones(1, 2)).sum() for net in nets)


def test_all_parameters_of_one_or_several_modules_get_gradients():
    a, b = nn.Linear(2, 1), nn.Linear(2, 1)
    assert is_differentiable(loss_of(a), a) is None
    a.zero_grad()
    is_differentiable(loss_of(a, b), [a, b])
    assert a.weight.grad is not None


def test_a_parameter_without_gradient_is_named():
    a, b = nn.Linear(2, 1), nn.Linear(2, 1)
    with pytest.raises(AssertionError, match="weight, bias"):
        is_differentiable(loss_of(a), [a, b])


def test_a_missing_gradient_can_be_logged_instead(caplog):
    a, b = nn.Linear(2, 1), nn.Linear(2, 1)
    with caplog.at_level(logging.WARNING):
        is_differentiable(loss_of(a), [a, b], print_instead=True)
    assert "weight, bias" in caplog.text


def test_batches_come_in_order_and_the_end_is_told():
    fetcher = CudaFetcher(iter([{"x": torch.tensor(i)} for i in range(6)]), "cpu", queue_size=2)
    assert iter(fetcher) is fetcher
    fetcher.run()
    fetcher.run()
    assert fetcher.next()["x"].item() == 0
    assert [batch["x"].item() for batch in fetcher] == [1, 2, 3, 4, 5]
    fetcher.close()


def test_an_error_of_the_source_reaches_next():
    def source():
        yield 1
        raise ZeroDivisionError("of the test")

    fetcher = CudaFetcher(source(), "cpu")
    fetcher.run()
    assert next(fetcher) == 1
    with pytest.raises(ZeroDivisionError):
        next(fetcher)
    fetcher.close()


def test_closing_ends_the_thread_and_next_gives_none():
    before = set(threading.enumerate())
    fetcher = CudaFetcher(iter(int, 1), "cpu")
    fetcher.close()
    fetcher.run()
    assert next(fetcher) == 0
    fetcher.close()
    fetcher.close()
    assert next(fetcher) is None
    assert set(threading.enumerate()) == before


@pytest.mark.gpu
def test_batches_arrive_on_the_gpu():
    fetcher = CudaFetcher(iter([{"x": torch.full((1000,), float(i))} for i in range(20)]), "cuda")
    fetcher.run()
    assert [(batch["x"].is_cuda, batch["x"].sum().item()) for batch in fetcher] == [
        (True, 1000.0 * i) for i in range(20)
    ]
    fetcher.close()
