"""What holds for every serial collector, and for every evaluator that lets policies play."""

import gc
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.config.read import put
from ding.utils.config_helper import ConfigError
from ding.worker.collector.base_serial_collector import create_serial_collector
from ding.worker.collector.base_serial_evaluator import create_serial_evaluator
from ding.worker.collector.episode_serial_collector import EpisodeSerialCollector
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from ding.worker.collector.players import (
    BattleEpisodeSerialCollector,
    BattleInteractionSerialEvaluator,
    BattleSampleSerialCollector,
)
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import FakeManager, FakeWriter, ScriptedPolicy
from tests.worker.collector.battles import BattleManager, LateBattleManager, LateManager, Player
from tests.worker.collector.ranks import as_rank


class Kind(NamedTuple):
    """A collector or evaluator, for one player or for two."""

    cls: Any
    is_battle: bool = False
    is_whole: bool = False  # whether it collects episodes

    @property
    def manager(self) -> type[FakeManager]:
        return BattleManager if self.is_battle else FakeManager

    @property
    def policy(self) -> type[ScriptedPolicy]:
        return Player if self.is_battle else ScriptedPolicy

    def policies(self, n: int | None = 8, cls: Callable[..., Any] | None = None) -> list[Any]:
        make = cls or self.policy
        if self.is_battle:
            return [make(n), make(n)]
        policy = make(n)
        policy.attributes["n_episode"] = n
        return [policy]

    def build(self, lengths=(2, 4), policies=None, cfg=(), tb=None, manager=None, **env_kwargs):
        config = self.cls.default_config()
        config.update(EasyDict(cfg))
        env = (manager or self.manager)(list(lengths), **env_kwargs)
        policies = self.policies() if policies is None else policies
        given = policies if self.is_battle else policies[0]
        return self.cls(config, env, given, tb or FakeWriter(), "exp"), env, policies

    def collect(self, collector, episodes, length, **kwargs):
        """The transitions of each player, of so many episodes of this length."""
        data = collector.collect(episodes if self.is_whole else episodes * length, **kwargs)
        data = data[0] if self.is_battle else [data]
        return [[row for episode in of for row in episode] if self.is_whole else list(of) for of in data]

    def returns(self, result):
        """The returns that an evaluation tells of the first player."""
        if self.is_battle:
            return [info["eval_episode_return"] for info in result[1][0]]
        return result[1]["eval_episode_return"]


COLLECTORS = {
    "sample": Kind(SampleSerialCollector),
    "episode": Kind(EpisodeSerialCollector, is_whole=True),
    "sample_1v1": Kind(BattleSampleSerialCollector, is_battle=True),
    "episode_1v1": Kind(BattleEpisodeSerialCollector, is_battle=True, is_whole=True),
}
EVALUATORS = {
    "interaction": Kind(InteractionSerialEvaluator),
    "battle_interaction": Kind(BattleInteractionSerialEvaluator, is_battle=True),
}


@pytest.fixture(params=COLLECTORS)
def kind(request):
    return COLLECTORS[request.param]


@pytest.fixture(params=EVALUATORS)
def judge(request):
    return EVALUATORS[request.param]


def evaluator_of(judge, lengths=(2, 4), cfg=(), **kwargs):
    return judge.build(lengths, cfg={"n_episode": 4, "stop_value": 100.0, **dict(cfg)}, **kwargs)


def plain(rows):
    return [[np.asarray(row[key]).tolist() for key in ("obs", "next_obs", "reward")] for row in rows]


def steps_of(rows, env_id):
    """The (episode, step) that an env was in when it was acted in."""
    return [tuple(int(x) for x in row["obs"][-2:]) for row in rows if row["obs"][0] == env_id]


def of_env_1(change):
    """Changes the timesteps of env 1."""
    return lambda timesteps: {i: change(ts) if i == 1 else ts for i, ts in timesteps.items()}


# Collectors


