"""SampleSerialCollector: what is collected, counted and logged."""

import gc
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.worker.collector.base_serial_collector import INF
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from ding.worker.collector.statistics import ReturnSummary
from tests.fakes import FakeManager, FakeWriter, ScriptedPolicy
from tests.worker.collector.battles import PlainPolicy, step_of


def build(lengths=(5, 5), policy=None, cfg=(), tb=None, env=None, **env_kwargs):
    config = SampleSerialCollector.default_config()
    config.update(cfg)
    env = FakeManager(list(lengths), **env_kwargs) if env is None else env
    policy = ScriptedPolicy() if policy is None else policy
    return SampleSerialCollector(config, env, policy, tb or FakeWriter(), "exp"), env, policy


def test_samples_are_the_steps_of_the_envs_each_once_and_in_order():
    collector, _, _ = build()
    rows = [step_of(row) for row in collector.collect(8) + collector.collect(8)]
    expected = [(env_id, episode, step, step + 1) for env_id in range(2) for episode in range(2) for step in range(5)]
    per_env = {i: [row for row in rows if row[0] == i] for i in range(2)}
    assert len(rows) == len(set(rows)) == 16
    for env_id, mine in per_env.items():
        assert mine == [row for row in expected if row[0] == env_id][: len(mine)]


def test_a_sample_has_the_action_reward_done_and_collect_iter_of_its_step():
    collector, _, _ = build(lengths=(2,), policy=ScriptedPolicy(n_sample=4))
    rows = collector.collect(4, train_iter=7)
    assert [row["action"].tolist() for row in rows] == [[1], [2], [3], [4]]
    assert [row["done"] for row in rows] == [False, True, False, True]
    assert all(row["reward"].tolist() == [1.0] and row["collect_iter"] == 7 for row in rows)
    assert type(rows[0]["collect_iter"]) is int


@pytest.mark.differs(
    "replaces a `next_obs` that the policy made, and converts neither an inner key of this name nor one that the "
    "first row lacks",
    "keeps what the policy made, and converts the others",
)
def test_a_next_obs_that_the_policy_made_is_kept():
    class Own(ScriptedPolicy):
        def process_transition(self, obs, output, timestep):
            return {**super().process_transition(obs, output, timestep), "next_obs": timestep.obs + 100}

    collector, _, _ = build(lengths=(9,), policy=Own(n_sample=3))
    made = [row["next_obs"] for row in collector.collect(3)]
    assert [int(obs[2]) for obs in made] == [101, 102, 103] and {type(obs) for obs in made} == {torch.Tensor}


def test_deepcopy_obs_shares_no_memory_between_rows():
    collector, _, _ = build(lengths=(9,), policy=ScriptedPolicy(n_sample=3), cfg={"deepcopy_obs": True})
    rows = collector.collect(3)
    rows[1]["obs"].fill_(-1)
    assert int(rows[0]["next_obs"][2]) == 1


@pytest.mark.differs(
    "keeps nothing but `done` of how an episode ended",
    "adds `terminated` and `truncated` to the samples if the env reports them",
)
@pytest.mark.parametrize("make", [ScriptedPolicy, PlainPolicy])
@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        (lambda *place: {}, [(None, None)] * 3),
        (lambda *place: {"terminated": place[2] == 3, "truncated": False}, [(False, False)] * 2 + [(True, False)]),
        (lambda *place: {"truncated": np.bool_(place[2] == 3)}, [(False, False)] * 2 + [(False, True)]),
        (lambda *place: {"truncated": True} if place[2] == 3 else {}, [(False, False)] * 2 + [(False, True)]),
        (lambda *place: {"terminated": True} if place[2] == 3 else {}, [(False, False)] * 2 + [(True, False)]),
    ],
)
def test_end_flags_are_those_that_were_told(make, mark, expected):
    collector, _, _ = build(lengths=(3,), policy=make(n_sample=3), mark=mark)
    assert [(row.get("terminated"), row.get("truncated")) for row in collector.collect(3)] == expected


@pytest.mark.parametrize(
    ("n_sample", "unroll_len", "traj_len_inf", "expected"),
    [(8, 1, False, 4), (9, 1, False, 5), (2, 4, False, 4), (None, 1, False, INF), (8, 1, True, INF)],
)
def test_the_length_of_a_fragment(n_sample, unroll_len, traj_len_inf, expected):
    policy = ScriptedPolicy(n_sample=n_sample, unroll_len=unroll_len, traj_len_inf=traj_len_inf)
    collector, _, _ = build(lengths=(9, 9), policy=policy)
    assert collector._traj_len == expected
    collector.collect(1)
    assert collector._traj_len == expected


