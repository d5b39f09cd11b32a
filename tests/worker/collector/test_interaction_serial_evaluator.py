"""InteractionSerialEvaluator: which episodes count, what is told, saved and logged."""

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.utils.config_helper import ConfigError
from ding.utils.default_helper import one_time_warning
from ding.worker.collector.base_serial_evaluator import create_serial_evaluator
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from tests.fakes import CountedManager, FakeManager, FakeWriter, ScriptedPolicy


def build(lengths=(2, 4), policy=None, cfg=(), tb=None, **env_kwargs):
    config = InteractionSerialEvaluator.default_config()
    config.update(EasyDict(n_episode=4, stop_value=100.0))
    config.update(cfg)
    env = FakeManager(list(lengths), **env_kwargs)
    policy = ScriptedPolicy() if policy is None else policy
    return InteractionSerialEvaluator(config, env, policy, tb or FakeWriter(), "exp"), env, policy


@pytest.mark.differs(
    "an env that has played its share of episodes plays on, and its newer episodes replace the first ones",
    "the first episodes count, full envs are not stepped",
)
def test_each_env_plays_its_share_and_no_step_more():
    evaluator, env, _ = build(lengths=(1, 9))
    stop, info = evaluator.eval(train_iter=1, envstep=10)
    assert info == {"eval_episode_return": [1.0, 1.0, 9.0, 9.0], "eval_episode_return_mean": 5.0}
    assert [len(one.actions) for one in env.envs] == [2, 18]
    assert stop is False


@pytest.mark.differs("step statistics include surplus and unfinished episodes", "only counted episodes")
@pytest.mark.differs("`avg_time_per_episode` is episodes per second", "seconds per episode")
def test_step_statistics_are_those_of_the_counted_episodes():
    tb = FakeWriter()
    evaluator, _, _ = build(lengths=(2, 9), cfg={"n_episode": 2}, tb=tb)
    evaluator.eval(train_iter=3, envstep=70)
    values = {tag: value for tag, value, _ in tb.scalars}
    assert values["evaluator_iter/envstep_count"] == 11
    assert values["evaluator_iter/avg_envstep_per_episode"] == 5.5
    rewards = {which: values[f"evaluator_iter/reward_{which}"] for which in ("mean", "std", "max", "min")}
    assert rewards == {"mean": 5.5, "std": 3.5, "max": 9.0, "min": 2.0}
    assert values["evaluator_iter/avg_time_per_episode"] == values["evaluator_iter/evaluate_time"] / 2


def test_the_policy_sees_float32_tensors():
    class Typed(ScriptedPolicy):
        def forward(self, obs, **kwargs):
            assert all(isinstance(o, torch.Tensor) and o.dtype == torch.float32 for o in obs.values())
            return super().forward(obs, **kwargs)

    build(policy=Typed())[0].eval()


@pytest.mark.differs("`policy_kwargs=None` is a TypeError", "it means none")
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


def test_a_limit_below_one_step_is_refused():
    with pytest.raises(ConfigError, match="max_episode_steps = 0"):
        build(cfg={"max_episode_steps": 0})


@pytest.mark.differs("a mean return of NaN is silently never the best and never enough", "one warning says so")
def test_a_mean_return_of_nan_is_warned_of_once_and_neither_saved_nor_enough(caplog):
    one_time_warning.cache_clear()
    evaluator, _, _ = build(mark=lambda *_: {"eval_episode_return": float("nan")}, cfg={"stop_value": -1.0})
    saved = []
    for train_iter in (1, 2):
        stop, _ = evaluator.eval(saved.append, train_iter=train_iter)
        assert stop is False and saved == []
    assert [message for message in caplog.messages if "evaluation is NaN" in message] == [
        "the mean return of an evaluation is NaN: no best checkpoint is saved and the stop value is not reached; look "
        "at info['eval_episode_return'] of the env; the returns are [nan, nan, nan, nan]"
    ]


def with_info(**extra):
    return lambda env_id, episode, step: {"episode_info": extra}


@pytest.mark.differs("a string in `episode_info` crashes the evaluation", "only numbers are averaged")
def test_episode_infos_are_told_in_lists_with_the_mean_of_numbers_only():
    evaluator, _, _ = build(mark=with_info(score=2, result="wins"))
    _, info = evaluator.eval()
    assert info["score"] == [2] * 4 and info["score_mean"] == 2.0
    assert info["result"] == ["wins"] * 4 and "result_mean" not in info


