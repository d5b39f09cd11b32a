"""The target network follows the online network."""

import copy

import pytest
import torch
from torch import nn

from ding.model import DQN, model_wrap


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