@pytest.mark.differs(
    "corrupts stored transitions of an env that reuses its arrays; `deepcopy_obs` copies everything twice, and "
    "does not help `next_obs` of episode and battle collectors",
    "copies each observation and reward once, in every collector",
)
@pytest.mark.parametrize("deepcopy_obs", [False, True])
def test_an_env_may_write_into_the_arrays_it_returned(kind, deepcopy_obs):
    clean, _, _ = kind.build((3, 3), cfg={"deepcopy_obs": deepcopy_obs})
    reusing, env, _ = kind.build((3, 3), cfg={"deepcopy_obs": deepcopy_obs}, reuse=True)
    data = kind.collect(reusing, 6, 3)
    for one in env.envs:
        for array in (one.rows,) if kind.is_battle else (one.obs, one.reward):
            array[:] = -1.0
    expected = kind.collect(clean, 6, 3)
    assert list(map(plain, data)) == list(map(plain, expected)) and len(data[0]) == 18


def test_transform_obs_shows_every_policy_float32_tensors(kind):
    class Typed(kind.policy):
        def forward(self, obs, **kwargs):
            assert all(isinstance(o, torch.Tensor) and o.dtype == torch.float32 for o in obs.values())
            return super().forward(obs, **kwargs)

    for env_kwargs in ({}, {"form": "list"} if kind.is_battle else {"reuse": True}):
        collector, _, _ = kind.build((2, 2), kind.policies(cls=Typed), {"transform_obs": True}, **env_kwargs)
        assert [len(rows) for rows in kind.collect(collector, 2, 2)] == [4] * (1 + kind.is_battle)


def test_policy_kwargs_reach_every_forward(kind):
    collector, _, policies = kind.build((2, 2))
    kind.collect(collector, 2, 2, policy_kwargs={"eps": 0.5})
    kind.collect(collector, 2, 2)
    for policy in policies:
        assert policy.kwargs[0] == {"eps": 0.5} and policy.kwargs[-1] == {}


@pytest.mark.guarantees("data")
@pytest.mark.parametrize(
    ("field", "value", "name"), [("obs", np.inf, "inf"), ("reward", np.inf, "inf"), ("obs", np.nan, "NaN")]
)
def test_an_observation_or_reward_that_is_not_finite_stops_with_the_env_and_the_step(kind, field, value, name):
    def after_step(ts):
        is_second = np.asarray(ts.obs).reshape(-1)[-1] == 2
        return ts._replace(**{field: np.asarray(getattr(ts, field)) + value}) if is_second else ts

    collector, _, _ = kind.build(after_step=of_env_1(after_step))
    what = "observation" if field == "obs" else "reward"
    with pytest.raises(FloatingPointError, match=f"the {what} of env 1 holds {name}.* at step 2 of its episode"):
        kind.collect(collector, 2, 4)


@pytest.mark.differs(
    "fails on a `done` that is a numpy bool, and takes a `done` for each player as always true",
    "accepts both; an episode ends when all players are done",
)
@pytest.mark.parametrize("done", [np.bool_, lambda flag: (flag, flag), lambda flag: np.array([flag, flag])])
def test_a_done_flag_of_numpy_or_one_per_player_ends_the_episode(kind, done):
    def after_step(timesteps):
        return {i: ts._replace(done=done(ts.done)) for i, ts in timesteps.items()}

    collector, _, _ = kind.build((3,), after_step=after_step)
    for rows in kind.collect(collector, 1, 3):
        assert [bool(np.all(np.asarray(row["done"]))) for row in rows] == [False, False, True]


@pytest.mark.differs(
    "fails inside the policy, or divides by zero, when the envs have used up their episodes",
    "raises an error that says so, and loses no sample",
)
def test_exhausted_envs_are_a_clear_error_and_lose_nothing(kind):
    collector, _, _ = kind.build((3,), episode_num=2)
    with pytest.raises(RuntimeError, match="no env is ready"):
        kind.collect(collector, 3, 3)
    for rows in kind.collect(collector, 2, 3):
        assert [int(row["obs"][-1]) for row in rows] == [0, 1, 2, 0, 1, 2]