@pytest.mark.differs(
    "ignores `collect.traj_len_inf` and reads the top-level key only",
    "reads the collect section first",
)
@pytest.mark.parametrize(("of_collect", "expected"), [(True, INF), (False, 4)])
def test_traj_len_inf_of_the_collect_section_comes_first(of_collect, expected):
    policy = ScriptedPolicy(n_sample=8, traj_len_inf=not of_collect, collect={"traj_len_inf": of_collect})
    assert build(lengths=(9, 9), policy=policy)[0]._traj_len == expected


def test_fragments_end_at_the_end_of_an_episode_and_at_the_fragment_length():
    policy = ScriptedPolicy(n_sample=6)
    collector, _, _ = build(lengths=(4, 99), policy=policy)
    collector.collect(12)
    fragments = [
        [step_of(row)[:3] for row in fragment] for fragment in policy.fragments if step_of(fragment[0])[0] == 0
    ]
    assert fragments[:2] == [[(0, 0, 0), (0, 0, 1), (0, 0, 2)], [(0, 0, 3)]]
    assert fragments[2] == [(0, 1, 0), (0, 1, 1), (0, 1, 2)]


@pytest.mark.differs(
    "trains on shorter returns than `nstep` if `n_sample` gives each env a shorter fragment",
    "does the same, and warns with the value to set",
)
@pytest.mark.parametrize(
    ("n_sample", "envs", "settings", "fragment", "enough"),
    [
        (8, 8, {"nstep": 3}, 1, 24),
        (17, 8, {"nstep": 4}, 3, 32),
        (8, 2, {"nstep": 5, "nstep_return": True}, 4, 10),
    ],
)
def test_fragments_shorter_than_the_steps_of_a_return_are_warned_of_once(
    caplog, n_sample, envs, settings, fragment, enough
):
    policy = ScriptedPolicy(n_sample=n_sample, collect={"n_sample": n_sample}, **settings)
    collector, _, _ = build(lengths=(9,) * envs, policy=policy)
    collector.reset_policy(policy)
    collector.collect(envs)
    (warning,) = [message for message in caplog.messages if "nstep" in message]
    assert f"fragments of {fragment} step(s)" in warning and f"n_sample to {enough}" in warning


def test_fragments_of_an_off_policy_collect_survive_to_the_next():
    collector, _, policy = build(lengths=(99, 99), policy=ScriptedPolicy(n_sample=8))
    collector.collect(8)
    collector.collect(2)
    assert [len(collector._traj_buffer[i]) for i in range(2)] == [0, 0]
    assert [step_of(fragment[0])[:3] for fragment in policy.fragments[2:]] == [(0, 0, 4), (1, 0, 4)]


def test_fragments_of_an_on_policy_collect_are_thrown_away():
    policy = ScriptedPolicy(n_sample=6, on_policy=True)
    collector, _, _ = build(lengths=(2, 99), policy=policy)
    collector.collect()
    assert all(not buffer for buffer in collector._traj_buffer.values())


@pytest.mark.differs("logs only the tail of an on-policy episode that spans several collects", "logs the whole episode")
def test_an_on_policy_episode_over_several_collects_is_logged_with_its_full_length():
    policy, tb = ScriptedPolicy(n_sample=4, on_policy=True), FakeWriter()
    collector, _, _ = build(lengths=(10,), policy=policy, tb=tb, cfg={"collect_print_freq": 1})
    for i in range(3):
        collector.collect(train_iter=i + 1)
    assert ("collector_iter/avg_envstep_per_episode", 10.0, 3) in tb.scalars


def test_drop_extra_cuts_to_n_sample_and_false_returns_all():
    lengths = (9, 9, 9)
    assert len(build(lengths)[0].collect(4)) == 4
    assert len(build(lengths)[0].collect(4, drop_extra=False)) == 9


