"""What all serial pipelines promise: their files and limits, equal seeds, resuming, and how they end."""

import copy
import os
import pathlib
import signal
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.config.read import read_config
from ding.entry import (
    serial_pipeline,
    serial_pipeline_bc,
    serial_pipeline_dqfd,
    serial_pipeline_offline,
    serial_pipeline_onpolicy,
    serial_pipeline_sqil,
)
from ding.model.template.q_learning import DQN
from ding.model.template.vac import VAC
from ding.utils.config_helper import ConfigError
from ding.utils.data.dataset import naive_save
from tests.entry.fakes import TinyEnv, demonstrations, evaluations, on_policy_pair, pair, result, setting, weights
from tests.entry.test_application_entry import always


def of_data(env=None, **policy):
    naive_save(demonstrations(), "demos.pkl")
    main, create = pair(env, **policy)
    main.policy.learn.train_epoch = 50
    main.policy.collect.update(data_type="naive", data_path="demos.pkl")
    return main, create


def of_demonstrations(env=None, **policy):
    main, create = pair(env, nstep=2, **policy)
    main.policy.learn.update(per_train_iter_k=2, expert_replay_buffer_size=20)
    main.policy.collect.pho = 0.5
    return main, create


def expert():
    main, create = pair()
    main.exp_name = "expert"
    return main, create


class Kind(NamedTuple):
    """A pipeline: the configs that it needs, and a call of it that returns the policy.

    Attributes:
        stops: the iterations of its evaluations in a run that has reached its stop value from the start.
    """

    pair: Callable[..., Any]
    train: Callable[..., Any]
    stops: list[int]
    logs: tuple[str, ...] = ("buffer", "collector", "evaluator", "learner", "serial")


def with_expert(pipeline):
    return lambda configs, **how: pipeline(configs, expert(), expert_model=always(1), **how)


def clone(configs, seed=0, max_train_iter=int(1e6), **how):
    return serial_pipeline_bc(configs, seed, "demos.pkl", max_iter=max_train_iter, **how)[0]


OFFLINE_LOGS = ("evaluator", "learner", "serial")
EXPERT_LOGS = ("buffer", "collector", "evaluator", "expert_buffer", "expert_collector", "learner", "serial")
KINDS = {
    "serial": Kind(pair, serial_pipeline, [0, 6]),
    "onpolicy": Kind(on_policy_pair, serial_pipeline_onpolicy, [0, 8], ("collector", "evaluator", "learner", "serial")),
    "offline": Kind(of_data, lambda configs, **how: serial_pipeline_offline(configs, **how)[0], [6], OFFLINE_LOGS),
    "bc": Kind(of_data, clone, [0, 6], OFFLINE_LOGS),
    "sqil": Kind(pair, with_expert(serial_pipeline_sqil), [0, 6], EXPERT_LOGS),
    "dqfd": Kind(of_demonstrations, with_expert(serial_pipeline_dqfd), [5], EXPERT_LOGS),
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
EXACT = {name: kind for name, kind in KINDS.items() if name != "onpolicy"}


def is_closed():
    return all(env.is_closed for env in TinyEnv.made if env.life)


def open_files():
    paths = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return {os.readlink(path) for path in paths if os.path.islink(path)}


class Ended(NamedTuple):
    """What a run of 12 iterations has left: its folder and policy, and what is neither closed nor as it was."""

    kind: Kind
    exp: pathlib.Path
    policy: Any
    changed: list[Any]
    threads: set[threading.Thread]
    files: set[str]
    open_envs: list[TinyEnv]


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS)
def ended(request, tmp_path_factory):
    kind = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("run"))
        patch.setattr(TinyEnv, "made", [])
        configs = kind.pair()
        configs[1].policy.type += "_command"
        before, threads, files = copy.deepcopy(configs), set(threading.enumerate()), open_files()
        policy = kind.train(configs, seed=1, env_setting=setting(), max_train_iter=12)
        for thread in set(threading.enumerate()) - threads:
            thread.join(10)  # the feeder of tensorboardX's queue ends by itself once the queue is closed
        changed = [one for one, other in zip(configs, before, strict=True) if one != other]
        open_envs = [env for env in TinyEnv.made if env.life and not env.is_closed]
        left = set(threading.enumerate()) - threads, open_files() - files, open_envs
        return Ended(kind, pathlib.Path("exp").absolute(), policy, changed, *left)


