"""What all policies do with no envs, no samples, and settings that only some of them understand."""

from __future__ import annotations

import pytest
from easydict import EasyDict

import ding.policy  # noqa: F401 registers the policies
from ding.utils import POLICY_REGISTRY
from ding.utils.config_helper import ConfigError
from ding.utils.data.samples import Samples, Table

# Without those of other tests.
ALL = sorted(
    name
    for name in POLICY_REGISTRY.query()
    if not name.endswith("_command") and POLICY_REGISTRY.get(name).__module__.startswith("ding.")
)
SEQUENCES = {"r2d2", "impala", "acer"}
REAL_VALUED = {"sac": "reparameterization", "cql": "reparameterization", "iql": "reparameterization",
               **dict.fromkeys(("ddpg", "d4pg", "td3", "td3_bc"), "regression")}  # fmt: skip


def make_config(kind):
    cls = POLICY_REGISTRY.get(kind)
    cfg = cls.default_config()
    cfg.model = {**cfg.get("model", {}), "obs_shape": 4, "action_shape": 2}
    if kind == "bdq":
        cfg.model = {"obs_shape": 4, "num_branches": 2, "action_bins_per_branch": 3}
    if kind in REAL_VALUED:
        cfg.model.action_space = REAL_VALUED[kind]
    if kind == "bc":
        cfg.continuous = False
    cfg.collect = {**cfg.get("collect", {}), "env_num": 2}
    cfg.eval = {**cfg.get("eval", {}), "env_num": 2}
    return cls, EasyDict(cfg)


@pytest.fixture(scope="module", params=ALL)
def policy(request):
    cls, cfg = make_config(request.param)
    return cls(cfg)


def test_an_empty_batch_is_named(policy):
    for empty in ([], Samples(Table({}))):
        data = {"policy": empty, "value": empty} if policy.cfg.type == "ppg_offpolicy" else empty
        with pytest.raises(ValueError, match="empty"):
            policy.learn_mode.forward(data)


@pytest.mark.parametrize("kind", sorted(set(ALL) - SEQUENCES - {"ppg_offpolicy"}))  # which has a rule of its own
def test_a_policy_of_single_steps_refuses_sequences(kind):
    cls, cfg = make_config(kind)
    cfg.collect.unroll_len = 3
    with pytest.raises(ConfigError):
        cls(cfg)
    assert cls(cfg, enable_field=["collect", "eval"])._unroll_len == 3
