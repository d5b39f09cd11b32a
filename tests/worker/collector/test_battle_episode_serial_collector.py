"""BattleEpisodeSerialCollector: the episodes of two players."""

import numpy as np
import pytest

from ding.worker.collector.players import BattleEpisodeSerialCollector, check_policies
from tests.fakes import FakeWriter
from tests.policy.test_r2d2 import make_policy as make_r2d2
from tests.worker.collector.battles import BareBot, BattleManager, LateBattleManager, Player, whole


def build(lengths=(3, 5), policies=None, cfg=(), tb=None, env=None, **env_kwargs):
    config = BattleEpisodeSerialCollector.default_config()
    config.update(cfg)
    env = BattleManager(list(lengths), **env_kwargs) if env is None else env
    policies = [Player(), Player()] if policies is None else policies
    return BattleEpisodeSerialCollector(config, env, policies, tb or FakeWriter(), "exp"), env, policies


def key(row):
    """(env, player, episode, step acted on) of a transition."""
    env_id, player, episode, step = whole(row["obs"])
    assert [env_id, player, episode, step + 1] == whole(row["next_obs"])
    assert row["reward"].tolist() == [player + 1]
    return env_id, player, episode, step


def which(episode):
    """(env, player, number of the episode, length) of a whole episode."""
    keys = [key(row) for row in episode]
    env_id, player, number, _ = keys[0]
    assert keys == [(env_id, player, number, step) for step in range(len(keys))]
    assert [row["done"] for row in episode] == [False] * (len(keys) - 1) + [True]
    return env_id, player, number, len(keys)


@pytest.mark.parametrize("form", ["array", "list", "tuple", "dicts", "keyed"])
def test_each_player_gets_its_side_of_the_same_episodes(form):
    collector, env, _ = build(form=form)
    (first, second), _ = collector.collect(4)
    assert [which(episode) for episode in first] == [(0, 0, 0, 3), (1, 0, 0, 5), (0, 0, 1, 3), (1, 0, 1, 5)]
    assert [which(episode) for episode in second] == [(0, 1, 0, 3), (1, 1, 0, 5), (0, 1, 1, 3), (1, 1, 1, 5)]
    assert [len(one.actions) for one in env.envs] == [6, 10]


def test_infos_are_the_envs_own_in_the_order_of_the_episodes():
    collector, _, _ = build(lengths=(3, 5))
    _, infos = collector.collect(3)
    assert infos == [
        [{"eval_episode_return": float(n), "result": "wins"} for n in (3, 5, 3)],
        [{"eval_episode_return": float(10 + n), "result": "losses"} for n in (3, 5, 3)],
    ]


def test_the_env_gets_the_list_of_both_actions_as_arrays_of_its_own():
    policies = [Player(), Player()]
    policies[1].seen.extend([None] * 50)  # its actions count from 51
    collector, env, _ = build(lengths=(2,), policies=policies)
    ((first,), (second,)), _ = collector.collect(1)
    assert [[a.tolist() for a in pair] for pair in env.envs[0].actions] == [[[1], [51]], [[2], [52]]]
    env.envs[0].actions[0][1][:] = -9
    assert [row["action"].tolist() for row in first] == [[1], [2]]
    assert [row["action"].tolist() for row in second] == [[51], [52]]


def test_policies_that_return_plain_dicts_collect_the_same():
    (first, second), _ = build(policies=[Player(batched=False), Player(batched=True)])[0].collect(2)
    assert [which(episode)[:2] for episode in (*first, *second)] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_with_get_train_sample_each_policy_makes_its_samples():
    policies = [Player(sample=lambda piece: piece[:1]), Player(sample=lambda piece: None)]
    (first, second), _ = build(policies=policies, cfg={"get_train_sample": True})[0].collect(2)
    assert [key(row) for row in first] == [(0, 0, 0, 0), (1, 0, 0, 0)] and second == []


def test_transitions_note_the_iteration():
    (first, second), _ = build(lengths=(2,))[0].collect(1, train_iter=3)
    assert {row["collect_iter"] for row in (*first[0], *second[0])} == {3}


