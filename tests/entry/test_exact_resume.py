"""Runs that are killed at any moment and resumed: they end with the same bits as an undisturbed run."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from easydict import EasyDict

import ding.entry
from ding.entry.run_state import gather_states, restore_states
from ding.envs.env_manager.base_env_manager import BaseEnvManager
from ding.example.goofspiel import GoofspielEnv
from ding.example.goofspiel_selfplay import policy_config
from ding.policy.ppo import PPOPolicy
from ding.utils.default_helper import set_pkg_seed
from ding.utils.msgpack_helper import pack, unpack
from ding.utils.object_state import (
    global_generators_state,
    load_global_generators_state,
)
from ding.utils.state_folder import StateFolder
from ding.worker.collector.players import BattleSampleSerialCollector
from ding.worker.learner.base_learner import BaseLearner
from tests.entry.fakes import TinyEnv
from tests.entry.fakes import pair as tiny_pair
from tests.entry.killed_runs import Job, Moment, Outcome, assert_same, inexact, outcome, play
from tests.same_state import differences

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
        "learn": {"update_per_collect": 3, "batch_size": 16, "target_update_freq": 10, "lr_scheduler": "linear"},
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


def _ppo(**collector: Any) -> dict[str, Any]:
    return {
        "action_space": "discrete",
        "model": {"obs_shape": 4, "action_shape": 2, **_NET},
        "learn": {"epoch_per_collect": 2, "batch_size": 32, "value_norm": True},
        "collect": {"n_sample": 64, "unroll_len": 1, "collector": collector},
    }


def _continuous(action_space: str, learn: Mapping[str, Any], collect: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "random_collect_size": 60,
        "model": {
            "obs_shape": 3,
            "action_shape": 1,
            "twin_critic": True,
            "action_space": action_space,
            "actor_head_hidden_size": 16,
            "critic_head_hidden_size": 16,
        },
        "learn": {"update_per_collect": 3, "batch_size": 16, **learn},
        "collect": {"n_sample": 24, "unroll_len": 1, **collect},
        "other": {"replay_buffer": {"replay_buffer_size": 500}},
    }


def _sac() -> dict[str, Any]:
    return _continuous("reparameterization", {"auto_alpha": True}, {})


def _td3() -> dict[str, Any]:
    return _continuous("regression", {"lr_scheduler": {"type": "ExponentialLR", "gamma": 0.99}}, {"noise_sigma": 0.1})


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
    "fixed rollouts": ("CartPole-v1", lambda: _ppo(fixed_rollout=True), "ppo", "serial_pipeline_onpolicy"),
}
# How many of each there are in a run, at least.
_COUNTS = {"collect": 150, "update": 40, "save": 14}


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


def moments(seed: str, number: int, counts: Mapping[str, int] = _COUNTS) -> Iterator[Moment]:
    """Random moments, in turn in the middle of a collection, of an update, of the saving of a state."""
    rng = random.Random(seed)
    for i in range(number):
        what = list(counts)[i % 3]
        yield Moment(what, rng.randint(1, counts[what]))


def killed_and_resumed(run: Job, folder: Path, moment: Moment) -> None:
    """Kill a run at the moment, and go on with it; once more at the same distance, and go on to the end."""
    assert play(run, folder, moment=moment) == -9
    status = play(run, folder, resume=True, moment=moment)
    assert status in (0, -9)
    if status == -9:
        assert play(run, folder, resume=True) == 0


def assert_exact(run: Job, folder: Path, moment: Moment, expected: Outcome) -> None:
    """Kill and resume a run; it leaves the expected outcome and reports nothing inexact."""
    killed_and_resumed(run, folder, moment)
    assert_same(outcome(folder), expected)
    assert inexact(folder) == []


# The others are slow tests: each takes some seconds more, and the test of ten moments covers all of them.
_QUICK = ("dqn", "prioritized dqn", "ppo", "fixed rollouts")


@pytest.mark.guarantees("resume")
@pytest.mark.differs(
    "loses everything but the weights when a run is killed",
    "saves the whole state of a serial run periodically; `--resume` continues with the same bits",
)
@pytest.mark.parametrize(
    ("name", "what"),
    [
        pytest.param(name, what, marks=() if name in _QUICK else pytest.mark.slow)
        for name, what in zip(_RUNS, cycle(_COUNTS), strict=False)
    ],
)
def test_a_run_that_is_killed_twice_and_gone_on_with_leaves_what_it_would_have_left(
    name: str, what: str, undisturbed: Callable[[str, str], Outcome], tmp_path: Path
) -> None:
    moment = next(m for m in moments(name, 3) if m.what == what)
    assert_exact(job(name), tmp_path / "killed", moment, undisturbed(name, "base"))


# environments


class TellingEnv(TinyEnv):
    """Remembers its former episodes."""

    _mood = 0.0

    def step(self, action: Any) -> Any:
        timestep = super().step(action)
        self._mood += 0.25
        return timestep._replace(obs=timestep.obs + np.float32(self._mood))

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "mood": self._mood}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self._mood = state["mood"]


class SilentEnv(TinyEnv):
    """Declares no state."""

    get_state = set_state = None


def tiny_job(env: type[TinyEnv], manager: str = "base") -> Job:
    def run(resume: bool) -> None:
        main, create = tiny_pair(env={"stop_value": 1e9})
        main.run_state = {"every_iter": 4}
        create.env_manager.type = manager
        envs = [env, [{"length": 7}] * 2, [{"length": 7}] * 2]
        ding.entry.serial_pipeline((main, create), env_setting=envs, max_train_iter=24, resume=resume)

    return run


@pytest.mark.parametrize("manager", ["base", pytest.param("subprocess", marks=pytest.mark.slow)])
def test_envs_go_on_by_get_state_and_set_state(manager: str, tmp_path: Path) -> None:
    run = tiny_job(TellingEnv, manager)
    assert play(run, tmp_path / "undisturbed") == 0
    assert_exact(run, tmp_path / "killed", Moment("update", 13), outcome(tmp_path / "undisturbed"))


@pytest.mark.guarantees("resume")
def test_a_run_whose_envs_declare_no_state_says_so_and_goes_on(tmp_path: Path) -> None:
    run = tiny_job(SilentEnv)
    assert play(run, tmp_path, moment=Moment("update", 13)) == -9
    assert play(run, tmp_path, resume=True) == 0
    (reason,) = inexact(tmp_path)  # once for all envs
    parts, _, cause = reason.partition(": ")
    assert parts.split(", ")[0] == "collector_env" and cause.startswith("SilentEnv has no get_state and set_state")
    assert outcome(tmp_path).evaluations[-1]["train_iter"] == 18
    warnings = (tmp_path / "warnings").read_text()
    assert warnings.count(f"exp: the run does not resume exactly: {reason}") == 1
    assert warnings.count("does not resume exactly") == 1


# a loop of one's own


def self_play(resume: bool) -> None:
    """One policy plays both seats of a game and learns from both; a state is saved after every second round."""
    with ExitStack() as stack:
        set_pkg_seed(0, use_cuda=False)
        policy = PPOPolicy(policy_config(3), enable_field=["learn", "collect", "eval"])
        env = BaseEnvManager([partial(GoofspielEnv, {"cards": 3})] * 3, BaseEnvManager.default_config())
        env.seed(0)
        learner = BaseLearner(BaseLearner.default_config(), policy.learn_mode, exp_name="exp")
        stack.callback(learner.close)
        settings = BattleSampleSerialCollector.default_config()
        collector = BattleSampleSerialCollector(
            settings, env, [policy.collect_mode] * 2, learner.tb_logger, exp_name="exp"
        )
        stack.callback(collector.close)
        parts = {"policy": policy, "learner": learner, "env": env, "collector": collector}
        folder, first = StateFolder("exp/run_state"), 0
        found = folder.read() if resume else None
        if found is not None:
            state, about = found
            assert restore_states(parts, state["parts"]) == []
            load_global_generators_state(state["generators"])
            first = about["rounds"]
        for k in range(first, 7):
            data, _ = collector.collect(n_sample=20, train_iter=learner.train_iter)
            learner.train([sample for samples in data for sample in samples], collector.envstep)
            if k % 2:
                states, reasons = gather_states(parts)
                assert reasons == []
                folder.write({"parts": states, "generators": global_generators_state()}, {"rounds": k + 1})
        Path("outcome").write_bytes(pack(gather_states({**parts, "env": 0})[0]))


_TWO_MOMENTS = [Moment("collect", 37), Moment("save", 2)]
_TEN_MOMENTS = list(moments("two players", 10, {"collect": 37, "update": 7, "save": 2}))


@pytest.mark.parametrize(
    "moments_of_kills",
    [pytest.param(_TWO_MOMENTS, id="two"), pytest.param(_TEN_MOMENTS, id="ten", marks=pytest.mark.slow)],
)
def test_two_players_in_a_loop_of_ones_own_go_on_as_if_nothing_had_been(
    moments_of_kills: list[Moment], tmp_path: Path
) -> None:
    assert play(self_play, tmp_path / "undisturbed") == 0
    expected = unpack((tmp_path / "undisturbed" / "outcome").read_bytes())
    for i, moment in enumerate(moments_of_kills):
        killed_and_resumed(self_play, tmp_path / str(i), moment)
        found = unpack((tmp_path / str(i) / "outcome").read_bytes())
        wrong = differences(found, expected, ("monitor", "log_buffer", "rollout", "statistics"))
        assert [line for line in wrong if "time" not in line and "duration" not in line] == []


@pytest.mark.guarantees("resume")
@pytest.mark.slow
@pytest.mark.parametrize("manager", ["base", "subprocess"])
@pytest.mark.parametrize("name", _RUNS)
def test_a_run_that_is_killed_at_any_of_ten_moments_leaves_what_it_would_have_left(
    name: str, manager: str, undisturbed: Callable[[str, str], Outcome], tmp_path: Path
) -> None:
    for i, moment in enumerate(moments(f"{name} {manager}", 10)):
        assert_exact(job(name, manager), tmp_path / str(i), moment, undisturbed(name, manager))
