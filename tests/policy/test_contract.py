"""What each registered policy promises, with samples that its own collector has made.

A policy's own test file has what is its own: its loss, its settings, its errors.
"""

import copy
import functools
import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from easydict import EasyDict
from torch.nn.modules.module import register_module_forward_hook

import ding.policy
from ding.config.config import Compilation, compile_config
from ding.config.topics import KnownKeys
from ding.entry.experiment import Experiment, read_pair, with_command_mode
from ding.entry.serial_entry import OnPolicyRounds
from ding.entry.serial_entry_dqfd import mark
from ding.policy import training_step
from ding.policy.base_policy import create_policy
from ding.utils import set_pkg_seed
from ding.utils.config_helper import ConfigError
from ding.utils.data.plain_columns import from_plain, to_plain
from ding.utils.data.samples import Samples, Table
from ding.utils.registry_factory import POLICY_REGISTRY
from tests.benchmarks.learning_tasks import TASKS
from tests.generators import reseed
from tests.own_folder import own_folder as own_folder
from tests.policy.learning import model_of, set_paths, watch_syncs, watched_steps
from tests.same_state import differences, through_bytes

# What is learned from a data set learns here from what another policy has collected.
_COLLECTED_BY = {"cql": "sac", "td3_bc": "td3", "iql": "sac", "discrete_cql": "qrdqn", "bc": "dqn", "sqil": "sql"}
# What is no state: hooks, which torch numbers, and the mode, which each call sets.
_NO_STATE = ("_optimizer_step_pre_hooks", "training")
_TIMES = ("forward_time", "backward_time")
# Policies that give their samples a priority by the value of the next observation.
_BOOTSTRAPPING = ["dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow", "mdqn", "sql", "sqn", "bdq", "ddpg", "td3", "d4pg",
                  "sac", "discrete_sac", "discrete_cql", "cql", "td3_bc", "iql"]  # fmt: skip
each_policy = pytest.mark.parametrize("name", TASKS)


def _configs(name: str, nstep: int | None = None) -> EasyDict:
    main, create = read_pair(TASKS[name].configs())
    with_command_mode(create)
    main.exp_name = name
    main.env.update(collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1)
    collect = main.policy.setdefault("collect", EasyDict())
    for section in (main.policy, collect):
        if "n_episode" in section:
            section.n_episode = 2
        if "n_sample" in section:
            section.n_sample = 64
        if section.get("unroll_len", 1) > 1:
            section.unroll_len, section.n_sample = 8, 12
    if "learn_unroll_len" in main.policy:
        main.policy.learn_unroll_len = 8 - main.policy.burnin_step
    if "epoch_per_collect" in main.policy.learn:
        main.policy.learn.epoch_per_collect = 2
    if "env_num" in collect:
        collect.env_num = main.policy.eval.env_num = 2
    main.policy.random_collect_size = 0
    if nstep is not None:
        main.policy.nstep = nstep
    main.policy.update(priority=False, priority_IS_weight=False)
    main.policy.learn.batch_size = 32
    return compile_config(main, seed=0, auto=True, create_cfg=create, save_cfg=False)


@functools.cache
def _policy_config(name: str) -> EasyDict:
    return _configs(name).policy


def make(name: str, *fields: str, seed: int = 1, **settings: Any) -> Any:
    cfg = copy.deepcopy(_policy_config(name))
    set_paths(cfg, settings)
    set_pkg_seed(seed, use_cuda=False)
    return create_policy(cfg, enable_field=list(fields or ("learn", "collect", "eval", "command")))


@functools.cache
def samples(name: str) -> list[Any]:
    """What a collector with this policy has collected."""
    with ExitStack() as stack:
        nstep = _policy_config(name).get("nstep")
        cfg = _configs(_COLLECTED_BY.get(name, name), nstep)
        run = Experiment({}, {}, Compilation(cfg, None, KnownKeys())).build_run(stack, OnPolicyRounds())
        data = run.collector.collect(policy_kwargs=run.commander.step())
        if not run.cfg.policy.get("on_policy"):
            while len(data) < 12:
                data = list(data) + list(run.collector.collect(policy_kwargs=run.commander.step()))
            data = data[:12]
        data = list(data)
    if name == "dqfd":
        mark(data, "is_expert", 0)
    return data


def batch(name: str, data: list[Any] | None = None) -> Any:
    """These samples as a learner gets them, in columns."""
    found: Any = Samples(Table.of(copy.deepcopy(samples(name) if data is None else data)))
    return _for_buffers(name, found)


