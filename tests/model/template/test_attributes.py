"""Attributes of the models that other programs read."""

from __future__ import annotations

import pytest

from ding.model import (
    BDQ,
    DRQN,
    MAVAC,
    PG,
    QACDIST,
    VAC,
    ContinuousBC,
    ContinuousQAC,
    DiscreteQAC,
)

HYBRID = {"action_type_shape": 3, "action_args_shape": 2}
VAC_ATTRIBUTES = {"obs_shape": 4, "impala_cnn_encoder": False, "share_encoder": True}
CASES = [
    (DRQN(4, 2), {"res_link": False}),
    (BDQ(4, 2, 3), {"num_branches": 2, "action_bins_per_branch": 3}),
    (VAC(4, 2), {**VAC_ATTRIBUTES, "action_shape": 2, "action_space": "discrete", "multi_head": False}),
    (VAC([4], (2,)), {**VAC_ATTRIBUTES, "action_shape": 2, "action_space": "discrete", "multi_head": False}),
    (VAC(4, [2, 3]), {**VAC_ATTRIBUTES, "action_shape": (2, 3), "action_space": "discrete", "multi_head": True}),
    (VAC(4, 2, "continuous"), {"action_shape": 2, "action_space": "continuous", "multi_head": False}),
    (VAC(4, HYBRID, "hybrid"), {"action_shape": HYBRID, "action_space": "hybrid", "multi_head": False}),
    (VAC([3, 36, 36], 2), {"obs_shape": (3, 36, 36)}),
    (VAC({"arm": 3}, 2), {"obs_shape": {"arm": 3}}),
    (
        ContinuousQAC(4, (2,), "regression"),
        {"action_shape": 2, "action_space": "regression", "share_encoder": False, "twin_critic": False},
    ),
    (ContinuousQAC(4, HYBRID, "hybrid", twin_critic=True), {"action_shape": HYBRID, "twin_critic": True}),
    (DiscreteQAC(4, 2), {"share_encoder": False, "twin_critic": False}),
    (QACDIST(4, 2), {"action_space": "regression", "critic_head_type": "categorical"}),
    (PG(4, 2), {"action_space": "discrete"}),
    (
        MAVAC(4, (6,), 2, 3),
        {"agent_obs_shape": 4, "global_obs_shape": 6, "action_shape": 2, "action_space": "discrete"},
    ),
    (ContinuousBC(4, 2, "regression"), {"action_shape": 2, "action_space": "regression"}),
]


@pytest.mark.parametrize(("model", "attributes"), CASES, ids=lambda value: type(value).__name__)
def test_models_show_what_they_were_made_for(model, attributes):
    assert {name: getattr(model, name) for name in attributes} == attributes