def test_buffers_are_told_by_env_and_player():
    collector, _, _ = build()
    collector.collect(3)
    lengths = {i: {p: len(b) for p, b in players.items()} for i, players in collector._traj_buffer.items()}
    assert lengths == {0: {0: 0, 1: 0}, 1: {0: 0, 1: 0}}


@pytest.mark.differs("an abnormal step fails in battles", "the info of any player voids the episode, for all players")
@pytest.mark.parametrize("player", [0, 1])
def test_an_abnormal_step_of_any_player_voids_the_episode(player):
    def mark(env_id, episode, step):
        return [{"abnormal": p == player and (env_id, episode, step) == (1, 0, 2)} for p in range(2)]

    collector, env, policies = build(lengths=(3, 3), mark=mark)
    (first, second), _ = collector.collect(2)
    assert [which(episode)[2] for episode in (*first, *second)] == [0, 1, 0, 1]
    assert ("reset", {1: None}) in env.calls and all([1] in policy.resets for policy in policies)


def test_a_player_that_is_done_early_keeps_its_flag_and_the_episode_goes_on_for_all():
    def after_step(timesteps):
        return {i: ts._replace(done=[ts.done, True]) for i, ts in timesteps.items()}

    (first, second), _ = build(lengths=(3,), after_step=after_step)[0].collect(1)
    assert [row["done"] for row in first[0]] == [False, False, True]
    assert [row["done"] for row in second[0]] == [True, True, True]


@pytest.mark.parametrize("form", ["array", "list", "dicts"])
def test_a_nan_of_any_player_stops_with_the_env_id(form):
    def after_step(timesteps):
        for timestep in timesteps.values():
            rows = timestep.obs[1]["when"] if form == "dicts" else timestep.obs[1]
            rows[-1] = np.nan
        return timesteps

    with pytest.raises(FloatingPointError, match="env 0 holds NaN"):
        build(form=form, after_step=after_step)[0].collect(2)


@pytest.mark.parametrize("reward", [(1.0, float("nan")), [np.array([1.0]), np.array([np.nan])]])
def test_a_nan_reward_of_any_player_stops_with_the_env_id(reward):
    def after_step(timesteps):
        return {i: ts._replace(reward=reward) for i, ts in timesteps.items()}

    with pytest.raises(FloatingPointError, match="the reward.* of env 0 holds NaN"):
        build(after_step=after_step)[0].collect(2)


def test_rewards_may_be_numbers_in_a_tuple():
    def after_step(timesteps):
        return {i: ts._replace(reward=(1.5, -1.5)) for i, ts in timesteps.items()}

    (first, second), _ = build(lengths=(2,), after_step=after_step)[0].collect(1)
    assert [row["reward"] for row in (*first[0], *second[0])] == [1.5, 1.5, -1.5, -1.5]


@pytest.mark.differs(
    "an env that returns too little for one of the players is an IndexError or TypeError",
    "an error names the player and what was returned",
)
@pytest.mark.parametrize(
    "wrong", [{"obs": np.zeros((1, 4), np.float32)}, {"reward": 1.0}, {"info": {}}, {"info": [{}]}, {"done": [False]}]
)
def test_what_an_env_returns_for_one_player_only_is_named(wrong):
    def after_step(timesteps):
        return {i: ts._replace(**wrong) for i, ts in timesteps.items()}

    with pytest.raises(ValueError, match="returned nothing for player"):
        build(after_step=after_step)[0].collect(2)


def test_an_env_that_answers_late_plays_its_whole_episodes():
    collector, _, _ = build(env=LateBattleManager([2, 3, 2]))
    (first, second), infos = collector.collect(7)
    assert len(infos[1]) == len(first) == 7 and {which(episode)[0] for episode in first} == {0, 1, 2}
    assert [which(a)[2:] for a in first] == [which(b)[2:] for b in second]


def test_an_exception_of_one_policy_loses_no_finished_episode_of_either():
    class Failing(Player):
        def get_train_sample(self, transitions):
            if len(self.pieces) == 2 and not failed:
                failed.append(True)
                raise ZeroDivisionError
            return super().get_train_sample(transitions)

    failed = []
    collector, _, _ = build(lengths=(2, 9), policies=[Player(), Failing()], cfg={"get_train_sample": True})
    with pytest.raises(ZeroDivisionError):
        collector.collect(5)
    (first, second), infos = collector.collect(3)
    assert [key(row)[2:] for row in first] == [key(row)[2:] for row in second]
    assert [key(row)[2] for row in first[:4]] == [0, 0, 1, 1]
    assert len(infos[0]) == len(infos[1]) == 3