@pytest.mark.guarantees("data")
@pytest.mark.differs(
    "loses the samples and episodes of a collect in which an env raises",
    "returns what was finished with the next collect",
)
def test_an_exception_of_the_env_reaches_the_caller_and_loses_nothing_that_is_finished(kind):
    def mark(env_id, episode, step):
        if (episode, step) == (1, 1) and not failed:
            failed.append(True)
            raise ZeroDivisionError("in the env")
        return [] if kind.is_battle else {}

    failed = []
    collector, _, _ = kind.build((3,), kind.policies(3), mark=mark)
    with pytest.raises(ZeroDivisionError):
        kind.collect(collector, 2, 3)
    for rows in kind.collect(collector, 1, 3):
        assert steps_of(rows, 0) == [(0, 0), (0, 1), (0, 2)]


def test_no_trajectory_spans_a_step_that_the_env_manager_took_and_did_not_return(kind):
    class Losing(kind.manager):
        rounds = 0

        def step(self, actions):
            timesteps = super().step(actions)
            self.rounds += 1
            if self.rounds == 2:
                raise ZeroDivisionError
            return timesteps

    collector, _, _ = kind.build((4,), kind.policies(4), manager=Losing)
    with pytest.raises(ZeroDivisionError):
        kind.collect(collector, 1, 4)
    for rows in kind.collect(collector, 2, 4):
        steps = steps_of(rows, 0)
        assert all(after in ((e, i + 1), (e + 1, 0)) for (e, i), after in itertools.pairwise(steps)), steps


