"""Wrapping by name, attribute lookup, copies, training mode, hidden states."""

import copy
import pickle

import pytest
import torch
from torch import nn

from ding.model import DQN, IModelWrapper, model_wrap, register_wrapper
from ding.model.wrapper import ArgmaxSampleWrapper, BaseModelWrapper
from ding.model.wrapper.model_wrappers import wrapper_name_map

X = torch.rand(3, 4)


def test_a_raw_module_gets_the_base_wrapper_first():
    model = DQN(4, 2)
    wrapped = model_wrap(model, wrapper_name="argmax_sample")
    assert type(wrapped) is ArgmaxSampleWrapper
    assert type(wrapped._model) is BaseModelWrapper
    assert wrapped.unwrap() is model
    base = model_wrap(model, wrapper_name="base")
    assert base._model is model
    assert model_wrap(base, wrapper_name="argmax_sample")._model is base
    assert not isinstance(wrapped, nn.Module)
    assert not callable(wrapped)


def test_an_unknown_wrapper_is_a_type_error():
    with pytest.raises(TypeError):
        model_wrap(DQN(4, 2), wrapper_name="argmax")


def test_wrappers_can_be_registered(monkeypatch):
    class Double(IModelWrapper):
        def __init__(self, model, factor):
            super().__init__(model)
            self.factor = factor

        def forward(self, x):
            return {"logit": self.factor * self._model.forward(x)["logit"]}

    monkeypatch.delitem(wrapper_name_map, "double", raising=False)
    register_wrapper("double", Double)
    try:
        model = DQN(4, 2)
        assert torch.equal(model_wrap(model, "double", factor=2).forward(X)["logit"], 2 * model(X)["logit"])
    finally:
        del wrapper_name_map["double"]


def test_info_names_the_owners_of_an_attribute():
    wrapped = model_wrap(DQN(4, 2), "argmax_sample")
    assert wrapped.info("forward") == "ArgmaxSampleWrapper BaseModelWrapper DQN"
    assert wrapped.info("encoder") == "DQN"
    assert wrapped.info("reset") == "ArgmaxSampleWrapper BaseModelWrapper"
    assert wrapped.info("no_such") == ""


WRAPPERS = [
    ("base", {}),
    ("argmax_sample", {}),
    ("eps_greedy_sample", {}),
    ("action_noise", {}),
    ("hidden_state", {"state_num": 2}),
    ("target", {"update_type": "momentum", "update_kwargs": {"theta": 0.5}}),
]


@pytest.mark.differs(
    "recurses forever when a wrapped model, an env manager or a logged model is copied or pickled",
    "copies and pickles them",
)
@pytest.mark.parametrize(("name", "kwargs"), WRAPPERS)
@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_wrappers_can_be_copied_and_pickled(name, kwargs, copier):
    wrapped = model_wrap(DQN(4, 2), wrapper_name=name, **kwargs)
    twin = copier(wrapped)
    assert type(twin) is type(wrapped)
    assert torch.equal(twin.unwrap()(X)["logit"], wrapped.unwrap()(X)["logit"])


def test_reset_reaches_a_model_that_has_one():
    class Resettable(nn.Module):
        def reset(self, data_id=None, seed=None):
            self.args = data_id, seed

    model = Resettable()
    model_wrap(model, "argmax_sample").reset([1], seed=3)
    assert model.args == ([1], 3)
    model_wrap(DQN(4, 2), "argmax_sample").reset()


# --- hidden states ---


class Recurrent(nn.Module):
    """next state = previous state (0 when None) + 1, as a tensor; logit = what came in."""

    def forward(self, data, drop=False, **kwargs):
        came = [torch.zeros(1) if state is None else state["h"] for state in data["prev_state"]]
        output = {"logit": torch.stack(came)}
        if not drop:
            output["next_state"] = [{"h": state + 1} for state in came]
        return output


def hidden(**kwargs):
    return model_wrap(Recurrent(), wrapper_name="hidden_state", state_num=3, **kwargs)