@pytest.mark.differs("an unusual value in `info` ends the evaluation", "only what is used is converted")
def test_an_exotic_value_in_the_info_does_no_harm():
    evaluator, _, _ = build(mark=lambda *_: {"visited": {1, 2}, "env": object()})
    assert evaluator.eval()[1]["eval_episode_return"] == [2.0, 2.0, 4.0, 4.0]


@pytest.mark.differs("integer observations end the evaluation", "they are evaluated")
def test_integer_observations_are_evaluated():
    def after_step(timesteps):
        return {i: ts._replace(obs=ts.obs.astype(np.int64)) for i, ts in timesteps.items()}

    assert build(after_step=after_step)[0].eval()[1]["eval_episode_return"] == [2.0, 2.0, 4.0, 4.0]


def test_returns_of_shape_one_are_lists_without_a_mean():
    def after_step(timesteps):
        return {
            i: ts._replace(info={"eval_episode_return": np.array([1.5], np.float32)} if ts.done else {})
            for i, ts in timesteps.items()
        }

    _, info = build(lengths=(1, 1), cfg={"n_episode": 2}, after_step=after_step)[0].eval()
    assert info == {"eval_episode_return": [[1.5], [1.5]]}


@pytest.mark.differs(
    "the stop text names the log of the default evaluator, whatever the name of the instance",
    "its own",
)
def test_the_stop_text_names_this_evaluators_own_log(own_folder):
    cfg = InteractionSerialEvaluator.default_config()
    cfg.update(EasyDict(n_episode=1, stop_value=1.0))
    evaluator = InteractionSerialEvaluator(cfg, FakeManager([2]), ScriptedPolicy(), FakeWriter(), "exp", "judge")
    evaluator.eval(train_iter=5)
    assert "./exp/log/judge/" in (own_folder / "exp/log/judge/judge_logger.txt").read_text()


def test_without_an_evaluation_at_zero_the_first_is_one_iteration_early():
    evaluator, _, _ = build(cfg={"eval_freq": 10})
    assert [evaluator.should_eval(i) for i in (8, 9)] == [False, True]


def test_eval_freq_of_minus_one_is_every_new_iteration():
    evaluator, _, _ = build(cfg={"eval_freq": -1})
    assert [evaluator.should_eval(i) for i in (0, 0, 1, 1, 2)] == [True, False, True, False, True]


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


def test_logged_tags():
    tb = FakeWriter()
    evaluator, _, _ = build(tb=tb, mark=with_info(score=1, result="x"))
    evaluator.eval(train_iter=4, envstep=40)
    names = [tag for tag, _, step in tb.scalars if tag.startswith("evaluator_iter/") and step == 4]
    assert names == [
        "evaluator_iter/" + name
        for name in (
            "episode_count", "envstep_count", "avg_envstep_per_episode", "evaluate_time", "avg_envstep_per_sec",
            "avg_time_per_episode", "reward_mean", "reward_std", "reward_max", "reward_min",
            "eval_episode_return_mean", "score_mean",
        )
    ]  # fmt: skip
    by_step = [tag.split("/")[1] for tag, _, step in tb.scalars if tag.startswith("evaluator_step/") and step == 40]
    assert by_step == [name.split("/")[1] for name in names]


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


@pytest.mark.parametrize("rank", [0, 1])
def test_resetting_the_env_alone_is_done_where_it_runs(monkeypatch, rank):
    monkeypatch.setattr("ding.worker.collector.base_serial_collector.get_rank", lambda: rank)
    evaluator, env, policy = build()
    evaluator.reset_env()
    assert env.calls == ["launch", ("reset", None)][: 2 * (rank == 0)] and evaluator.env is env
    other = FakeManager([1])
    evaluator.reset_env(other)
    assert other.calls == ["launch"][: rank == 0] and env.calls[-1] == "close" and evaluator._env_num == 1
    assert policy.resets in ([], [None])