@pytest.mark.differs(
    "fails on an abnormal step in battles",
    "drops the episode for all players if the info of any of them is abnormal",
)
@pytest.mark.parametrize("player", [0, 1])
def test_an_abnormal_step_of_any_player_resets_env_and_policies_and_voids_the_episode(kind, player):
    def mark(env_id, episode, step):
        if (env_id, episode, step) == (1, 1, 1):
            resets.extend([ids for ids in policy.resets if ids] for policy in policies)
        is_bad = (env_id, episode, step) == (1, 0, 2)
        return [{"abnormal": is_bad and p == player} for p in range(2)] if kind.is_battle else {"abnormal": is_bad}

    resets: list[list[list[int]]] = []  # of each policy, up to the next episode of env 1
    collector, env, policies = kind.build((3, 3), mark=mark)
    for rows in kind.collect(collector, 4, 3):
        for env_id, first in ((0, 0), (1, 1)):
            steps = steps_of(rows, env_id)
            assert steps == [(first + k // 3, k % 3) for k in range(len(steps))] and len(steps) >= 3
    assert ("reset", {1: None}) in env.calls and resets and all([1] in ids for ids in resets)
    assert collector.envstep == sum(len(one.actions) for one in env.envs) - 1


def test_an_env_that_answers_late_gives_each_of_its_steps_once_and_in_order(kind):
    lengths, manager = (2, 3, 2), LateBattleManager if kind.is_battle else LateManager
    collector, _, _ = kind.build(lengths, manager=manager)
    for rows in kind.collect(collector, 7, 3):
        for env_id, length in enumerate(lengths):
            steps = steps_of(rows, env_id)
            assert steps == [divmod(k, length) for k in range(len(steps))] and len(steps) >= length


def no_return(kind, first=()):
    """Let the envs not report the return of an episode; `first` is the info of the first of several players."""
    info = [dict(first), {}] if kind.is_battle else {}
    return {"after_step": lambda steps: {i: step._replace(info=info) for i, step in steps.items()}}


def test_an_env_that_reports_no_return_is_named(kind):
    collector, _, _ = kind.build((2, 9), **no_return(kind, {"eval_episode_return": 1.0}))
    with pytest.raises(KeyError, match="env 0 ended an episode without info"):
        kind.collect(collector, 2, 4)


@pytest.mark.parametrize("name", ["sample", "episode"])
def test_construction_without_env_or_policy_says_what_is_missing(name):
    cls = COLLECTORS[name].cls
    cfg = cls.default_config()
    with pytest.raises(AttributeError):
        cls(cfg)
    with pytest.raises(AssertionError):
        cls(cfg, None, ScriptedPolicy())
    with pytest.raises(AttributeError):
        cls(cfg, FakeManager([3]))


OUT_OF_RANGE = {"collect_print_freq": 0, "n_episode": 0}


@pytest.mark.parametrize("name", [*COLLECTORS, *EVALUATORS])
def test_a_config_names_a_worker_by_its_type(name):
    kind = {**COLLECTORS, **EVALUATORS}[name]
    create = create_serial_collector if name in COLLECTORS else create_serial_evaluator
    policies = kind.policies()
    policy = policies if kind.is_battle else policies[0]
    cfg = EasyDict({**kind.cls.default_config(), "type": name})
    assert type(create(cfg, env=kind.manager([1]), policy=policy, tb_logger=FakeWriter(), exp_name="exp")) is kind.cls


@pytest.mark.parametrize("name", [*COLLECTORS, *EVALUATORS])
def test_a_wrong_value_of_each_key_of_the_settings_is_refused_at_construction(name):
    kind = {**COLLECTORS, **EVALUATORS}[name]
    checked = [key for key, setting in kind.cls.settings.items() if setting.rule is not None]
    assert checked
    for key, wrong in [*((key, object()) for key in checked), *OUT_OF_RANGE.items()]:
        if key in checked:
            cfg = kind.cls.default_config()
            put(cfg, key, wrong)
            with pytest.raises(ConfigError, match=key.rpartition(".")[2]):
                kind.build(cfg=cfg)


def test_the_number_comes_from_the_call_the_policy_or_nowhere(kind):
    collector, _, _ = kind.build((4, 4), kind.policies(n=4))
    data = collector.collect()
    assert [len(rows) for rows in (data[0] if kind.is_battle else [data])] == [4] * (1 + kind.is_battle)
    with pytest.raises(RuntimeError, match="n_episode" if kind.is_whole else "n_sample"):
        kind.build(policies=kind.policies(n=None))[0].collect()
    if kind.is_whole:
        with pytest.raises(AssertionError):
            collector.collect(1)
    else:
        with pytest.raises(ValueError, match="n_sample = 0"):
            collector.collect(0)


@pytest.mark.differs(
    "keeps buffers and fragment lengths of the old envs in `reset_env`, and leaves these envs open",
    "rebuilds everything and closes the replaced env manager",
)
def test_reset_env_with_another_number_of_envs_rebuilds_and_closes_the_old_one(kind):
    collector, old, _ = kind.build((9, 9))
    new = kind.manager([9, 9, 9, 9])
    collector.reset_env(new)
    assert old.closed and not new.closed and set(collector._traj_buffer) == {0, 1, 2, 3}
    for rows in kind.collect(collector, 4, 9):
        assert {int(row["obs"][0]) for row in rows} == {0, 1, 2, 3}


@pytest.mark.differs("resets neither env nor policy in `reset()` of a running collector or evaluator", "resets both")
def test_reset_of_a_live_collector_resets_env_and_policy_and_zeroes_the_counters(kind):
    collector, env, policies = kind.build((5, 5))
    kind.collect(collector, 2, 4)
    collector.reset()
    assert env.calls[-1] == ("reset", None) and all(policy.resets[-1] is None for policy in policies)
    assert collector.envstep == 0
    for rows in kind.collect(collector, 2, 4):
        assert [int(row["obs"][-1]) for row in rows if row["obs"][0] == 0][:4] == [0, 1, 2, 3]


@pytest.mark.differs("adds the duration of every stored episode again at each collect", "counts each episode once")
def test_total_duration_counts_each_episode_once(kind):
    collector, _, _ = kind.build((2,))
    durations = []
    for _ in range(5):
        before = collector._total_duration
        kind.collect(collector, 1, 2)
        durations.append(collector._total_duration - before)
    assert all(duration > 0 for duration in durations)
    assert sum(durations) == pytest.approx(collector._total_duration)
    assert collector._total_duration == pytest.approx(collector._statistics.summary()["collect_time"])


def test_close_ends_the_env_once_and_only_flushes_a_shared_writer(kind):
    tb = FakeWriter()
    collector, env, _ = kind.build(tb=tb)
    collector.close()
    collector.close()
    assert env.calls.count("close") == 1 and tb.flushed == 1 and tb.closed == 0


@pytest.mark.differs(
    "closes a TensorBoard writer that others use when a worker or buffer is closed or garbage-collected",
    "flushes a shared writer and leaves it open",
)
@pytest.mark.parametrize("kind", [*COLLECTORS.values(), *EVALUATORS.values()], ids=[*COLLECTORS, *EVALUATORS])
def test_a_worker_ends_with_its_last_reference_and_closes_no_shared_writer(kind):
    tb = FakeWriter()
    worker, env, _ = kind.build((2,), cfg={"n_episode": 1, "stop_value": 9.0}, tb=tb)
    worker.eval() if kind in EVALUATORS.values() else kind.collect(worker, 1, 2)
    gc.disable()
    try:
        del worker
        assert env.closed and tb.closed == 0
    finally:
        gc.enable()


WHICH = ("mean", "std", "max", "min")
COUNTS = [
    "episode_count", "envstep_count", "avg_envstep_per_episode", "avg_envstep_per_sec", "avg_episode_per_sec",
    "collect_time",
]  # fmt: skip
TOTALS = ["total_envstep_count", "total_episode_count", "total_duration"]
LOGGED = {
    "sample": [
        "episode_count", "envstep_count", "train_sample_count", "avg_envstep_per_episode", "avg_sample_per_episode",
        "avg_envstep_per_sec", "avg_train_sample_per_sec", "avg_episode_per_sec",
        *(f"reward_{which}" for which in WHICH), "total_envstep_count", "total_train_sample_count",
        "total_episode_count",
    ],
    "episode": [*COUNTS, *(f"reward_{which}" for which in WHICH), *TOTALS],
    "sample_1v1": [*COUNTS, *TOTALS, *(f"reward{player}_{which}" for which in WHICH for player in range(2))],
    "episode_1v1": [*COUNTS, *(f"reward{player}_{which}" for player in range(2) for which in WHICH), *TOTALS],
}  # fmt: skip


@pytest.mark.guarantees("interfaces")
@pytest.mark.parametrize("name", LOGGED)
def test_logged_keys_and_their_order(name):
    kind, tb = COLLECTORS[name], FakeWriter()
    collector, _, _ = kind.build((2, 4), tb=tb)
    kind.collect(collector, 2, 4, train_iter=99)
    assert not tb.scalars
    kind.collect(collector, 2, 4, train_iter=100)
    order = [tag.split("/")[1] for tag, _, step in tb.scalars if tag.startswith("collector_iter/") and step == 100]
    by_step = [tag.split("/")[1] for tag, _, step in tb.scalars if tag.startswith("collector_step/")]
    assert order == LOGGED[name] and by_step == [key for key in order if key != "total_envstep_count"]


# Evaluators


def test_the_last_evaluation_is_kept_as_a_record(judge):
    evaluator, _, _ = evaluator_of(judge)
    assert evaluator.last_eval is None
    evaluator.eval(train_iter=3, envstep=70)
    record = evaluator.last_eval
    assert (record.train_iter, record.envstep) == (3, 70)
    assert (record.returns, record.lengths) == ([2.0, 2.0, 4.0, 4.0], [2, 2, 4, 4])
    assert record.seconds > 0


def test_logged_tags_of_an_evaluation_are_those_of_the_first_policy(judge):
    infos, tb = [{"episode_info": {"score": 2, "side": "left"}}, {"episode_info": {"other": 1}}], FakeWriter()
    evaluator, _, _ = evaluator_of(judge, tb=tb, mark=lambda *_: infos if judge.is_battle else infos[0])
    evaluator.eval(train_iter=4, envstep=40)
    tags, by_step = (
        [tag.split("/")[1] for tag, _, step in tb.scalars if tag.startswith(f"evaluator_{axis}/") and step == at]
        for axis, at in (("iter", 4), ("step", 40))
    )
    assert by_step == tags == [
        "episode_count", "envstep_count", "avg_envstep_per_episode", "evaluate_time", "avg_envstep_per_sec",
        "avg_time_per_episode", "reward_mean", "reward_std", "reward_max", "reward_min",
        *([] if judge.is_battle else ["eval_episode_return_mean"]), "score_mean",
    ]  # fmt: skip
    values = {tag: value for tag, value, step in tb.scalars if step == 40}
    assert values["evaluator_step/reward_mean"] == 3.0 and values["evaluator_step/envstep_count"] == 12
    assert values["evaluator_step/avg_time_per_episode"] == values["evaluator_step/evaluate_time"] / 4


@pytest.mark.differs(
    "evaluates forever in an env that never ends",
    "raises an error after `max_episode_steps` (1000000) steps without the end of an episode",
)
def test_an_env_that_never_ends_is_an_error_that_names_it_and_the_limit(judge):
    evaluator, env, _ = evaluator_of(judge, (5, 10**9), {"max_episode_steps": 40})
    with pytest.raises(RuntimeError, match="env 1 .*max_episode_steps"):
        evaluator.eval()
    assert [len(one.actions) for one in env.envs] == [10, 40]


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda judge: {"episode_num": 1}, RuntimeError, "no env is ready"),
        (no_return, KeyError, "env 0 ended an episode without info"),
        (
            lambda judge: {"after_step": of_env_1(lambda ts: ts._replace(obs=ts.obs * np.nan))},
            FloatingPointError,
            "env 1 holds NaN",
        ),
    ],
)
def test_what_an_env_does_wrong_ends_the_evaluation_and_names_it(judge, wrong, error, text):
    evaluator, _, _ = evaluator_of(judge, (2, 2), **wrong(judge))
    with pytest.raises(error, match=text):
        evaluator.eval()


