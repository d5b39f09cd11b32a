"""States of collectors and evaluators: what is collected after a state is what would have been without a stop."""

import functools

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.config.config import compile_config
from ding.entry.experiment import read_pair, with_command_mode
from ding.envs import BaseEnvManager, SyncSubprocessEnvManager, get_vec_env_setting
from ding.policy.base_policy import create_policy
from ding.utils.batch_methods import plain_transition
from ding.utils.object_state import global_generators_state, load_global_generators_state
from ding.worker.collector.base_serial_collector import create_serial_collector
from ding.worker.collector.episode_serial_collector import EpisodeSerialCollector
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from ding.worker.collector.metric_serial_evaluator import MetricSerialEvaluator
from ding.worker.collector.players import (
    BattleEpisodeSerialCollector,
    BattleInteractionSerialEvaluator,
    BattleSampleSerialCollector,
)
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.benchmarks.learning_tasks import TASKS
from tests.envs.walks import Endless, Match, Silent, Walk
from tests.fakes import FakeManager, FakeWriter, ScriptedPolicy
from tests.same_state import differences, through_bytes

MANAGERS = {"base": BaseEnvManager, "subprocess": SyncSubprocessEnvManager}
in_both = pytest.mark.parametrize("manager", MANAGERS.values(), ids=MANAGERS)
TIMES = ("time", "duration", "per_sec")


class Gambler(ScriptedPolicy):
    """Acts by chance, by what it sees, and by how often it acted; its transitions are dicts."""

    def __init__(self, **kwargs):
        super().__init__(**{"n_sample": 12, **kwargs})
        self.acted = 0
        self.since_reset = {}

    def forward(self, obs, **kwargs):
        self.acted += 1
        out = {}
        for env_id, seen in obs.items():
            self.since_reset[env_id] = self.since_reset.get(env_id, 0) + 1
            chance = int(torch.randint(0, 3, ()))
            action = torch.tensor([(chance + self.acted + self.since_reset[env_id] + int(_sum(seen) > 0)) % 3])
            out[env_id] = {"action": action, "logit": torch.rand(2)}
        return out

    def reset(self, env_ids=None):
        for env_id in list(self.since_reset) if env_ids is None else env_ids:
            self.since_reset.pop(env_id, None)

    def state_dict(self):
        return {"acted": self.acted, "since_reset": dict(self.since_reset)}

    def load_state_dict(self, state):
        self.acted, self.since_reset = state["acted"], dict(state["since_reset"])


class PlainGambler(Gambler):
    """Its transitions go through columns."""

    @plain_transition("action", "logit")
    def process_transition(self, obs, output, timestep):
        raise AssertionError("a plain transition is asked for")


class Stateful(Gambler):
    """Keeps in its transitions what it holds of an env, as recurrent policies do, and no next observation."""

    def process_transition(self, obs, output, timestep):
        own = {"count": [torch.ones(2), None], "text": "t"}
        return {"obs": obs, "action": output["action"], "prev_state": own, "reward": timestep.reward, "done": False}


KINDS = [
    (BaseEnvManager, Gambler),
    (BaseEnvManager, PlainGambler),
    (BaseEnvManager, Stateful),
    (SyncSubprocessEnvManager, Stateful),
]


def _sum(obs):
    if isinstance(obs, dict):
        return sum(map(_sum, obs.values()))
    return sum(map(_sum, obs)) if isinstance(obs, list | tuple) else float(np.nansum(np.asarray(obs)))


def launched(manager, envs):
    built = manager(envs, EasyDict())
    built.seed(5)
    return built


def built(cls, manager, envs, policy, **cfg):
    config = cls.default_config()
    config.update(cfg)
    policies = policy if isinstance(policy, list) else [policy]
    return cls(config, launched(manager, envs), policy, FakeWriter(), "exp"), policies


def told(worker, policies):
    return through_bytes(
        {
            "policies": [policy.state_dict() for policy in policies],
            "env": worker._env.state_dict(),
            "worker": worker.state_dict(),
            "generators": global_generators_state(),
        }
    )