def test_level_seeds_are_noted_by_env_for_every_policy_type():
    class WithEnvId(ScriptedPolicy):
        def process_transition(self, obs, output, timestep, env_id):
            return {**super().process_transition(obs, output, timestep), "env_id": env_id}

    for policy in (ScriptedPolicy(n_sample=4), WithEnvId(n_sample=4, type="ngu_command")):
        collector, _, _ = build(lengths=(9, 9), policy=policy)
        rows = collector.collect(4, level_seeds=torch.tensor([10.0, 11.0]))
        assert [float(row["seed"]) for row in rows] == [10.0, 10.0, 11.0, 11.0]
    assert [row["env_id"] for row in rows] == [0, 0, 1, 1]


@pytest.mark.differs(
    "calls `policy.reset([env_id])` for each env whose episode has ended",
    "calls it once a round, with all their ids",
)
def test_policy_is_reset_for_each_env_that_ends_its_episode():
    policy = ScriptedPolicy(n_sample=4)
    collector, _, _ = build(lengths=(2, 3), policy=policy)
    collector.collect(12)
    assert policy.resets[0] is None
    assert policy.resets[1:5] == [[0], [1], [0], [0, 1]]


def test_envstep_grows_only_at_the_end_of_a_collect_and_can_be_set():
    collector, _, policy = build(lengths=(50, 50))
    seen, process = [], policy.process_transition

    def process_transition(*args):
        seen.append(collector.envstep)
        return process(*args)

    policy.process_transition = process_transition
    collector.collect(8)
    assert set(seen) == {0} and collector.envstep == 8
    collector.envstep = 100
    collector.collect(8)
    assert collector.envstep == 108


def abnormal_at(*where):
    return lambda env_id, episode, step: {"abnormal": True} if (env_id, episode, step) in where else {}


def test_samples_flushed_before_an_abnormal_step_are_kept():
    collector, _, _ = build(lengths=(9,), policy=ScriptedPolicy(n_sample=2), mark=abnormal_at((0, 0, 3)))
    assert [step_of(row)[:3] for row in collector.collect(4)] == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1)]


@pytest.mark.differs(
    "continues the fragments, and the steps under way, of one policy with the policy that replaces it",
    "drops them",
)
def test_a_new_policy_does_not_finish_the_fragments_of_the_old_one():
    collector, _, _ = build(lengths=(1, 99, 99), policy=ScriptedPolicy(n_sample=9))
    collector.collect(1)
    assert [len(buffer) for buffer in collector._traj_buffer.values()] == [0, 1, 1]
    other = ScriptedPolicy(n_sample=9)
    collector.reset_policy(other)
    assert not any(collector._traj_buffer.values())
    rows = collector.collect(9)
    assert {len(fragment) for fragment in other.fragments} == {1, 3} and len(rows) == 9


@pytest.mark.differs(
    "prints an ignored exception when a worker, buffer or loader whose constructor failed is garbage-collected",
    "stays quiet",
)
def test_a_half_built_collector_is_collected_quietly(recwarn):
    with pytest.raises(AttributeError):
        SampleSerialCollector(SampleSerialCollector.default_config())
    gc.collect()
    assert not recwarn.list


@pytest.mark.parametrize("where", ["process_transition", "get_train_sample"])
@pytest.mark.parametrize("reuse", [False, True])
def test_after_an_exception_within_a_round_no_sample_spans_the_gap(where, reuse):
    class Failing(ScriptedPolicy):
        calls = 0

        def process_transition(self, obs, output, timestep):
            self.calls += 1
            if where == "process_transition" and self.calls == 5:
                raise ZeroDivisionError
            return super().process_transition(obs, output, timestep)

        def get_train_sample(self, transitions):
            if where == "get_train_sample" and len(self.fragments) == 2:
                self.fragments.append([])
                raise ZeroDivisionError
            return super().get_train_sample(transitions)

    collector, _, _ = build(lengths=(7, 7, 7), policy=Failing(n_sample=9), reuse=reuse)
    with pytest.raises(ZeroDivisionError):
        collector.collect(30)
    for row in collector.collect(30):
        env_id, episode, step, arrived = step_of(row)
        assert arrived == step + 1


@pytest.mark.differs(
    "hangs with a policy that never makes a sample, and fails if `get_train_sample` returns None",
    "raises an error, and takes None for no samples",
)
def test_a_policy_that_makes_no_samples_is_told_apart_from_one_that_is_slow(monkeypatch):
    monkeypatch.setattr("ding.worker.collector.trajectory.MAX_EMPTY_FLUSHES", 20)
    with pytest.raises(RuntimeError, match="no sample"):
        build(policy=ScriptedPolicy(sample=lambda fragment: []))[0].collect(1)