def _for_buffers(name: str, data: Any) -> Any:
    return {"policy": data, "value": data} if name == "ppg_offpolicy" else data


def learn(policy: Any, data: Any, seed: int = 5) -> Any:
    reseed(policy, seed)
    return policy.learn_mode.forward(data)


def rows(output: Any) -> list[dict[str, Any]]:
    return output if isinstance(output, list) else [output]


def observations(name: str, *env_ids: int) -> dict[int, Any]:
    def one(obs: Any) -> Any:
        first = obs[0] if isinstance(obs, list) else obs
        return torch.as_tensor(np.asarray(first))

    return {env_id: one(sample["obs"]) for env_id, sample in zip(env_ids, samples(name), strict=False)}


def act(policy: Any, obs: dict[int, Any]) -> dict[int, Any]:
    commands = policy.command_mode.get_setting_collect({"envstep": 3, "learner_step": 3, "learner_train_iter": 3})
    found: dict[int, Any] = policy.collect_mode.forward(obs, **commands)
    return found


# --- state ---


@each_policy
def test_a_policy_that_takes_over_the_state_of_another_holds_the_same_and_goes_on_alike(name: str) -> None:
    one, other = make(name), make(name, seed=2)
    for _ in range(3):
        one.learn_mode.forward(batch(name))
    act(one, observations(name, 0, 1))
    other.load_state_dict(through_bytes(one.state_dict()))
    assert differences(one, other, _NO_STATE) == []
    outcomes = [learn(policy, batch(name)) for policy in (one, other)]
    assert differences(*outcomes, _TIMES) == [] and differences(one, other, _NO_STATE) == []


_SCHEDULE = {"learn__lr_scheduler": {"epoch_num": 5, "min_lr_lambda": 0.1}}
_LEARNING = [
    *[(name, {}) for name in TASKS],
    *[
        ("ppo", _SCHEDULE),
        ("dqn", {"learn__target_update_freq": 3, **_SCHEDULE}),
        ("cql", {"learn__with_lagrange": True}),
    ],
    *[(name, {"learn__lr_scheduler": {"type": "ExponentialLR", "gamma": 0.5}}) for name in ("sac", "fqf", "bc")],
    ("sac", {"learn__log_space": False}),
    ("td3", {"learn__target_update_freq": 3}),
]


@pytest.mark.guarantees("resume")
@pytest.mark.differs(
    "loses in checkpoints PPO's value scale and learning-rate schedule, temperatures, CQL's multiplier, TD3's and "
    "DQN's counts of updates, SQN's target network and the phase of PPG",
    "saves them; older checkpoints load",
)
@pytest.mark.parametrize(("name", "settings"), _LEARNING)
def test_a_learner_goes_on_bit_by_bit_from_the_checkpoint_of_another(name: str, settings: dict[str, Any]) -> None:
    one, other = make(name, "learn", **settings), make(name, "learn", seed=2, **settings)
    for policy, times in ((one, 2), (other, 1)):
        for _ in range(times):
            learn(policy, batch(name))
    torch.save(one.learn_mode.state_dict(), "state")
    other.learn_mode.load_state_dict(torch.load("state", weights_only=True))
    for seed in range(2):
        outcomes = [learn(policy, batch(name), seed) for policy in (one, other)]
        assert differences(*outcomes, _TIMES) == []
    assert differences(model_of(one).state_dict(), model_of(other).state_dict()) == []


@each_policy
def test_a_state_without_counts_as_of_di_engine_loads(name: str) -> None:
    policy = make(name, "learn")
    state = policy.learn_mode.state_dict()
    counts = ("target_update_count", "learn_count", "train_iteration", "aux_memories")
    policy.learn_mode.load_state_dict({key: value for key, value in state.items() if key not in counts})
    assert differences(policy.learn_mode.state_dict(), state) == []


@each_policy
def test_a_process_that_acts_takes_the_weights_of_the_learner(name: str) -> None:
    learner = make(name, "learn")
    learner.learn_mode.forward(batch(name))
    for field in ("collect", "eval"):
        actor = make(name, field, seed=2)
        getattr(actor, f"{field}_mode").load_state_dict(copy.deepcopy(learner.learn_mode.state_dict()))
        assert differences(model_of(learner).state_dict(), model_of(actor).state_dict()) == []