@pytest.mark.guarantees("one-owner")
def test_every_evaluation_begins_with_fresh_episodes(judge):
    evaluator, env, policies = evaluator_of(judge)
    evaluator.eval()
    evaluator.eval()
    assert env.calls.count(("reset", None)) == 2
    for policy in policies:
        assert [ids for ids in policy.resets if ids is None] == [None] * 3
        assert all(obs[-1] == 0 for obs in policy.seen[0].values())


def test_the_best_mean_return_so_far_saves_a_checkpoint_and_the_stop_value_stops(judge):
    saved, stops = [], []
    evaluator, env, _ = evaluator_of(judge, (2, 2), {"stop_value": 3.0})
    for length in (2, 2, 3, 1):
        for one in env.envs:
            one.length = length
        stops.append(evaluator.eval(saved.append, train_iter=1)[0])
    assert saved == ["ckpt_best.pth.tar"] * 2 and stops == [False, False, True, False]
    assert evaluator._max_episode_return == 3.0


@pytest.mark.parametrize(("train_iter", "expected"), [(0, False), (-1, False), (1, True)])
def test_stopping_needs_the_stop_value_and_an_iteration(judge, train_iter, expected):
    evaluator, _, _ = evaluator_of(judge, (2, 2), {"stop_value": 2.0})
    assert evaluator.eval(train_iter=train_iter)[0] is expected


