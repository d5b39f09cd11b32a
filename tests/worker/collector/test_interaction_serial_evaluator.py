"""InteractionSerialEvaluator: which episodes count, what is told, saved and logged."""

import numpy as np
import pytest
import torch
from easydict import EasyDict
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.worker.collector.base_serial_evaluator import VectorEvalMonitor, create_serial_evaluator
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from ding.worker.collector.players import BattleInteractionSerialEvaluator
from tests.fakes import FakeManager, FakeWriter, ScriptedPolicy
from tests.worker.collector.battles import BattleManager, Player


def build(lengths=(2, 4), policy=None, cfg=(), tb=None, **env_kwargs):
    config = InteractionSerialEvaluator.default_config()
    config.update(EasyDict(n_episode=4, stop_value=100.0))
    config.update(cfg)
    env = FakeManager(list(lengths), **env_kwargs)
    policy = ScriptedPolicy() if policy is None else policy
    return InteractionSerialEvaluator(config, env, policy, tb or FakeWriter(), "exp"), env, policy


@pytest.mark.differs(
    "continues in an env that has played its share of an evaluation: later episodes replace its first ones, "
    "video clips belong to other episodes than the returns, and all steps count",
    "counts the first episodes of each env, with their steps and clips, then stops stepping it",
)
def test_each_env_plays_its_share_and_no_step_more():
    evaluator, env, _ = build(lengths=(1, 9))
    stop, info = evaluator.eval(train_iter=1, envstep=10)
    assert info == {"eval_episode_return": [1.0, 1.0, 9.0, 9.0], "eval_episode_return_mean": 5.0}
    assert [len(one.actions) for one in env.envs] == [2, 18]
    assert stop is False


@pytest.mark.differs("fails if `policy_kwargs` is None", "treats None as no arguments")
@pytest.mark.parametrize("kwargs", [None, {}, {"world_model": 1}])
def test_policy_kwargs_reach_the_policy_and_may_be_none(kwargs):
    evaluator, _, policy = build()
    evaluator.eval(policy_kwargs=kwargs)
    assert policy.kwargs[0] == (kwargs or {})


def test_an_env_that_is_abnormal_again_and_again_is_one_that_never_ends():
    evaluator, env, _ = build(cfg={"max_episode_steps": 40}, mark=lambda env_id, *_: {"abnormal": env_id == 0})
    with pytest.raises(RuntimeError, match="env 0 has ended no evaluation episode for 40 steps"):
        evaluator.eval()
    assert len(env.envs[0].actions) == 40


@pytest.mark.parametrize("limit", [40, None])
def test_the_limit_is_for_each_episode_and_can_be_lifted(limit):
    evaluator, env, _ = build(lengths=(40, 30 if limit else 70), cfg={"max_episode_steps": limit})
    assert evaluator.eval()[1]["eval_episode_return"][:2] == [40.0, 40.0]
    evaluator.eval()
    assert len(env.envs[0].actions) == 160


def test_a_mean_return_of_nan_is_warned_of_once_and_neither_saved_nor_enough(caplog):
    evaluator, _, _ = build(mark=lambda *_: {"eval_episode_return": float("nan")}, cfg={"stop_value": -1.0})
    saved = []
    for train_iter in (1, 2):
        stop, _ = evaluator.eval(saved.append, train_iter=train_iter)
        assert stop is False and saved == []
    assert caplog.text.count("evaluation is NaN") == 1


def with_info(**extra):
    return lambda env_id, episode, step: {"episode_info": extra}


@pytest.mark.differs(
    "crashes on text in `episode_info` and on infos with different keys, and returns no infos if env 0 has none",
    "averages all numbers that it finds",
)
def test_episode_infos_are_told_in_lists_with_the_mean_of_numbers_only():
    evaluator, _, _ = build(mark=with_info(score=2, result="wins"))
    _, info = evaluator.eval()
    assert info["score"] == [2] * 4 and info["score_mean"] == 2.0
    assert info["result"] == ["wins"] * 4 and "result_mean" not in info


@pytest.mark.differs(
    "aborts an evaluation because of an unusual value in `info`, or integer observations",
    "converts only the values that it uses",
)
def test_an_exotic_value_in_the_info_does_no_harm():
    evaluator, _, _ = build(mark=lambda *_: {"visited": {1, 2}, "env": object()})
    assert evaluator.eval()[1]["eval_episode_return"] == [2.0, 2.0, 4.0, 4.0]


@pytest.mark.differs(
    "names the default evaluator's log when the stop value is reached, and returns a numpy bool at times",
    "names the log of this evaluator, and returns a bool",
)
def test_the_stop_text_names_this_evaluators_own_log(own_folder):
    cfg = InteractionSerialEvaluator.default_config()
    cfg.update(EasyDict(n_episode=1, stop_value=1.0))
    evaluator = InteractionSerialEvaluator(cfg, FakeManager([2]), ScriptedPolicy(), FakeWriter(), "exp", "judge")
    evaluator.eval(train_iter=5)
    assert "./exp/log/judge/" in (own_folder / "exp/log/judge/judge_logger.txt").read_text()


