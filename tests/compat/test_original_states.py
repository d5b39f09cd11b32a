"""Learner states of DI-engine load, and learning goes on from them as it does there."""

import copy
import json
from pathlib import Path

import pytest
import torch

from ding.policy.base_policy import get_policy_cls
from tests.compat.learner_states import CASES, fingerprint, learn, make_state, set_config

ORIGINAL = json.loads(Path(__file__).with_name("original_learning.json").read_text())
# DI-engine's logarithm of the probability of a squashed action is not exact.
INEXACT = {"sac": 1e-3, "sac_noauto": 1e-3, "cql": 1e-3}
# Numbers with another meaning; see the rows of each in Differences.
OTHER_LOGS = {"discrete_sac": {"entropy"}}
RECORDED = [name for name in CASES if "logs" in ORIGINAL[name]]


@pytest.fixture
def torchs_draws(monkeypatch):
    """Draws from torch's global generator, as those of the original were when it was recorded."""
    modules = ("ding.policy.sac", "ding.rl_utils.exploration", "ding.torch_utils.network.nn_module")
    for module in modules:
        monkeypatch.setattr(f"{module}.draw_normal", lambda rng, shape, like: torch.randn(tuple(shape)))
    for module in ("ding.policy.sac", "ding.model.common.head"):
        monkeypatch.setattr(f"{module}.draw_uniform", lambda rng, shape, like: torch.rand(tuple(shape)))


def make_policy(name, **settings):
    case = CASES[name]
    cls = get_policy_cls(type("Config", (dict,), {"type": case.policy})())
    config = set_config(cls.default_config(), {**case.config, **case.here, **settings})
    return cls(config, enable_field=["learn"])


def loaded(name, state):
    policy = make_policy(name)
    policy.learn_mode.load_state_dict(copy.deepcopy(state))
    return policy


def permuted(state, order):
    """Returns the state of an optimizer with its parameters in another order."""
    entries = {new: state["state"][old] for new, old in enumerate(order) if old in state["state"]}
    return {**state, "state": entries}


def networks(policy):
    return {"model": policy._model, "target_model": getattr(policy, "_target_model", None)}


def test_every_policy_of_the_list_was_recorded():
    assert len(CASES) == 34 and set(ORIGINAL) == set(CASES)
    assert set(CASES) - set(RECORDED) == {"iql"}  # not in the release of DI-engine that was executed


@pytest.mark.guarantees("interfaces")
@pytest.mark.parametrize("name", CASES)
def test_a_state_of_the_original_loads_whole(name):
    state = make_state(ORIGINAL[name]["layout"])
    saved = loaded(name, state).learn_mode.state_dict()
    assert saved.keys() >= state.keys()
    for key in {"model", "target_model"} & state.keys():
        assert saved[key].keys() == state[key].keys()
        assert all(torch.equal(saved[key][part], state[key][part]) for part in state[key])


@pytest.mark.usefixtures("torchs_draws")
@pytest.mark.parametrize("name", RECORDED)
def test_three_steps_from_a_state_of_the_original_are_those_of_the_original(name):
    original = ORIGINAL[name]
    state = make_state(original["layout"])
    policy = loaded(name, state)
    logs = learn(policy, CASES[name])
    for expected, numbers in zip(original["logs"], logs, strict=True):
        same = expected.keys() - OTHER_LOGS.get(name, set())
        assert {key: numbers[key] for key in same} == pytest.approx(
            {key: expected[key] for key in same}, rel=INEXACT.get(name, 1e-4), abs=1e-6
        )
    before = {"target_model": state["model"], **state}
    for key, expected in original["changes"].items():
        changes = fingerprint(before[key], networks(policy)[key].state_dict())
        assert changes.keys() == expected.keys()
        for part, (size, projection) in expected.items():
            # float32 keeps 24 bits of a weight, three times.
            rounding = 3 * 2.0**-24 * float(before[key][part].abs().sum())
            tolerance = INEXACT.get(name, 1e-4) * size + rounding
            assert changes[part] == pytest.approx([size, projection], rel=0, abs=tolerance), (key, part)


@pytest.mark.parametrize("name", ["iql", "sqn"])
def test_a_state_without_a_target_network_starts_it_as_the_online_one(name):
    policy = loaded(name, make_state(ORIGINAL[name]["layout"]))
    online, target = policy._model.state_dict(), policy._target_model.state_dict()
    assert all(torch.equal(online[part], target[part]) for part in online)


def test_the_state_of_another_model_is_refused_with_its_parameters_and_changes_nothing():
    state = make_state(ORIGINAL["r2d2"]["layout"])
    order = list(range(len(state["optimizer"]["state"])))
    state["optimizer"] = permuted(state["optimizer"], order[::-1])
    policy = make_policy("r2d2")
    before = copy.deepcopy(policy.learn_mode.state_dict())
    with pytest.raises(ValueError, match=r"encoder.init.weight \[128, 4\]: exp_avg is \[1\]\."):
        policy.learn_mode.load_state_dict(state)
    after = policy.learn_mode.state_dict()
    assert all(
        torch.equal(before[key][part], after[key][part]) for key in ("model", "target_model") for part in before[key]
    )
    learn(policy, CASES["r2d2"])