def put_back(worker, policies, state):
    for policy, own in zip(policies, state["policies"], strict=True):
        policy.load_state_dict(own)
    problems = [*(worker._env.load_state_dict(state["env"]) or []), *worker.load_state_dict(state["worker"])]
    load_global_generators_state(state["generators"])
    return problems


def scalars(worker):
    written = worker._tb_logger.scalars
    return [entry for entry in written if not any(word in entry[0] for word in TIMES)]


def check(make, before=5, after=6, **collect):
    """A collector goes on as one that was put into its state, also from a state of that one."""
    torch.manual_seed(0)
    (one, its), (other, others), (third, thirds) = make(), make(), make()
    try:
        for i in range(before):
            one.collect(train_iter=100 * i, **collect)
        state, written = told(one, its), len(scalars(one))
        goes_on = [one.collect(train_iter=100 * i, **collect) for i in range(after)]
        assert put_back(other, others, state) == []
        collected = [other.collect(train_iter=100 * i, **collect) for i in range(2)]
        state = told(other, others)
        third.collect(**collect)  # what it has begun is forgotten
        assert put_back(third, thirds, state) == []
        rest = [third.collect(train_iter=100 * i, **collect) for i in range(2, after)]
        assert differences(as_dicts(goes_on), as_dicts(collected + rest)) == []
        assert one.envstep == third.envstep
        assert scalars(one)[written:] == scalars(other) + scalars(third)
        assert scalars(one)[written:]
    finally:
        for worker in (one, other, third):
            worker.close()


def as_dicts(data):
    """Samples as the dicts that they are, all the way down."""
    if isinstance(data, list):
        return [as_dicts(item) for item in data]
    return tuple(map(as_dicts, data)) if isinstance(data, tuple) else data


@pytest.mark.parametrize("manager, policy", KINDS)
def test_a_sample_collector_goes_on(manager, policy):
    check(lambda: built(SampleSerialCollector, manager, [Walk] * 3, policy(unroll_len=7)), n_sample=13)


@pytest.mark.parametrize("manager, policy", KINDS[:3])
@pytest.mark.parametrize("on_policy", [True, False])
def test_a_collector_of_fixed_rollouts_goes_on(manager, policy, on_policy):
    def make():
        return built(SampleSerialCollector, manager, [Walk] * 3, policy(on_policy=on_policy), fixed_rollout=True)

    check(make, n_sample=13)


@pytest.mark.parametrize("manager, policy", KINDS)
def test_an_episode_collector_goes_on(manager, policy):
    check(lambda: built(EpisodeSerialCollector, manager, [Walk] * 3, policy()), n_episode=4)


@pytest.mark.parametrize("policy", [Gambler, PlainGambler])
@pytest.mark.parametrize("cls, amount", [
    (BattleSampleSerialCollector, {"n_sample": 13}),
    (BattleEpisodeSerialCollector, {"n_episode": 4}),
], ids=["samples", "episodes"])  # fmt: skip
def test_collectors_of_battles_go_on(policy, cls, amount):
    check(lambda: built(cls, BaseEnvManager, [Match] * 3, [policy(unroll_len=7), policy()]), **amount)


def trained(name, manager, folder):
    """The collector of a policy of the learning benchmarks, and the policy."""
    main, create = read_pair(TASKS[name].configs())
    with_command_mode(create)
    main.exp_name = str(folder)
    main.env.update(collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1)
    if "env_num" in main.policy.collect:
        main.policy.collect.env_num = main.policy.eval.env_num = 2
    for section in (main.policy, main.policy.collect):
        n_sample = 4 if main.policy.collect.get("unroll_len", 1) > 1 else 30
        section.update({key: value for key, value in (("n_sample", n_sample), ("n_episode", 2)) if key in section})
    cfg = compile_config(main, seed=0, auto=True, create_cfg=create, save_cfg=False)
    torch.manual_seed(0)
    policy = create_policy(cfg.policy, enable_field=["collect", "command"])
    env_fn, env_cfgs, _ = get_vec_env_setting(cfg.env)
    envs = launched(manager, [functools.partial(env_fn, cfg=env_cfg) for env_cfg in env_cfgs])
    collector = create_serial_collector(
        cfg.policy.collect.collector, env=envs, policy=policy.collect_mode, tb_logger=FakeWriter(), exp_name=str(folder)
    )
    counts = {"envstep": 9, "learner_step": 9, "learner_train_iter": 9}
    return collector, policy, policy.command_mode.get_setting_collect(counts)