@pytest.mark.differs(
    "fails where PPO, A2C or R2D2 only collects or only learns, as in parallel training",
    "sets up each mode by itself",
)
@each_policy
def test_each_mode_works_alone(name: str) -> None:
    assert rows(make(name, "learn").learn_mode.forward(batch(name)))[0]
    assert act(make(name, "collect", "command"), observations(name, 0)).keys() == {0}
    assert make(name, "eval").eval_mode.forward(observations(name, 0)).keys() == {0}
    policy = make(name)
    for mode in (policy.learn_mode, policy.collect_mode, policy.eval_mode):
        assert mode.reset() is mode.reset([0]) is None


# --- networks ---


@each_policy
def test_hooks_that_are_added_to_modules_between_steps_are_called_in_the_next(name: str) -> None:
    policy, data, every, called = make(name), batch(name), set[Any](), set[Any]()
    handle = register_module_forward_hook(lambda module, *_: every.add(module))
    for _ in range(2):  # TD3's actor takes every second step
        policy.learn_mode.forward(data)
    handle.remove()
    for part in model_of(policy).modules():
        part.register_forward_hook(lambda module, *_: called.add(module))
    for _ in range(2):
        policy.learn_mode.forward(data)
    assert called == every & set(model_of(policy).modules())


@each_policy
def test_networks_are_in_training_mode_while_they_learn_and_not_while_they_act(name: str) -> None:
    policy = make(name)
    for _ in range(2):
        policy.learn_mode.forward(batch(name))
        assert model_of(policy).training
        for output in (act(policy, observations(name, 0)), policy.eval_mode.forward(observations(name, 0))):
            assert output and not model_of(policy).training


# --- random draws ---


def what_is_drawn(name: str, between: Callable[[], Any]) -> tuple[Any, ...]:
    """Weights, actions and results of a new policy that acts and learns, with a call in between."""
    policy = make(name)
    before, outputs = copy.deepcopy(model_of(policy).state_dict()), []
    for _ in range(2):
        between()
        outputs.append(act(policy, observations(name, 0, 1)))
        between()
        outputs.append(rows(policy.learn_mode.forward(batch(name))))
        between()
        outputs.append(policy.eval_mode.forward(observations(name, 1, 0)))
    return before, outputs, model_of(policy).state_dict()


def seed_everything() -> None:
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)


@pytest.mark.guarantees("randomness")
@each_policy
@pytest.mark.differs(
    "explores in the same way in all episodes of an env that seeds numpy or torch",
    "draws from separate generators",
)
def test_what_others_seed_or_draw_changes_nothing_of_a_policy(name: str) -> None:
    expected = what_is_drawn(name, lambda: None)
    for between in (seed_everything, lambda: (np.random.random(), torch.rand(1))):
        assert differences(expected, what_is_drawn(name, between), _TIMES) == []


# --- learning ---


@each_policy
def test_a_schedule_scales_the_rates_of_all_optimizers_and_they_are_logged(name: str) -> None:
    policy = make(name, "learn", learn__lr_scheduler="linear")
    optimizers = [part for part in policy._learn_parts().values() if isinstance(part, torch.optim.Optimizer)]
    before = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    assert policy.learn_mode.get_attribute("follows_progress")
    policy.learn_mode.set_attribute("progress_remaining", 0.25)
    (told, *_) = rows(learn(policy, batch(name)))
    after = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
    assert before and after == [0.25 * rate for rate in before]
    names = [name for _, name in policy._optimizer_names.values()]
    assert set(names) <= set(policy.learn_mode.monitor_vars()) and {told[name] for name in names} <= set(after)


@each_policy
def test_dicts_and_columns_also_of_another_process_teach_the_same(name: str) -> None:
    columns: Any = Samples(Table.of(copy.deepcopy(samples(name))))
    kinds = [copy.deepcopy(samples(name)), columns, from_plain(to_plain(columns))]
    policies = [make(name, "learn") for _ in kinds]
    outcomes = [learn(policy, _for_buffers(name, data)) for policy, data in zip(policies, kinds, strict=True)]
    for policy, outcome in zip(policies[1:], outcomes[1:], strict=True):
        assert differences(outcome, outcomes[0], _TIMES) == []
        assert differences(model_of(policy).state_dict(), model_of(policies[0]).state_dict()) == []


_TWINS = {**dict.fromkeys(("sac", "discrete_sac", "td3", "cql", "iql"), False), "ddpg": True}