@pytest.mark.differs(
    "repeats a battle evaluation at iteration 0 until training begins",
    "evaluates once at each iteration",
)
def test_should_eval_at_zero_once_then_every_eval_freq(judge):
    evaluator, _, _ = evaluator_of(judge, cfg={"eval_freq": 10})
    asked = [0, 0, 5, 9, 10, 10, 15, 19, 20]
    assert [evaluator.should_eval(i) for i in asked] == [True, False, False, False, True, False, False, False, True]


@pytest.mark.differs(
    "hangs in an evaluation after an abnormal step, and counts that episode in battles",
    "resets the env and drops the episode",
)
@pytest.mark.parametrize("player", [0, 1])
def test_an_abnormal_step_resets_the_env_and_its_episode_does_not_count(judge, player):
    def mark(env_id, episode, step):
        is_bad = (env_id, episode, step) == (0, 1, 2)
        return [{"abnormal": is_bad and p == player} for p in range(2)] if judge.is_battle else {"abnormal": is_bad}

    evaluator, env, policies = evaluator_of(judge, (3, 3), mark=mark)
    assert judge.returns(evaluator.eval()) == [3.0] * 4 and evaluator.last_eval.lengths == [3] * 4
    assert ("reset", {0: None}) in env.calls and all([0] in policy.resets for policy in policies)


