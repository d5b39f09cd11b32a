"""A policy tells all that it holds: trained, told, put into another one, it goes on with the same bits."""

from __future__ import annotations

import copy
import importlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.config.config import compile_config
from ding.entry.pipeline import read_pair, with_command_mode
from ding.entry.serial_entry_dqfd import mark
from ding.entry.workers import build_run
from ding.policy.base_policy import create_policy
from ding.utils.data.samples import Samples, Table
from tests.benchmarks.learning import names
from tests.same_state import differences, through_bytes

# What is learned from a data set learns here from what another policy has collected.
_COLLECTED_BY = {"cql": "sac", "td3_bc": "td3", "iql": "sac", "discrete_cql": "qrdqn", "bc": "dqn", "sqil": "sql"}
# What is no state: what is cached of modules, and hooks, which torch numbers.
_NO_STATE = ("_modes", "_optimizer_step_pre_hooks")
_TIMES = ("forward_time", "backward_time")


def _configs(name: str, tmp_path: Path, nstep: int | None = None) -> EasyDict:
    task = importlib.import_module(f"tests.benchmarks.learning_tasks.{name}")
    pair = EasyDict(copy.deepcopy(task.main_config)), EasyDict(copy.deepcopy(task.create_config))
    main, create = read_pair(pair)
    with_command_mode(create)
    main.exp_name = str(tmp_path / name)
    main.env.update(collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1)
    collect = main.policy.setdefault("collect", EasyDict())
    for section in (main.policy, collect):
        if "n_episode" in section:
            section.n_episode = 2
        if "n_sample" in section:
            section.n_sample = 64
    if "env_num" in collect:
        collect.env_num = main.policy.eval.env_num = 2
    main.policy.random_collect_size = 0
    if nstep is not None:
        main.policy.nstep = nstep
    main.policy.update(priority=False, priority_IS_weight=False)
    main.policy.learn.batch_size = 32
    return compile_config(main, seed=0, auto=True, create_cfg=create, save_cfg=False)


def _policy(name: str, tmp_path: Path, seed: int) -> Any:
    torch.manual_seed(seed)
    np.random.seed(seed)
    return create_policy(_configs(name, tmp_path).policy, enable_field=["learn", "collect", "eval", "command"])


def _data(name: str, tmp_path: Path) -> list[Any]:
    """Samples, in three parts."""
    with ExitStack() as stack:
        nstep = _configs(name, tmp_path).policy.get("nstep")
        cfg = _configs(_COLLECTED_BY.get(name, name), tmp_path, nstep)
        run = build_run(stack, cfg, None, None, has_buffer=False)
        data = run.collector.collect(policy_kwargs=run.commander.step())
        if not run.cfg.policy.get("on_policy"):
            while len(data) < 12:
                data = list(data) + list(run.collector.collect(policy_kwargs=run.commander.step()))
            data = data[:12]
        data = list(data)
    if name == "dqfd":
        mark(data, "is_expert", 0)
    return data


def _batch(name: str, data: list[Any]) -> Any:
    batch: Any = Samples(Table.of(copy.deepcopy(data))) or copy.deepcopy(data)
    return {"policy": batch, "value": batch} if name == "ppg_offpolicy" else batch


def _seed_all() -> None:
    np.random.seed(5)
    torch.manual_seed(5)


@pytest.mark.parametrize("name", names())
def test_a_policy_that_takes_over_the_state_of_another_holds_the_same_and_goes_on_alike(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = _data(name, tmp_path)
    one, other = _policy(name, tmp_path, seed=1), _policy(name, tmp_path, seed=2)
    obs = {i: torch.as_tensor(np.asarray(data[i]["obs"] if not isinstance(data[i]["obs"], list) else data[i]["obs"][0]))
           for i in range(2)}  # fmt: skip
    for _ in range(3):
        one.learn_mode.forward(_batch(name, data))
    settings = one.command_mode.get_setting_collect({"envstep": 3, "learner_step": 3, "learner_train_iter": 3})
    if name not in ("pdqn", "sqil", "bc"):
        one.collect_mode.forward(obs, **settings)
    other.load_state_dict(through_bytes(one.state_dict()))
    assert differences(one, other, _NO_STATE) == []
    outcomes = []
    for policy in (one, other):
        _seed_all()
        outcomes.append(policy.learn_mode.forward(_batch(name, data)))
    assert differences(*outcomes, _TIMES) == [] and differences(one, other, _NO_STATE) == []