NAMES = ["dqn", "r2d2", "ppo", "sac", "td3", "acer", "impala", "rainbow", "ppo_offpolicy", "pg"]
IN_PROCESSES = [
    pytest.param(SyncSubprocessEnvManager, name, marks=[pytest.mark.slow] * (name != "dqn")) for name in NAMES
]


@pytest.mark.parametrize("manager, name", [*((BaseEnvManager, name) for name in NAMES), *IN_PROCESSES])
def test_policies_collect_on_in_mid_episode(manager, name, tmp_path):
    (one, policy, kwargs), (other, other_policy, _) = (trained(name, manager, tmp_path) for _ in range(2))
    try:
        for i in range(3):
            one.collect(train_iter=i, policy_kwargs=kwargs)
        state = told(one, [policy])
        goes_on = [one.collect(train_iter=i, policy_kwargs=kwargs) for i in range(4)]
        assert put_back(other, [other_policy], state) == []
        rest = [other.collect(train_iter=i, policy_kwargs=kwargs) for i in range(4)]
        assert differences(as_dicts(goes_on), as_dicts(rest)) == []
        assert one.envstep == other.envstep
    finally:
        one.close()
        other.close()


class Dreaming(Gambler):
    """Is handed its state, and adds up what it sees."""

    def __init__(self):
        super().__init__()
        self.attributes["cfg"].type = "dreamer_command"

    def forward(self, obs, reset, state, **kwargs):
        before = [None] * len(obs) if state is None else state
        told = {}
        for (env_id, seen), old, is_new in zip(obs.items(), before, reset, strict=True):
            total = torch.as_tensor(np.asarray(seen)).sum() + (0 if old is None or is_new else old["total"])
            told[env_id] = {
                "action": (total.abs() * 7).long().reshape(1) % 3,
                "logit": total,
                "state": {"total": total},
            }
        return told


@in_both
def test_latent_states_that_the_collector_keeps_go_on(manager):
    check(lambda: built(SampleSerialCollector, manager, [Walk] * 3, Dreaming()))


@pytest.mark.guarantees("one-owner")
@in_both
def test_that_somebody_else_has_reset_an_env_is_noticed_after_a_state(manager):
    (one, its), (other, others) = (
        built(SampleSerialCollector, manager, [Walk, Endless, Endless], Gambler(unroll_len=50)) for _ in range(2)
    )
    torch.manual_seed(0)
    one.collect(n_sample=30)
    assert len(one._traj_buffer[1])
    one._env.reset({1: None})
    state = told(one, its)
    goes_on = [one.collect(n_sample=10) for _ in range(3)]
    assert put_back(other, others, state) == []
    assert differences(as_dicts(goes_on), [as_dicts(other.collect(n_sample=10)) for _ in range(3)]) == []
    one.close()
    other.close()


@in_both
def test_the_episode_of_an_env_that_does_not_go_on_ends_there_and_the_others_go_on(manager):
    envs = [Walk, Silent, Endless]
    (one, its), (other, others) = (
        built(SampleSerialCollector, manager, envs, Gambler(unroll_len=50)) for _ in range(2)
    )
    torch.manual_seed(0)
    one.collect(n_sample=30)  # to the end of an episode of the first env
    under_way = [len(buffer) for buffer in one._traj_buffer.values()]
    assert under_way[1] and under_way[2]
    state = told(one, its)
    (problem,) = put_back(other, others, state)
    assert problem.startswith("env 1: ")
    assert [len(buffer) for buffer in other._traj_buffer.values()] == [under_way[0], 0, under_way[2]]
    assert others[0].since_reset.keys() == {2}
    # What was gathered of it is used.
    data = other.collect(n_sample=1, drop_extra=False)
    assert differences(list(one._traj_buffer[1]), list(data[: under_way[1]])) == []
    one.close()
    other.close()


