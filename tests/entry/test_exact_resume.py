"""Runs that are killed at any moment, and gone on with: they end with the same bits as one that was left alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from easydict import EasyDict

import ding.entry
from tests.entry.killed_runs import Job, Moment, Outcome, assert_same, inexact, outcome, play

_NET = {"encoder_hidden_size_list": [16]}
_EPS = {"type": "exp", "start": 0.95, "end": 0.1, "decay": 200}


def _pair(env_id: str, policy: dict[str, Any], manager: str, kind: str) -> tuple[EasyDict, EasyDict]:
    is_cartpole = env_id.startswith("CartPole")
    env = {"collector_env_num": 2, "evaluator_env_num": 2, "n_evaluator_episode": 2, "stop_value": 1e9}
    if not is_cartpole:
        env["act_scale"] = True
    policy.setdefault("eval", {}).setdefault("evaluator", {"eval_freq": 12})
    policy["learn"].setdefault("learner", {"hook": {"log_show_after_iter": 5, "save_ckpt_after_iter": 10}})
    main = EasyDict(exp_name="exp", env={"env_id": env_id, **env}, policy=policy, run_state={"every_iter": 9})
    create = EasyDict(env={"type": "gymnasium"}, env_manager={"type": manager}, policy={"type": kind})
    return main, create


def _dqn(**changes: Any) -> dict[str, Any]:
    return {
        "model": {"obs_shape": 4, "action_shape": 2, **_NET},
        "nstep": 3,
        "learn": {"update_per_collect": 3, "batch_size": 16, "target_update_freq": 10},
        "collect": {"n_sample": 24, "unroll_len": 1},
        "other": {"eps": dict(_EPS), "replay_buffer": {"replay_buffer_size": 300}},
        **changes,
    }


def _r2d2() -> dict[str, Any]:
    return {
        "model": {"obs_shape": 4, "action_shape": 2, **_NET},
        "priority": True,
        "nstep": 2,
        "burnin_step": 2,
        "learn_unroll_len": 6,
        "learn": {"update_per_collect": 2, "batch_size": 8},
        "collect": {"n_sample": 6, "unroll_len": 8, "env_num": 2},
        "eval": {"env_num": 2, "evaluator": {"eval_freq": 12}},
        "other": {"eps": dict(_EPS), "replay_buffer": {"replay_buffer_size": 40}},
    }


def _ppo() -> dict[str, Any]:
    return {
        "action_space": "discrete",
        "model": {"obs_shape": 4, "action_shape": 2, **_NET},
        "learn": {"epoch_per_collect": 2, "batch_size": 32, "value_norm": True},
        "collect": {"n_sample": 64, "unroll_len": 1},
    }


def _sac() -> dict[str, Any]:
    return {
        "random_collect_size": 60,
        "model": {
            "obs_shape": 3,
            "action_shape": 1,
            "twin_critic": True,
            "action_space": "reparameterization",
            "actor_head_hidden_size": 16,
            "critic_head_hidden_size": 16,
        },
        "learn": {"update_per_collect": 3, "batch_size": 16, "auto_alpha": True},
        "collect": {"n_sample": 24, "unroll_len": 1},
        "other": {"replay_buffer": {"replay_buffer_size": 500}},
    }


def _td3() -> dict[str, Any]:
    return {
        "random_collect_size": 60,
        "model": {
            "obs_shape": 3,
            "action_shape": 1,
            "twin_critic": True,
            "action_space": "regression",
            "actor_head_hidden_size": 16,
            "critic_head_hidden_size": 16,
        },
        "learn": {"update_per_collect": 3, "batch_size": 16},
        "collect": {"n_sample": 24, "unroll_len": 1, "noise_sigma": 0.1},
        "other": {"replay_buffer": {"replay_buffer_size": 500}},
    }


_RUNS: dict[str, tuple[str, Callable[[], dict[str, Any]], str, str]] = {
    "dqn": ("CartPole-v1", _dqn, "dqn", "serial_pipeline"),
    "prioritized dqn": (
        "CartPole-v1",
        lambda: _dqn(priority=True, priority_IS_weight=True),
        "dqn",
        "serial_pipeline",
    ),
    "r2d2": ("CartPole-v1", _r2d2, "r2d2", "serial_pipeline"),
    "ppo": ("CartPole-v1", _ppo, "ppo", "serial_pipeline_onpolicy"),
    "sac": ("Pendulum-v1", _sac, "sac", "serial_pipeline"),
    "td3": ("Pendulum-v1", _td3, "td3", "serial_pipeline"),
}
# How many of each there are in a run, at least.
_COUNTS = {"collect": 150, "update": 40, "save": 25}


def job(name: str, manager: str = "base", iterations: int = 40) -> Job:
    """The run called `name`, as a function of whether to go on from its state."""
    env_id, policy, kind, pipeline = _RUNS[name]

    def run(resume: bool) -> None:
        pair = _pair(env_id, policy(), manager, kind)
        getattr(ding.entry, pipeline)(pair, seed=3, max_train_iter=iterations, resume=resume)

    return run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Outcome]:
    """What a run leaves that nobody kills; each is made once."""
    found: dict[tuple[str, str], Outcome] = {}

    def of(name: str, manager: str) -> Outcome:
        if (name, manager) not in found:
            folder = tmp_path_factory.mktemp("undisturbed")
            assert play(job(name, manager), folder) == 0
            found[name, manager] = outcome(folder)
        return found[name, manager]

    return of


def moments(seed: str, number: int) -> Iterator[Moment]:
    """Random moments, in turn in the middle of a collection, of an update, of the saving of a state."""
    rng = random.Random(seed)
    for i in range(number):
        what = list(_COUNTS)[i % 3]
        yield Moment(what, rng.randint(1, _COUNTS[what]))


def killed_and_resumed(run: Job, folder: Path, moment: Moment) -> None:
    """Kill a run at the moment, and go on with it; once more at the same distance, and go on to the end."""
    assert play(run, folder, moment=moment) == -9
    status = play(run, folder, resume=True, moment=moment)
    assert status in (0, -9)
    if status == -9:
        assert play(run, folder, resume=True) == 0


@pytest.mark.parametrize("name", _RUNS)
def test_a_run_that_is_killed_twice_and_gone_on_with_leaves_what_it_would_have_left(
    name: str, undisturbed: Callable[[str, str], Outcome], tmp_path: Path
) -> None:
    for i, moment in enumerate(moments(name, 3)):
        killed_and_resumed(job(name), tmp_path / str(i), moment)
        assert_same(outcome(tmp_path / str(i)), undisturbed(name, "base"))
        assert inexact(tmp_path / str(i)) == []


@pytest.mark.slow
@pytest.mark.parametrize("manager", ["base", "subprocess"])
@pytest.mark.parametrize("name", _RUNS)
def test_a_run_that_is_killed_at_any_of_ten_moments_leaves_what_it_would_have_left(
    name: str, manager: str, undisturbed: Callable[[str, str], Outcome], tmp_path: Path
) -> None:
    for i, moment in enumerate(moments(f"{name} {manager}", 10)):
        killed_and_resumed(job(name, manager), tmp_path / str(i), moment)
        assert_same(outcome(tmp_path / str(i)), undisturbed(name, manager))
        assert inexact(tmp_path / str(i)) == []