@pytest.mark.guarantees("interfaces")
@pytest.mark.differs("leaves no result of offline training", "writes `eval.jsonl` and `result.pkl`")
def test_a_run_leaves_config_logs_checkpoints_evaluations_and_result(ended):
    exp = ended.exp
    configs = {f"{name}total_config.{suffix}" for name in ("", "formatted_") for suffix in ("json", "py")}
    files = {"ckpt", "eval.jsonl", "log", "metrics", "metrics.jsonl", "result.json", "result.pkl", "run_state"}
    assert set(os.listdir(exp)) == files | configs
    assert {"ckpt_best.pth.tar", "iteration_12.pth.tar"} <= set(os.listdir(exp / "ckpt"))
    assert tuple(sorted(os.listdir(exp / "log"))) == ended.kind.logs
    assert any(name.startswith("events.out") for name in os.listdir(exp / "log/serial"))
    found, lines = result(exp), evaluations(exp)
    assert found["stop"] is False and found["train_iter"] == 12
    assert {(line["seed"], len(line["returns"]), tuple(line["lengths"])) for line in lines} == {(1, 3, (5, 5, 5))}
    assert found["eval_value_raw"] == lines[-1]["returns"]
    assert found["eval_value"] == pytest.approx(np.mean(lines[-1]["returns"]))
    saved = torch.load(exp / "ckpt/iteration_12.pth.tar", weights_only=True)["model"]
    assert set(weights(ended.policy)) == set(saved)


def test_the_inputs_are_not_changed_and_a_command_type_stays(ended):
    assert ended.changed == []
    kind_of_policy = ended.kind.pair()[1].policy.type
    assert read_config(str(ended.exp / "formatted_total_config.py"))[1].policy.type == kind_of_policy


@pytest.mark.differs("leaves it to destructors to close envs and writers", "closes them, however a run ends")
def test_everything_is_closed_after_a_run(ended):
    assert (ended.threads, ended.files, ended.open_envs) == (set(), set(), [])


@pytest.mark.differs("exceeds `max_train_iter`", "stops exactly there")
@pytest.mark.parametrize("kind", EXACT.values(), ids=EXACT)
def test_training_stops_exactly_at_max_train_iter(kind):
    for limit in (1, 5):
        kind.train(kind.pair(), env_setting=setting(), max_train_iter=limit)
        folder = max((name for name in os.listdir() if name.startswith("exp") and name != "expert"), key=len)
        assert result(folder)["train_iter"] == limit


@each_kind
def test_the_run_stops_at_the_stop_value_but_never_before_training(kind):
    kind.train(kind.pair(env={"stop_value": 0}), env_setting=setting())
    assert result()["stop"] is True and result()["train_iter"] == kind.stops[-1]
    assert [line["train_iter"] for line in evaluations()] == kind.stops


@pytest.mark.guarantees("equal-bits")
@pytest.mark.differs("orders data by other things than the seed, too", "repeats a run bit for bit with the same seed")
@each_kind
def test_equal_seeds_give_equal_runs_and_other_seeds_do_not(kind):
    def once(exp, seed):
        main, create = kind.pair()
        main.exp_name = exp
        policy = kind.train((main, create), seed=seed, env_setting=setting(), max_train_iter=20)
        return [(line["train_iter"], line["env_step"], line["returns"]) for line in evaluations(exp)], weights(policy)

    lines, model = once("a", 3)
    same_lines, same_model = once("b", 3)
    _, other_model = once("c", 4)
    assert len(lines) > 1 and lines == same_lines
    assert all(torch.equal(model[key], same_model[key]) for key in model)
    assert not all(torch.equal(model[key], other_model[key]) for key in model)


@pytest.mark.differs("fails in `serial_pipeline_bc` on the path of a config", "reads the file")
@each_kind
def test_a_config_file_is_enough_and_its_formatted_copy_trains_again_alike(kind, tmp_path):
    main, create = kind.pair()
    (tmp_path / "my_config.py").write_text(
        f"from easydict import EasyDict\nmain_config = EasyDict({main!r})\ncreate_config = EasyDict({create!r})\n"
    )
    first = kind.train("my_config.py", seed=2, max_train_iter=4)
    again = kind.train("exp/formatted_total_config.py", seed=2, max_train_iter=4)
    ours, theirs = weights(first), weights(again)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@each_kind
def test_a_model_of_ones_own_is_trained_and_not_compared_with_the_config(kind):
    main, create = kind.pair()
    main.policy.model.obs_shape = 99
    is_on_policy = create.policy.type == "ppo"
    model = VAC(3, 2, encoder_hidden_size_list=[8]) if is_on_policy else DQN(3, 2, encoder_hidden_size_list=[8])
    assert kind.train((main, create), env_setting=setting(), model=model, max_train_iter=4)._model is model