def came_in(model, **kwargs):
    return model.forward({"obs": None}, **kwargs)["logit"].flatten().tolist()


def test_each_id_has_its_own_state():
    model = hidden()
    assert came_in(model) == [0, 0, 0]
    assert came_in(model, data_id=[2, 0]) == [1, 1]
    assert came_in(model) == [2, 1, 2]
    assert "next_state" not in model.forward({})


def test_only_valid_ids_move_on():
    model = hidden()
    came_in(model, data_id=[0, 1], valid_id=[1])
    assert came_in(model) == [0, 1, 0]
    with pytest.raises(KeyError):
        came_in(model, data_id=[0, 1], valid_id=[2])


def test_reset_by_id_and_with_given_states():
    model = hidden()
    came_in(model)
    model.reset(data_id=[1])
    assert came_in(model) == [1, 0, 1]
    model.reset(data_id=[0], state=[{"h": torch.tensor([9.0])}])
    assert came_in(model) == [9, 1, 2]
    model.reset()
    assert came_in(model) == [0, 0, 0]
    with pytest.raises(ValueError):
        model.reset(data_id=[0, 1], state=[None])
    with pytest.raises(KeyError):
        came_in(model, data_id=[7])


def test_init_fn_makes_the_first_state():
    model = hidden(init_fn=lambda: {"h": torch.tensor([5.0])})
    assert came_in(model, data_id=[1]) == [5]
    model.reset()
    assert came_in(model, data_id=[1]) == [5]


def test_previous_states_can_be_saved_as_detached_copies():
    model = hidden(save_prev_state=True)
    model.reset(data_id=[1], state=[{"h": torch.tensor([4.0], requires_grad=True)}])
    previous = model.forward({}, data_id=[0, 1])["prev_state"]
    assert [state["h"].tolist() for state in previous] == [[0.0], [4.0]]
    assert not previous[1]["h"].requires_grad
    previous = model.forward({}, data_id=[1])["prev_state"]
    previous[0]["h"].zero_()
    assert "prev_state" not in hidden().forward({})


def test_previous_states_can_be_saved_stacked_if_they_are_dicts_of_tensors():
    model = hidden(save_prev_state=True, stack_prev_state=True)
    own = torch.tensor([4.0], requires_grad=True)
    model.reset(data_id=[1], state=[{"h": own}])
    previous = model.forward({}, data_id=[0, 1])["prev_state"]
    assert previous.keys() == {"h"} and previous["h"].tolist() == [[0.0], [4.0]] and not previous["h"].requires_grad
    previous["h"].zero_()
    assert own.item() == 4.0

    class Pairs(nn.Module):
        def forward(self, data):
            return {"next_state": [(torch.ones(1), torch.zeros(1))] * len(data["prev_state"])}

    model = model_wrap(Pairs(), "hidden_state", state_num=2, save_prev_state=True, stack_prev_state=True)
    assert model.forward({})["prev_state"] == [[torch.zeros(1), torch.zeros(1)]] * 2


def test_outputs_without_next_state_change_nothing_and_a_wrong_number_fails():
    model = hidden()
    came_in(model)
    model.forward({}, drop=True)
    assert came_in(model) == [1, 1, 1]

    class TooFew(nn.Module):
        def forward(self, data):
            return {"next_state": [None]}

    with pytest.raises(AssertionError):
        model_wrap(TooFew(), "hidden_state", state_num=2).forward({})


# The target network follows the online network.


def nets(with_buffers=True):
    torch.manual_seed(0)
    online = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3) if with_buffers else nn.ReLU())
    target = copy.deepcopy(online)
    with torch.no_grad():
        for tensor in online.state_dict().values():
            tensor.add_(1)
    return online, target


def target_of(module, **kwargs):
    ((update_type, update_kwargs),) = kwargs.items()
    return model_wrap(module, wrapper_name="target", update_type=update_type, update_kwargs=update_kwargs)


def equal(left, right):
    right = right.state_dict()
    return all(torch.equal(tensor, right[name]) for name, tensor in left.state_dict().items())