@pytest.mark.differs("lacks the documented properties `env` and `policy` of workers", "has them; the policy can be set")
def test_env_and_policy_are_properties_and_a_policy_can_be_set(judge):
    evaluator, env, policies = evaluator_of(judge)
    others, new_env = judge.policies(), judge.manager([1])
    given = others if judge.is_battle else others[0]
    assert evaluator.env is env and evaluator.policy == (policies if judge.is_battle else policies[0])
    evaluator.policy = given
    evaluator.reset_env(new_env)
    assert evaluator.policy == given and env.closed and not new_env.closed
    assert judge.returns(evaluator.eval(n_episode=1)) == [1.0] and others[0].seen and not policies[0].seen


def test_reset_of_a_live_evaluator_forgets_the_best_return(judge):
    evaluator, env, policies = evaluator_of(judge)
    evaluator.eval(train_iter=1)
    evaluator.should_eval(5000)
    evaluator.reset()
    assert evaluator._max_episode_return == -np.inf and evaluator._last_eval_iter == -1
    assert env.calls[-1] == ("reset", None) and all(policy.resets[-1] is None for policy in policies)


def test_the_number_of_episodes_is_needed_and_at_least_that_of_the_envs(judge):
    evaluator, _, _ = evaluator_of(judge, cfg={"n_episode": None})
    with pytest.raises(AssertionError):
        evaluator.eval()
    with pytest.raises(AssertionError):
        evaluator.eval(n_episode=1)
    assert len(judge.returns(evaluator.eval(n_episode=2))) == 2


@pytest.mark.differs(
    "launches evaluation envs on every rank, and evaluates battles on each",
    "launches them on rank 0, which broadcasts the result",
)
def test_other_ranks_neither_launch_envs_nor_write_and_are_told_the_result(judge, monkeypatch):
    told = [True, "what rank 0 has found"]
    as_rank(monkeypatch, 1, told=told)
    evaluator, env, _ = evaluator_of(judge)
    assert env.calls == [] and evaluator._tb_logger is None
    assert evaluator.eval(train_iter=1) == tuple(told)


@pytest.mark.parametrize("name", ["sample_1v1", "episode_1v1", "battle_interaction"])
def test_the_policies_of_battles_may_come_later_and_one_is_not_enough(name):
    kind = {**COLLECTORS, **EVALUATORS}[name]
    cfg, amount = kind.cls.default_config(), {"n_sample": 2} if name == "sample_1v1" else {"n_episode": 1}
    worker = kind.cls(cfg, BattleManager([2]), None, FakeWriter(), "exp")
    play = worker.eval if name in EVALUATORS else worker.collect
    with pytest.raises(RuntimeError, match="has no policies yet"):
        play(**amount)
    worker.reset_policy([Player(), Player()])
    assert play(**amount)[1][1][0]["eval_episode_return"] == 12.0
    with pytest.raises(AssertionError):
        kind.build(policies=[Player()])
    with pytest.raises(AttributeError):
        kind.cls(cfg)