@each_kind
def test_a_run_goes_on_from_a_checkpoint_in_the_same_folder(kind):
    kind.train(kind.pair(), env_setting=setting(), max_train_iter=8)
    env_step = result()["env_step"]
    loaded = {"load_ckpt_before_run": "exp/ckpt/iteration_8.pth.tar"}
    kind.train(
        kind.pair(learn={"resume_training": True, "learner": {"hook": loaded}}),
        env_setting=setting(),
        max_train_iter=16,
    )
    assert {name for name in os.listdir() if name.startswith("exp")} <= {"exp", "expert"}
    assert result()["train_iter"] == 16
    assert result()["env_step"] > env_step or env_step == 0


@pytest.mark.guarantees("resume")
@each_kind
def test_a_run_that_resumes_ends_as_if_it_had_not_been_interrupted(kind):
    def train(exp, *limits):
        for limit in limits:
            main, create = kind.pair()
            main.exp_name = exp
            policy = kind.train((main, create), env_setting=setting(), max_train_iter=limit, resume=True)
        return [(line["train_iter"], line["returns"]) for line in evaluations(exp)], weights(policy)

    end = kind.stops[-1]  # of a round
    lines, model = train("whole", end + 12)
    resumed_lines, resumed_model = train("parts", end, end + 12)
    assert lines == resumed_lines and all(torch.equal(model[key], resumed_model[key]) for key in model)


@each_kind
def test_a_strict_config_is_refused_before_anything_is_made(kind):
    main, create = kind.pair()
    main.policy.lr = 3
    with pytest.raises(ConfigError, match="policy.lr = 3; use policy.learn.learning_rate"):
        kind.train((main, create), env_setting=setting(), strict_config=True)
    assert TinyEnv.made == [] and not os.path.exists("exp")


@each_kind
def test_only_rank_0_writes_the_result(kind, monkeypatch):
    monkeypatch.setattr("ding.entry.serial_run.get_rank", lambda: 1)
    kind.train(kind.pair(), env_setting=setting(), max_train_iter=1)
    assert not {"result.pkl", "eval.jsonl"} & set(os.listdir("exp"))


@pytest.mark.guarantees("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@each_kind
def test_a_signal_saves_a_checkpoint_closes_everything_and_exits_with_130(kind, number):
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]

    def on_step(env):
        if env.life == 3:
            signal.raise_signal(number)

    with pytest.raises(SystemExit) as e:
        kind.train(kind.pair(), env_setting=setting(evaluator={"on_step": on_step}))
    assert e.value.code == 130
    assert "ckpt_interrupt.pth.tar" in os.listdir("exp/ckpt")
    assert is_closed()
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers


@each_kind
def test_a_nan_observation_stops_the_run_with_its_message_and_a_checkpoint(kind):
    with pytest.raises(FloatingPointError, match="the observation of env 0 holds NaN"):
        kind.train(kind.pair(), env_setting=setting(evaluator={"nan_at": 3}))
    assert "ckpt_exception.pth.tar" in os.listdir("exp/ckpt")
    assert not os.path.exists("exp/result.pkl")
    assert is_closed()


@pytest.mark.differs(
    "fails inside torch if a model does not fit the env",
    "refuses it before training, and names both shapes",
)
@each_kind
def test_a_model_that_does_not_fit_the_env_is_refused_before_training(kind):
    main, create = kind.pair()
    main.policy.model.action_shape = 3
    with pytest.raises(ValueError, match=r"policy.model.action_shape = 3 .* Discrete\(2\)"):
        kind.train((main, create), env_setting=setting())
    assert not any(env.life for env in TinyEnv.made)
    assert all(env.is_closed for env in TinyEnv.made if env.seeds)
    assert not os.path.exists("exp")


@each_kind
def test_replicas_that_nobody_keeps_equal_are_refused_before_envs_are_made(kind, monkeypatch):
    monkeypatch.setattr("ding.entry.experiment.get_world_size", lambda: 2)
    with pytest.raises(ConfigError, match="policy.multi_gpu = True"):
        kind.train(kind.pair(), env_setting=setting(), max_train_iter=1)
    assert TinyEnv.made == []


@each_kind
def test_too_few_evaluation_episodes_are_refused_before_envs_are_made(kind):
    with pytest.raises(ValueError, match="n_evaluator_episode = 1 is less than env.evaluator_env_num = 2"):
        kind.train(kind.pair(env={"n_evaluator_episode": 1}), env_setting=setting())
    assert TinyEnv.made == [] and not os.path.exists("exp")


@each_kind
def test_an_env_setting_may_take_the_place_of_a_registered_env(kind):
    main, create = kind.pair()
    create.pop("env")
    with pytest.raises(ValueError, match="create_config.env is missing"):
        kind.train((main, create))
    assert kind.train((main, EasyDict(create)), env_setting=setting(), max_train_iter=1) is not None