def test_logged_values():
    tb = FakeWriter()
    collector, _, _ = build(lengths=(2, 4), tb=tb)
    collector.collect(8, train_iter=100)
    values = {tag: value for tag, value, _ in tb.scalars}
    assert values["collector_iter/episode_count"] == 3 and values["collector_iter/envstep_count"] == 8
    # Of 8 steps, 4 of each env in fragments of 4 or less, two episodes of 2 and one of 4 steps have ended.
    assert values["collector_iter/train_sample_count"] == 8
    assert values["collector_iter/avg_sample_per_episode"] == pytest.approx(8 / 3)
    totals = {name: values[f"collector_iter/total_{name}_count"] for name in ("envstep", "train_sample", "episode")}
    assert totals == {"envstep": 8, "train_sample": 8, "episode": 3}
    assert values["collector_iter/reward_mean"] == pytest.approx(8 / 3)
    assert values["collector_iter/reward_max"] == 4.0 and values["collector_iter/reward_min"] == 2.0
    assert {step for tag, _, step in tb.scalars if "_iter/" in tag} == {100}
    assert {step for tag, _, step in tb.scalars if "_step/" in tag} == {8}


def test_unrecorded_random_episodes_are_not_logged_but_counted():
    tb = FakeWriter()
    collector, _, _ = build(lengths=(2, 2), tb=tb)
    collector.collect(8, train_iter=100, random_collect=True, record_random_collect=False)
    assert not tb.scalars and collector._total_episode_count == 4 and collector.envstep == 8
    collector.collect(4, train_iter=200)
    assert ("collector_iter/episode_count", 2, 200) in tb.scalars


@pytest.mark.differs(
    "accumulates the infos of finished episodes until the iteration changes, and without end on ranks other than 0",
    "sums them up at once, in constant memory",
)
def test_episode_statistics_stay_small_while_the_iteration_stands_still():
    collector, _, _ = build(lengths=(1, 1))
    sizes = []
    for _ in range(2):
        collector.collect(300)
        sizes.append(len(pickle.dumps(collector._statistics)))
    assert collector._statistics.summary_count == 600 and sizes[1] < sizes[0] + 300


def test_the_dreamer_policy_is_handed_its_states_by_env():
    class Dreamer(ScriptedPolicy):
        def forward(self, obs, reset=None, state=None, **kwargs):
            calls.append((list(obs), None if reset is None else reset.tolist(), state))
            out = super().forward(obs, **kwargs)
            return {i: {**o, "state": f"s{i}-{len(calls)}"} for i, o in out.items()}

    calls = []
    collector, _, _ = build(lengths=(2, 3), policy=Dreamer(n_sample=2, type="dreamer_command"))
    collector.collect(6)
    assert calls[0] == ([0, 1], [False, False], None)
    assert calls[1] == ([0, 1], [False, False], ["s0-1", "s1-1"])
    assert calls[2] == ([0, 1], [True, False], ["s0-2", "s1-2"])
    calls.clear()
    collector.collect(2, random_collect=True)
    assert calls[0] == ([0, 1], None, None)


# The counts of train samples


def test_train_samples_are_counted_to_the_episode_that_they_are_of():
    tb = FakeWriter()
    policy = ScriptedPolicy(n_sample=6, sample=lambda fragment: fragment[:1])
    collector, env, _ = build(lengths=(4, 6), policy=policy, tb=tb)
    collector.collect(8, train_iter=100)
    values = {tag.split("/")[1]: value for tag, value, step in tb.scalars if step == 100}
    # Each fragment of up to three steps makes one sample, so an episode of 4 steps makes two, and one of 6 steps too.
    assert (values["episode_count"], values["train_sample_count"], values["avg_sample_per_episode"]) == (3, 6, 2.0)
    assert values["total_train_sample_count"] == 8 and values["avg_train_sample_per_sec"] > 0


# Summaries of episodes, and the counters of several ranks.


@settings(max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=50))
def test_a_stream_of_returns_is_summed_up_as_numpy_does(values):
    summary = ReturnSummary()
    summary.add(np.array(values[:3]))
    summary.add(np.array(values[3:]))
    assert summary.scalars("r") == {
        "r_mean": pytest.approx(np.mean(values), abs=1e-6),
        "r_std": pytest.approx(np.std(values), abs=1e-4),
        "r_max": max(values),
        "r_min": min(values),
    }