@pytest.mark.differs(
    "monitors values that TD3, SAC, Rainbow, QR-DQN and IQN do not return, hides TD3's losses, and returns tensors "
    "among the numbers",
    "monitors what is returned, as floats",
)
@pytest.mark.parametrize(("name", "twin"), [*[(name, None) for name in TASKS], *_TWINS.items()])
def test_learning_tells_the_monitored_values_as_floats(name: str, twin: bool | None) -> None:
    policy = make(name, "learn", **({} if twin is None else {"model__twin_critic": twin}))
    told: dict[str, Any] = {}
    for _ in range(
        6 if name == "ppg_offpolicy" else 2
    ):  # PPG's auxiliary phase comes late, TD3's actor each second step
        for row in rows(policy.learn_mode.forward(batch(name))):
            told.update(row)
    missing = set(policy.learn_mode.monitor_vars()) - told.keys()
    assert not missing - {"sigma_grad"}, missing  # which no policy computes
    for key, value in told.items():
        if key == "priority":
            assert len(value) == len(samples(name)) and all(type(one) is float and one >= 0 for one in value)
        elif not key.startswith("["):
            assert type(value) is float, key
    assert "sync_time" not in told
    if twin is not None:
        assert bool({"twin_critic_loss", "critic_twin_loss"} & told.keys()) is twin and (
            twin or "q_value_2" not in told
        )


@pytest.mark.guarantees("data")
@pytest.mark.parametrize("name", _BOOTSTRAPPING)
def test_a_time_limit_bootstraps_and_a_terminal_state_does_not(name: str) -> None:
    def errors(**flags: Any) -> list[float]:
        plain = [{**sample, "done": False} for sample in samples(name)]
        data = [{k: v for k, v in s.items() if k not in ("terminated", "truncated")} | flags for s in plain]
        found: list[float] = learn(make(name, "learn", learn__ignore_done=False), batch(name, data))["priority"]
        return found

    assert errors(done=True, terminated=False, truncated=True) == errors()
    assert errors(done=True, terminated=True, truncated=False) == errors(done=True)
    assert errors() != errors(done=True)
    assert learn(make(name, "learn", learn__ignore_done=True), batch(name, [{**s, "done": True, "terminated": True}
                 for s in samples(name)]))["priority"] == errors()  # fmt: skip


@pytest.mark.parametrize("name", [name for name in TASKS if name not in ("pg", "ppo_pg", "bc")])
def test_importance_weights_without_priority_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        make(name, "learn", priority=False, priority_IS_weight=True)