def test_with_an_env_manager_that_tells_no_state_all_episodes_begin_anew_and_counts_go_on():
    def make():
        config, envs = SampleSerialCollector.default_config(), FakeManager([9, 20])
        return SampleSerialCollector(config, envs, Gambler(unroll_len=6), FakeWriter(), "exp")

    one, other = make(), make()
    one.collect(n_sample=13)
    state = through_bytes(one.state_dict())
    under_way = {env_id: list(buffer) for env_id, buffer in one._traj_buffer.items()}
    assert under_way[1]
    assert other.load_state_dict(state) == []
    assert other.envstep == one.envstep
    data = other.collect(n_sample=len(under_way[0] + under_way[1]) + 1, drop_extra=False)
    assert differences(under_way[0] + under_way[1], list(data[: len(under_way[0] + under_way[1])])) == []
    assert all(row["obs"][2] < 9 for row in data)


def test_a_state_of_another_collector_is_refused():
    solo, policies = built(SampleSerialCollector, BaseEnvManager, [Walk] * 2, Gambler())
    state = solo.state_dict()
    more, _ = built(SampleSerialCollector, BaseEnvManager, [Walk] * 3, Gambler())
    with pytest.raises(ValueError, match="the state is of 2 envs, but there are 3"):
        more.load_state_dict(state)
    episodes, _ = built(EpisodeSerialCollector, BaseEnvManager, [Walk] * 2, Gambler())
    with pytest.raises(ValueError):
        episodes.load_state_dict(state)
    battle = BattleSampleSerialCollector(
        BattleSampleSerialCollector.default_config(), launched(BaseEnvManager, [Match]), None, FakeWriter(), "exp"
    )
    with pytest.raises(ValueError):
        battle.load_state_dict(state)
    only_counts = battle.state_dict()
    assert only_counts["rollout"] is None and battle.load_state_dict(only_counts) == []


# --- evaluators


def evaluator(cls, manager, policies, **cfg):
    config = cls.default_config()
    config.update({"n_episode": 3, "stop_value": 1e9, "eval_freq": 5, **cfg})
    envs = launched(manager, [Match if isinstance(policies, list) else Walk] * 2)
    return cls(config, envs, policies, FakeWriter(), "exp"), policies if isinstance(policies, list) else [policies]


@pytest.mark.parametrize("manager", [BaseEnvManager, SyncSubprocessEnvManager])
@pytest.mark.parametrize("cls, players", [(InteractionSerialEvaluator, 1), (BattleInteractionSerialEvaluator, 2)])
def test_evaluators_go_on(manager, cls, players):
    torch.manual_seed(0)

    def make():
        return evaluator(cls, manager, Gambler() if players == 1 else [Gambler(), Gambler()])

    (one, its), (other, others) = make(), make()
    saved, also_saved = [], []
    assert one.should_eval(0)
    for i in range(3):
        one.eval(saved.append, i, 10 * i)
    assert one.should_eval(7)
    state, written = told(one, its), len(scalars(one))
    saved.clear()
    goes_on = [one.eval(saved.append, i, 10 * i) for i in range(8, 14)]
    assert put_back(other, others, state) == []
    assert other.last_eval.returns == EasyDict(state["worker"]["last_eval"]).returns
    assert not other.should_eval(7) and not other.should_eval(11)
    assert differences(goes_on, [other.eval(also_saved.append, i, 10 * i) for i in range(8, 14)]) == []
    assert saved == also_saved
    assert scalars(one)[written:] == scalars(other)
    one.close()
    other.close()


def test_the_best_metric_goes_on():
    from tests.worker.collector.test_metric_serial_evaluator import HALF, RIGHT, Accuracy, Doubling

    def make(loader, metric):
        return MetricSerialEvaluator(MetricSerialEvaluator.default_config(), (loader, metric), Doubling(), FakeWriter())

    one, other = make(RIGHT, Accuracy()), make(HALF, Accuracy())
    assert one.should_eval(60)
    one.eval(train_iter=3)
    saved = []
    assert other.load_state_dict(through_bytes(one.state_dict())) == []
    other.eval(saved.append, train_iter=4)
    assert saved == [] and not other.should_eval(60) and not other.should_eval(100)
