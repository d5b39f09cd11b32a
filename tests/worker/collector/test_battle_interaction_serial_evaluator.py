"""BattleInteractionSerialEvaluator: which episodes count, and what is told, saved and logged."""

import gc

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.utils.config_helper import ConfigError
from ding.worker.collector.base_serial_evaluator import create_serial_evaluator
from ding.worker.collector.battle_interaction_serial_evaluator import BattleInteractionSerialEvaluator
from tests.fakes import FakeWriter
from tests.worker.collector.battles import BareBot, BattleManager, LateBattleManager, Player


def build(lengths=(2, 4), policies=None, cfg=(), tb=None, env=None, players=2, **env_kwargs):
    config = BattleInteractionSerialEvaluator.default_config()
    config.update(EasyDict(n_episode=4, stop_value=100.0))
    config.update(cfg)
    env = BattleManager(list(lengths), players=players, **env_kwargs) if env is None else env
    policies = [Player() for _ in range(players)] if policies is None else policies
    return BattleInteractionSerialEvaluator(config, env, policies, tb or FakeWriter(), "exp"), env, policies


@pytest.mark.differs("a battle evaluation returns the infos of surplus episodes too", "those of the counted episodes")
def test_only_counted_episodes_are_told_in_the_order_of_their_ends():
    evaluator, env, _ = build(lengths=(1, 9), players=3)
    stop, infos = evaluator.eval(train_iter=1, envstep=10)
    assert stop is False
    assert [[info["eval_episode_return"] for info in of_player] for of_player in infos] == [
        [1.0, 1.0, 9.0, 9.0],
        [11.0, 11.0, 19.0, 19.0],
        [21.0, 21.0, 29.0, 29.0],
    ]
    assert infos[0][0]["result"] == "wins" and infos[1][0]["result"] == "losses"
    assert [len(one.actions) for one in env.envs] == [2, 18]


def test_an_env_that_never_ends_is_an_error():
    evaluator, _, _ = build(lengths=(5, 10**9), cfg={"max_episode_steps": 40})
    with pytest.raises(RuntimeError, match="env 1 has ended no evaluation episode for 40 steps"):
        evaluator.eval()


@pytest.mark.differs("an unusual value in an info ends a battle evaluation", "it is left out")
def test_infos_keep_text_and_single_values_as_plain_ones():
    def mark(env_id, episode, step):
        odd = {"one": np.array([2.5]), "many": np.zeros(3), "text": "x", "set": {1}, "t": torch.tensor(3)}
        return [odd, {}]

    infos = build(lengths=(1,), cfg={"n_episode": 1}, mark=mark)[0].eval()[1]
    told = {"eval_episode_return": 1.0, "result": "wins", "one": 2.5, "text": "x", "t": 3}
    assert infos[0] == [told] and type(infos[0][0]["one"]) is float and type(infos[0][0]["t"]) is int


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

    build(policies=[Typed(0), Typed(1)], form=form)[0].eval()


def test_the_env_gets_the_list_of_actions():
    evaluator, env, _ = build(lengths=(1,), policies=[Player(), BareBot()])
    evaluator.eval(n_episode=1)
    assert [[a.tolist() for a in pair] for pair in env.envs[0].actions] == [[[1], [-1]]]


def test_every_evaluation_begins_with_fresh_episodes():
    evaluator, env, policies = build()
    evaluator.eval()
    evaluator.eval()
    assert env.calls.count(("reset", None)) == 2
    assert all([ids for ids in policy.resets if ids is None] == [None] * 3 for policy in policies)
    assert all(obs[3] == 0 for obs in policies[1].seen[0].values())


def test_the_return_of_policy_0_is_judged():
    saved = []
    evaluator, env, _ = build(lengths=(2, 2), cfg={"stop_value": 3.0})
    stops = []
    for length in (2, 2, 3, 1):
        for one in env.envs:
            one.length = length
        stops.append(evaluator.eval(saved.append, train_iter=1)[0])
    assert saved == ["ckpt_best.pth.tar"] * 2 and stops == [False, False, True, False]
    assert evaluator._max_episode_return == 3.0


def test_training_never_stops_before_the_first_iteration():
    for train_iter in (-1, 0):
        assert build(cfg={"stop_value": 1.0})[0].eval(train_iter=train_iter)[0] is False


@pytest.mark.differs("a battle evaluator evaluates again and again at iteration 0", "once at each iteration")
def test_should_eval_at_zero_once_then_every_eval_freq():
    evaluator, _, _ = build(cfg={"eval_freq": 10})
    asked = [0, 0, 5, 9, 10, 10, 15, 19, 20]
    assert [evaluator.should_eval(i) for i in asked] == [True, False, False, False, True, False, False, False, True]


def test_logged_tags_are_those_of_policy_0():
    def mark(env_id, episode, step):
        return [{"episode_info": {"score": 2, "side": "left"}}, {"episode_info": {"other": 1}}]

    tb = FakeWriter()
    evaluator, _, _ = build(tb=tb, mark=mark)
    evaluator.eval(train_iter=4, envstep=40)
    names = [tag for tag, _, step in tb.scalars if tag.startswith("evaluator_iter/") and step == 4]
    assert names == [
        "evaluator_iter/" + name
        for name in (
            "episode_count", "envstep_count", "avg_envstep_per_episode", "evaluate_time", "avg_envstep_per_sec",
            "avg_time_per_episode", "reward_mean", "reward_std", "reward_max", "reward_min", "score_mean",
        )
    ]  # fmt: skip
    values = {tag: value for tag, value, step in tb.scalars if step == 40}
    assert values["evaluator_step/reward_mean"] == 3.0 and values["evaluator_step/envstep_count"] == 12
    assert values["evaluator_step/avg_time_per_episode"] == values["evaluator_step/evaluate_time"] / 4