def test_the_policies_may_come_later_and_may_change_between_collects():
    collector, _, _ = build()
    other = BattleEpisodeSerialCollector(
        BattleEpisodeSerialCollector.default_config(), BattleManager([2]), None, FakeWriter(), "exp"
    )
    with pytest.raises(RuntimeError, match="has no policies yet"):
        other.collect(1)
    assert other.envstep == 0
    other.envstep = 5
    tb = other._log.tb
    for iteration in (0, 100):
        other.reset_policy([Player(), Player()])
        (first, _), _ = other.collect(2, train_iter=iteration)
        assert [which(episode)[3] for episode in first] == [2, 2]
    assert ("collector_iter/episode_count", 4, 100) in tb.scalars and other.envstep == 13


def test_policies_need_an_env():
    cfg = BattleEpisodeSerialCollector.default_config()
    with pytest.raises(AttributeError, match="needs an env manager"):
        BattleEpisodeSerialCollector(cfg)
    collector = BattleEpisodeSerialCollector.__new__(BattleEpisodeSerialCollector)
    with pytest.raises(AssertionError, match="set an env first"):
        collector.reset_policy([Player(), Player()])


def test_a_collector_without_policies_may_be_given_another_env():
    first, second = BattleManager([2]), BattleManager([3])
    collector = BattleEpisodeSerialCollector(
        BattleEpisodeSerialCollector.default_config(), first, None, FakeWriter(), "exp"
    )
    collector.reset_env(second)
    collector.reset_policy([Player(), Player()])
    assert first.closed and which(collector.collect(1)[0][0][0])[3] == 3


@pytest.mark.parametrize("policies", [[Player()], [Player()] * 3, Player(), "ab"])
def test_anything_but_two_policies_is_refused(policies):
    with pytest.raises(AssertionError, match="exactly 2 policies"):
        build(policies=policies)


def test_a_mode_of_one_policy_is_no_list_of_policies():
    from ding.policy.modes import random_collect_function

    with pytest.raises(AssertionError, match="exactly 2 policies"):
        build(policies=random_collect_function(*"abcde"))


def test_a_bot_that_only_acts_gives_no_data_but_infos():
    bot = BareBot()
    for policies, with_data in (([Player(), bot], 0), ([bot, Player()], 1)):
        collector, env, _ = build(lengths=(2,), policies=policies)
        data, infos = collector.collect(2)
        assert [len(of_player) for of_player in data] == [2 * (with_data == 0), 2 * (with_data == 1)]
        assert [len(of_player) for of_player in infos] == [2, 2]
        assert env.envs[0].actions[0][1 - with_data].tolist() == [-1]
    assert bot.resets[:2] == [None, [0]]


def test_the_envstep_grows_with_each_round_and_counts_an_env_step_once():
    seen = []

    class Watching(Player):
        def forward(self, obs, **kwargs):
            seen.append(collector.envstep)
            return super().forward(obs, **kwargs)

    collector, _, _ = build(lengths=(2, 3), policies=[Watching(), Player()])
    collector.collect(2)
    assert seen == [0, 2, 4] and collector.envstep == 5


def test_logged_values():
    tb = FakeWriter()
    collector, _, _ = build(lengths=(2, 4), tb=tb)
    collector.collect(3, train_iter=100)
    values = {tag.split("/")[1]: value for tag, value, _ in tb.scalars}
    assert values["reward0_mean"] == pytest.approx(8 / 3) and values["reward1_max"] == 14.0
    assert values["envstep_count"] == values["total_envstep_count"] == 8


def test_players_that_would_share_a_recurrent_state_are_refused():
    one, other = (make_r2d2("collect", seed=seed).collect_mode for seed in (0, 1))
    assert check_policies([one, other], "here") == [one, other]
    with pytest.raises(AssertionError, match="here: players share a recurrent policy"):
        check_policies([one, one], "here")
    bot = Player()
    assert check_policies([bot, bot], "here") == [bot, bot]