def test_eval_freq_of_minus_one_is_every_new_iteration_and_without_one_at_zero_the_first_is_an_iteration_early():
    for freq, asked, expected in ((-1, (0, 0, 1, 1, 2), [True, False, True, False, True]), (10, (8, 9), [False, True])):
        evaluator, _, _ = build(cfg={"eval_freq": freq})
        assert [evaluator.should_eval(i) for i in asked] == expected


def test_should_render_counts_its_own_axis():
    evaluator, _, _ = build(cfg={"render": EasyDict(render_freq=10, mode="train_iter")})
    assert [i for i in range(25) if evaluator._should_render(0, i)] == [9, 19]
    evaluator, _, _ = build(cfg={"render": EasyDict(render_freq=10, mode="envstep")})
    assert [i for i in range(25) if evaluator._should_render(i, 0)] == [9, 19]
    assert not build()[0]._should_render(100, 100)


def test_a_forced_video_shows_each_counted_episode():
    tb = FakeWriter()
    evaluator, _, _ = build(lengths=(2, 3), cfg={"n_episode": 2}, tb=tb)
    evaluator.eval(train_iter=7, envstep=9, force_render=True)
    assert tb.videos == [("evaluator_train_iter/", (2, 3, 3, 2, 4), 7, 30)]


def test_figures_are_asked_for_at_the_end_of_each_counted_episode():
    evaluator, env, _ = build(cfg={"figure_path": "figures"})
    evaluator.eval()
    assert [call for call in env.calls if call[0] == "figure"].count(("figure", 1, "figures")) == 2


@pytest.mark.differs("logs episodes per second as `avg_time_per_episode`", "logs seconds per episode")
def test_logged_values():
    tb = FakeWriter()
    evaluator, _, _ = build(lengths=(1, 4), tb=tb)
    evaluator.eval(train_iter=4, envstep=40, n_episode=3)
    values = {tag.split("/")[1]: value for tag, value, _ in tb.scalars if tag.startswith("evaluator_iter/")}
    names = ("episode_count", "envstep_count", "avg_envstep_per_episode")
    assert [values[name] for name in names] == [3, 6, 2.0]
    names = ("reward_mean", "reward_std", "reward_max", "reward_min", "eval_episode_return_mean")
    assert [values[name] for name in names] == [2.0, pytest.approx(np.std([1, 1, 4])), 4.0, 1.0, 2.0]
    assert values["avg_time_per_episode"] == pytest.approx(values["evaluate_time"] / 3)
    assert values["avg_envstep_per_sec"] == pytest.approx(6 / values["evaluate_time"])


@pytest.mark.parametrize("value", [float("inf"), np.array([-np.inf]), torch.tensor(float("inf")), 1e39])
def test_an_infinite_return_stops_the_evaluation_with_the_env_id(value):
    evaluator, _, _ = build(mark=lambda env_id, *_: {"eval_episode_return": value if env_id else 1.0})
    saved = []
    with pytest.raises(FloatingPointError, match=r"env 1 .*eval_episode_return.* = .*(inf|1e.39)"):
        evaluator.eval(saved.append, train_iter=5)
    assert saved == []


@pytest.mark.differs(
    "carries Dreamer's latent states from one evaluation into the next, by position among the ready envs",
    "starts each evaluation without, and keeps them by env id",
)
def test_the_dreamer_policy_starts_every_evaluation_without_state():
    class Dreamer(ScriptedPolicy):
        def forward(self, obs, reset=None, state=None, **kwargs):
            calls.append((list(obs), reset.tolist(), state))
            return {i: {**out, "state": i} for i, out in super().forward(obs, **kwargs).items()}

    calls = []
    evaluator, _, _ = build(lengths=(1, 2), policy=Dreamer(type="dreamer_command"))
    evaluator.eval(n_episode=2)
    evaluator.eval(n_episode=2)
    once = [([0, 1], [False, False], None), ([1], [False], [1])]
    assert calls == once + once


def test_creating_without_a_type_writes_interaction_into_the_config():
    cfg = InteractionSerialEvaluator.default_config()
    evaluator = create_serial_evaluator(
        cfg, env=FakeManager([1]), policy=ScriptedPolicy(), tb_logger=FakeWriter(), exp_name="exp"
    )
    assert cfg.type == "interaction" and type(evaluator) is InteractionSerialEvaluator


# VectorEvalMonitor: whose episodes count, and what is told of them.