@pytest.mark.differs(
    "never averages gradients of PPO, A2C, SAC, DDPG, TD3, R2D2 and others over ranks, so that replicas drift "
    "apart; the rest averages parameter by parameter",
    "averages them in one flat bucket at every optimizer step",
)
@pytest.mark.parametrize(
    ("name", "bp_update_sync"),
    [*((name, True) for name in TASKS), *((name, False) for name in ("dqn", "ppo", "sac", "r2d2"))],
)
def test_the_gradients_of_every_step_are_averaged_over_the_ranks(
    name: str, bp_update_sync: bool, lone_group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, policy = make(name, "learn"), make(name, "learn", multi_gpu=True, bp_update_sync=bp_update_sync)
    syncs, sent, begin_sum = watch_syncs(monkeypatch), [], training_step.begin_sum
    monkeypatch.setattr(training_step, "begin_sum", lambda what, x: (sent.append(x), begin_sum(what, x))[1])
    expected = [learn(alone, batch(name), seed) for seed in range(2)]
    with watched_steps() as stepped:
        outcomes = [learn(policy, batch(name), seed) for seed in range(2)]
    for own, other in zip(outcomes, expected, strict=True):
        for row, wanted in zip(rows(own), rows(other), strict=True):
            told = {key for key, value in wanted.items() if isinstance(value, float) and key not in _TIMES}
            assert {key: row[key] for key in told} == {
                key: pytest.approx(wanted[key], rel=1e-3, abs=1e-6) for key in told
            }
    synced, moved = ({id(parameter) for given in calls for parameter in given} for calls in (syncs, stepped))
    assert moved <= synced and {id(parameter) for parameter in model_of(policy).parameters()} <= moved
    assert (len(sent) > 0) is not bp_update_sync


# --- acting ---


@each_policy
def test_outputs_have_the_ids_of_the_envs_in_their_order_and_no_gradients(name: str) -> None:
    policy = make(name)
    obs = observations(name, 1, 0)
    for output in (act(policy, obs), policy.eval_mode.forward(obs)):
        assert list(output) == [1, 0]
        for out in output.values():
            for value in out.values():
                assert not getattr(value, "requires_grad", False)
            assert "action" in out


@each_policy
def test_evaluations_are_greedy_and_collections_explore(name: str) -> None:
    obs = observations(name, 0, 1)
    first, second = (make(name, "eval").eval_mode.forward(obs) for _ in range(2))
    assert differences(first, second) == []
    for out in first.values():
        action, logit = out["action"], out.get("logit")
        if isinstance(logit, torch.Tensor) and not action.is_floating_point():
            assert torch.equal(action.reshape(-1), logit.argmax(-1).reshape(-1))
        elif isinstance(logit, dict):
            assert torch.equal(action, logit["mu"])
    policy = make(name, "collect", "command")
    drawn = {tuple(out["action"].reshape(-1).tolist()) for _ in range(20) for out in act(policy, {0: obs[0]}).values()}
    assert len(drawn) > 1 or name == "bc"


@each_policy
def test_without_envs_there_are_no_actions(name: str) -> None:
    policy = make(name)
    assert act(policy, {}) == policy.eval_mode.forward({}) == {}


@each_policy
def test_a_transition_has_what_the_samples_need(name: str) -> None:
    policy = make(name, "collect", "command")
    obs = observations(name, 0)
    timestep = EasyDict(obs=obs[0], reward=torch.ones(1), done=False, info={})
    transition = policy.collect_mode.process_transition(obs[0], act(policy, obs)[0], timestep)
    assert {"obs", "action", "reward", "done"} <= transition.keys()
    assert transition["obs"] is obs[0] and transition["reward"] is timestep.reward and transition["done"] is False


@each_policy
def test_random_actions_make_samples_unless_a_policy_says_that_it_needs_its_own_outputs(name: str) -> None:
    policy, obs = make(name, "collect", "command"), observations(name, 0)
    action = {"action": act(policy, obs)[0]["action"]}
    timestep = EasyDict(obs=obs[0], reward=torch.ones(1), done=False, info={})
    if not (policy.cfg.on_policy or policy.cfg.get("transition_with_policy_data")):
        assert policy.collect_mode.process_transition(obs[0], action, timestep)["action"] is action["action"]


@pytest.mark.parametrize("name", [name for name in POLICY_REGISTRY if name + "_command" in POLICY_REGISTRY])
def test_a_policy_and_its_command_mode_are_registered_and_exported(name: str) -> None:
    cls = POLICY_REGISTRY.get(name)
    if not cls.__module__.startswith("ding.policy."):
        return
    command = POLICY_REGISTRY.get(name + "_command")
    assert getattr(ding.policy, cls.__name__) is cls and issubclass(command, cls)
    assert getattr(ding.policy, cls.__name__.replace("Policy", "CommandModePolicy")) is command
    assert cls.default_config().type == ("ppo" if name == "ppo_offpolicy" else name)


@each_policy
def test_each_learning_rate_of_its_settings_is_one_of_an_optimizer(name: str) -> None:
    cfg = copy.deepcopy(_policy_config(name))
    settings = POLICY_REGISTRY.get(cfg.type).settings
    if "learn.auto_alpha" in settings:
        cfg.learn.auto_alpha = True
    rates = [key for key in settings if key.startswith("learn.learning_rate")]
    expected = {key: 1e-3 * (2 + i) for i, key in enumerate(rates)}
    for key, rate in expected.items():
        cfg.learn[key.removeprefix("learn.")] = rate
    state = create_policy(cfg, enable_field=["learn"]).learn_mode.state_dict()
    optimizers = [part for part in state.values() if isinstance(part, dict) and "param_groups" in part]
    found = {group["lr"] for optimizer in optimizers for group in optimizer["param_groups"]}
    assert {key for key, rate in expected.items() if rate not in found} == set()


@each_policy
def test_an_empty_batch_is_named(name: str) -> None:
    policy = make(name, "learn")
    for empty in ([], Samples(Table({}))):
        with pytest.raises(ValueError, match="empty"):
            policy.learn_mode.forward(_for_buffers(name, empty))


@pytest.mark.parametrize("name", sorted(set(TASKS) - {"r2d2", "r2d2_memory", "impala", "acer", "ppg_offpolicy"}))
def test_a_policy_of_single_steps_refuses_sequences(name: str) -> None:
    with pytest.raises(ConfigError):
        make(name, collect__unroll_len=3)
    assert make(name, "collect", "eval", collect__unroll_len=3)._unroll_len == 3