def as_dict(online):
    return online.state_dict()


def as_module(online):
    return online


def as_wrapper(online):
    return model_wrap(online, wrapper_name="argmax_sample")


SOURCES = pytest.mark.parametrize("source", [as_dict, as_module, as_wrapper])


@SOURCES
def test_assign_copies_at_every_freq_th_call(source):
    online, target = nets()
    wrapper = target_of(target, assign={"freq": 3})
    first_weight = target[0].weight
    for _ in range(2):
        for expected in (False, False, True):
            wrapper.update(source(online))
            assert equal(target, online) is expected
        with torch.no_grad():
            online[0].weight.add_(1)
    assert target[0].weight is first_weight


@pytest.mark.differs("ignores buffers in the momentum update of a target network", "copies them")
@SOURCES
@pytest.mark.parametrize("theta", [0.005, 0.25, 1.0])
def test_momentum_moves_parameters_and_copies_buffers(source, theta):
    online, target = nets()
    before = copy.deepcopy(target)
    wrapper = target_of(target, momentum={"theta": theta})
    wrapper.update(source(online))
    for (name, old), new, goal in zip(before.named_parameters(), target.parameters(), online.parameters(), strict=True):
        torch.testing.assert_close(new, (1 - theta) * old + theta * goal, msg=name)
    for new, goal in zip(target.buffers(), online.buffers(), strict=True):
        assert torch.equal(new, goal)
    assert all(not parameter.is_leaf or parameter.grad is None for parameter in target.parameters())


@SOURCES
@pytest.mark.parametrize("kind", [{"assign": {"freq": 2}}, {"momentum": {"theta": 0.1}}])
def test_direct_loads_now_and_restarts_the_counter(source, kind):
    online, target = nets()
    wrapper = target_of(target, **kind)
    wrapper.update(source(online))
    wrapper.update(source(online), direct=True)
    assert equal(target, online)
    assert wrapper.update_count == 0


def test_the_counter_survives_reset_unless_it_is_given():
    online, target = nets()
    wrapper = target_of(target, assign={"freq": 2})
    wrapper.update(online)
    wrapper.reset()
    assert wrapper.update_count == 1
    wrapper.reset(target_update_count=0)
    wrapper.update(online)
    assert not equal(target, online)
    wrapper.update(online)
    assert equal(target, online)


def test_nets_that_do_not_fit_are_refused():
    target = DQN(4, 2)
    wrong_size, wrong_names = DQN(4, 3), DQN(4, 2, dueling=False)
    for wrong in (wrong_size, wrong_names):
        for source in (wrong, wrong.state_dict()):
            with pytest.raises(RuntimeError, match="size mismatch|Missing key"):
                target_of(target, assign={"freq": 1}).update(source)
    for source in (wrong_names, wrong_names.state_dict()):
        with pytest.raises(KeyError):
            target_of(target, momentum={"theta": 0.5}).update(source)
    one_action = DQN(4, 1)
    for source in (wrong_size, wrong_size.state_dict(), one_action, one_action.state_dict()):
        with pytest.raises(RuntimeError):
            target_of(target, momentum={"theta": 0.5}).update(source)


@pytest.mark.parametrize(
    ("update_type", "update_kwargs"),
    [
        ("copy", {"freq": 1}),
        ("assign", {}),
        ("assign", {"theta": 0.5}),
        ("assign", {"freq": 0}),
        ("assign", {"freq": 2.5}),
        ("momentum", {"theta": 1.5}),
        ("momentum", {"theta": -0.1}),
        ("momentum", {"theta": 0}),
        ("momentum", {"freq": 3}),
        ("momentum", {"theta": 0.5, "freq": 0}),
    ],
)
def test_wrong_settings_fail_at_construction(update_type, update_kwargs):
    with pytest.raises(AssertionError):
        model_wrap(DQN(4, 2), wrapper_name="target", update_type=update_type, update_kwargs=update_kwargs)