def test_the_quota_of_each_env():
    assert VectorEvalMonitor(5, 12)._quota == {0: 3, 1: 3, 2: 2, 3: 2, 4: 2}


def test_fewer_episodes_than_envs_is_refused():
    with pytest.raises(AssertionError):
        VectorEvalMonitor(3, 2)


@settings(max_examples=50)
@given(env_num=st.integers(1, 6), extra=st.integers(0, 12), order=st.lists(st.integers(0, 5), max_size=80))
def test_returns_are_the_first_of_each_env_in_env_order(env_num, extra, order):
    monitor = VectorEvalMonitor(env_num, env_num + extra)
    played = {i: [] for i in range(env_num)}
    for k, env_id in enumerate(order):
        if env_id < env_num:
            monitor.update_reward(env_id, k)
            played[env_id].append(k)
    expected = [r for i in range(env_num) for r in played[i][: monitor._quota[i]]]
    assert monitor.get_episode_return() == expected
    assert monitor.get_current_episode() == len(expected)
    assert monitor.is_finished() == (len(expected) == env_num + extra)


def test_a_one_element_tensor_is_a_return_and_a_longer_one_is_not():
    monitor = VectorEvalMonitor(1, 3)
    for reward in (1.5, 2.5):
        monitor.update_reward(0, torch.tensor([reward]))
        assert monitor.get_latest_reward(0) == reward
    with pytest.raises(RuntimeError):
        monitor.update_reward(0, torch.tensor([1.0, 2.0]))


def frame(value):
    return np.full((2, 4, 3), value, np.uint8)


def film(lengths_and_returns):
    monitor = VectorEvalMonitor(len(lengths_and_returns), len(lengths_and_returns))
    for env_id, (length, reward) in enumerate(lengths_and_returns):
        for step in range(length):
            monitor.update_video({env_id: frame(10 * env_id + step)})
        monitor.update_reward(env_id, reward)
        monitor.update_video({env_id: frame(99)})
    return monitor.get_video()


def test_clips_are_padded_with_their_last_frame_and_channels_come_first():
    video = film([(2, 5.0), (3, 1.0)])
    assert video.shape == (2, 3, 3, 2, 4)
    assert [clip[:, 0, 0, 0].tolist() for clip in video] == [[10, 11, 12], [0, 1, 1]]


@pytest.mark.parametrize(
    ("returns", "expected"),
    [([1], [0]), ([2, 1], [1, 0]), ([2, 3, 1], [2, 0, 1]), ([5, 1, 4, 2, 3], [1, 3, 4, 0])],
)
def test_the_video_shows_the_worst_the_middle_and_the_best(returns, expected):
    video = film([(2, r) for r in returns])
    assert [int(clip[0, 0, 0, 0]) // 10 for clip in video] == expected


# BattleInteractionSerialEvaluator: which episodes count, and what is told, saved and logged.


def build_battle(lengths=(2, 4), policies=None, cfg=(), tb=None, env=None, players=2, **env_kwargs):
    config = BattleInteractionSerialEvaluator.default_config()
    config.update(EasyDict(n_episode=4, stop_value=100.0))
    config.update(cfg)
    env = BattleManager(list(lengths), players=players, **env_kwargs) if env is None else env
    policies = [Player() for _ in range(players)] if policies is None else policies
    return BattleInteractionSerialEvaluator(config, env, policies, tb or FakeWriter(), "exp"), env, policies


@pytest.mark.differs(
    "returns infos of surplus episodes from a battle evaluation",
    "returns those of the counted episodes",
)
def test_only_counted_episodes_are_told_in_the_order_of_their_ends():
    evaluator, env, _ = build_battle(lengths=(1, 9), players=3)
    stop, infos = evaluator.eval(train_iter=1, envstep=10)
    assert stop is False
    assert [[info["eval_episode_return"] for info in of_player] for of_player in infos] == [
        [1.0, 1.0, 9.0, 9.0],
        [11.0, 11.0, 19.0, 19.0],
        [21.0, 21.0, 29.0, 29.0],
    ]
    assert infos[0][0]["result"] == "wins" and infos[1][0]["result"] == "losses"
    assert [len(one.actions) for one in env.envs] == [2, 18]


@pytest.mark.parametrize("form", ["array", "list", "dicts", "keyed"])
def test_each_policy_sees_its_side_as_float32_tensors(form):
    class Typed(Player):
        def __init__(self, player):
            super().__init__()
            self.player = player

        def act(self, obs, env_ids):
            tensors = list(obs.values()) if isinstance(obs, dict) else [obs]
            assert all(isinstance(t, torch.Tensor) and t.dtype == torch.float32 for t in tensors)
            assert tensors[0][:, 1].tolist() == [self.player] * len(env_ids)
            return super().act(obs, env_ids)

    build_battle(policies=[Typed(0), Typed(1)], form=form)[0].eval()