def test_the_last_evaluation_is_kept_as_a_record():
    evaluator, _, _ = build(lengths=(2, 4))
    evaluator.eval(train_iter=3, envstep=70)
    record = evaluator.last_eval
    assert (record.train_iter, record.envstep) == (3, 70)
    assert (record.returns, record.lengths) == ([2.0, 2.0, 4.0, 4.0], [2, 2, 4, 4])


@pytest.mark.differs("an abnormal step is counted in a battle evaluation", "the env is reset and its episode dropped")
@pytest.mark.parametrize("player", [0, 1])
def test_an_abnormal_step_of_any_player_voids_the_episode(player):
    def mark(env_id, episode, step):
        return [{"abnormal": p == player and (env_id, episode, step) == (0, 1, 2)} for p in range(2)]

    evaluator, env, policies = build(lengths=(3, 3), mark=mark)
    _, infos = evaluator.eval()
    assert ("reset", {0: None}) in env.calls and all([0] in policy.resets for policy in policies)
    assert [info["eval_episode_return"] for info in infos[0]] == [3.0] * 4


def test_an_env_that_answers_late_plays_its_share():
    _, infos = build(env=LateBattleManager([2, 3]))[0].eval()
    assert sorted(info["eval_episode_return"] for info in infos[0]) == [2.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize("done", [np.bool_, lambda flag: (flag, flag)])
def test_a_done_flag_of_numpy_or_one_per_player_ends_the_episode(done):
    assert len(build(done=done)[0].eval()[1][1]) == 4


def test_env_and_policy_are_properties_that_can_be_set():
    evaluator, env, policies = build()
    assert evaluator.env is env and evaluator.policy == policies
    other, new_env = [Player(), Player()], BattleManager([1])
    evaluator.policy, evaluator.env = other, new_env
    assert evaluator.policy == other and env.closed and not new_env.closed
    assert evaluator.eval(n_episode=1)[1][0][0]["eval_episode_return"] == 1.0


def test_reset_of_a_live_evaluator_forgets_the_best_return():
    evaluator, env, policies = build()
    evaluator.eval(train_iter=1)
    evaluator.should_eval(5000)
    evaluator.reset()
    assert evaluator._max_episode_return == -np.inf and evaluator._last_eval_iter == -1
    assert env.calls[-1] == ("reset", None) and all(policy.resets[-1] is None for policy in policies)


def test_the_policies_may_come_later():
    evaluator = BattleInteractionSerialEvaluator(
        BattleInteractionSerialEvaluator.default_config(), BattleManager([2]), None, FakeWriter(), "exp"
    )
    with pytest.raises(RuntimeError, match="has no policies yet"):
        evaluator.eval(n_episode=1)
    evaluator.reset()
    evaluator.reset_policy([BareBot(), BareBot()])
    assert evaluator.eval(n_episode=1)[1][1][0]["eval_episode_return"] == 12.0


def test_one_policy_is_refused_and_an_env_is_needed():
    with pytest.raises(AssertionError, match="at least 2 policies"):
        build(policies=[Player()])
    with pytest.raises(AttributeError, match="needs an env manager"):
        BattleInteractionSerialEvaluator(BattleInteractionSerialEvaluator.default_config())


def test_the_number_of_episodes_is_needed_and_at_least_that_of_the_envs():
    evaluator, _, _ = build(cfg={"n_episode": None})
    with pytest.raises(AssertionError, match="eval needs n_episode"):
        evaluator.eval()
    with pytest.raises(AssertionError, match="n_episode = 1 is below the number of envs, 2"):
        evaluator.eval(n_episode=1)


@pytest.mark.parametrize("bad", [{"eval_freq": "often"}, {"n_episode": 0}, {"stop_value": "never"}])
def test_wrong_config_is_refused_at_construction(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        build(cfg=bad)


@pytest.mark.differs("battle evaluators know nothing of ranks", "rank 0 evaluates and broadcasts the result")
def test_other_ranks_neither_launch_envs_nor_write_and_are_told_the_result(monkeypatch):
    told = [True, [[{"result": "wins"}], [{"result": "losses"}]]]
    monkeypatch.setattr("ding.worker.collector.base_serial_collector.get_rank", lambda: 1)
    monkeypatch.setattr("ding.worker.collector.base_serial_collector.get_world_size", lambda: 2)
    monkeypatch.setattr(
        "ding.worker.collector.base_serial_evaluator.broadcast_object_list",
        lambda objects, src: objects.__setitem__(slice(None), told),
    )
    evaluator, env, _ = build()
    assert env.calls == [] and evaluator._tb_logger is None
    assert evaluator.eval(train_iter=1) == (True, told[1])


def test_the_config_and_the_factory():
    cfg = BattleInteractionSerialEvaluator.default_config()
    assert cfg == {"eval_freq": 50, "cfg_type": "BattleInteractionSerialEvaluatorDict"}
    cfg.type = "battle_interaction"
    kwargs = {"env": BattleManager([1]), "tb_logger": FakeWriter(), "exp_name": "exp"}
    assert type(create_serial_evaluator(cfg, **kwargs)) is BattleInteractionSerialEvaluator


def test_an_evaluator_ends_with_its_last_reference_and_closes_no_shared_writer():
    tb = FakeWriter()
    evaluator, env, _ = build(tb=tb)
    evaluator.eval()
    gc.disable()
    try:
        del evaluator
        assert env.closed and tb.closed == 0
    finally:
        gc.enable()