def test_an_env_that_somebody_else_resets_plays_its_episode_anew():
    class Resetting(CountedManager):
        def step(self, actions):
            timesteps = super().step(actions)
            if len(self.envs[0].actions) == 2:
                self.reset({0: None})
            return timesteps

    evaluator, _, policy = build()
    evaluator.env = Resetting([3, 9])
    assert evaluator.eval(n_episode=2)[1]["eval_episode_return"] == [3.0, 9.0]
    assert evaluator.last_eval.lengths == [3, 9] and policy.resets == [None, None, [0], [0], [1]]


@pytest.mark.differs("a bare `default_config()` lacks `n_episode` and `stop_value`", "it works")
def test_the_bare_default_config_constructs_and_evaluates():
    evaluator = InteractionSerialEvaluator(
        InteractionSerialEvaluator.default_config(), FakeManager([2]), ScriptedPolicy(), FakeWriter(), "exp"
    )
    assert evaluator.eval(n_episode=1, train_iter=1) == (
        False,
        {"eval_episode_return": [2.0], "eval_episode_return_mean": 2.0},
    )


@pytest.mark.parametrize("bad", [{"eval_freq": "often"}, {"render": {"mode": "steps"}}, {"n_episode": 0}])
def test_wrong_config_is_refused_at_construction(bad):
    with pytest.raises(ConfigError):
        build(cfg=EasyDict(bad))


def test_construction_without_env_or_policy_says_what_is_missing():
    cfg = InteractionSerialEvaluator.default_config()
    with pytest.raises(AttributeError, match="needs an env manager and a policy"):
        InteractionSerialEvaluator(cfg)
    with pytest.raises(AssertionError, match="set an env first"):
        InteractionSerialEvaluator(cfg, None, ScriptedPolicy())


def test_exhausted_envs_end_the_evaluation_with_an_error():
    with pytest.raises(RuntimeError, match="no env is ready"):
        build(lengths=(2, 2), episode_num=1)[0].eval()


def test_an_env_that_reports_no_return_is_named():
    def after_step(timesteps):
        return {i: ts._replace(info={"x": 1}) for i, ts in timesteps.items()}

    with pytest.raises(KeyError, match="env 0 ended an episode without info"):
        build(lengths=(1, 1), after_step=after_step)[0].eval()


@pytest.mark.differs(
    "an infinite return is the best one and ends the training", "the evaluation stops and names the env"
)
@pytest.mark.parametrize("value", [float("inf"), np.array([-np.inf]), torch.tensor(float("inf")), 1e39])
def test_an_infinite_return_stops_the_evaluation_with_the_env_id(value):
    evaluator, _, _ = build(mark=lambda env_id, *_: {"eval_episode_return": value if env_id else 1.0})
    saved = []
    with pytest.raises(FloatingPointError, match=r"env 1 .*eval_episode_return.* = .*(inf|1e.39)"):
        evaluator.eval(saved.append, train_iter=5)
    assert saved == []


def test_a_nan_observation_stops_the_evaluation_with_the_env_id():
    def after_step(timesteps):
        return {i: ts._replace(obs=ts.obs * np.nan) if i == 1 else ts for i, ts in timesteps.items()}

    with pytest.raises(FloatingPointError, match="env 1 holds NaN"):
        build(after_step=after_step)[0].eval()


def test_rank_0_tells_the_others_its_result(monkeypatch):
    sent = []
    monkeypatch.setattr("ding.worker.collector.base_serial_collector.get_rank", lambda: 0)
    monkeypatch.setattr(
        "ding.worker.collector.base_serial_evaluator.broadcast_object_list",
        lambda objects, src: sent.append((objects, src)),
    )
    monkeypatch.setattr("ding.worker.collector.base_serial_collector.get_world_size", lambda: 1)
    build()[0].eval(train_iter=1)
    assert sent == []
    monkeypatch.setattr("ding.worker.collector.base_serial_collector.get_world_size", lambda: 2)
    told = build(cfg={"stop_value": 3.0})[0].eval(train_iter=1)
    assert told == (True, {"eval_episode_return": [2.0, 2.0, 4.0, 4.0], "eval_episode_return_mean": 3.0})
    assert sent == [(list(told), 0)]


@pytest.mark.differs("Dreamer's latent states leak from one evaluation into the next", "each begins without")
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


def test_an_unknown_type_names_the_registered_ones():
    with pytest.raises(KeyError, match="interaction"):
        create_serial_evaluator(EasyDict(type="interactoin"))
