"""BattleEpisodeSerialCollector: the episodes of two players."""

import numpy as np
import pytest

from ding.worker.collector.players import (
    BattleEpisodeSerialCollector,
    BattleSampleSerialCollector,
)
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import CountingEnv, FakeManager, FakeWriter, ScriptedPolicy
from tests.worker.collector.battles import BareBot, BattleManager, PlainPlayer, Player, key, whole


def collecting_episodes(lengths=(3, 5), policies=None, cfg=(), tb=None, env=None, **env_kwargs):
    config = BattleEpisodeSerialCollector.default_config()
    config.update(cfg)
    env = BattleManager(list(lengths), **env_kwargs) if env is None else env
    policies = [Player(), Player()] if policies is None else policies
    return BattleEpisodeSerialCollector(config, env, policies, tb or FakeWriter(), "exp"), env, policies


def which(episode):
    """(env, player, number of the episode, length) of a whole episode."""
    keys = [key(row) for row in episode]
    env_id, player, number, _ = keys[0]
    assert keys == [(env_id, player, number, step) for step in range(len(keys))]
    assert [row["done"] for row in episode] == [False] * (len(keys) - 1) + [True]
    return env_id, player, number, len(keys)


@pytest.mark.parametrize("form", ["array", "list", "tuple", "dicts", "keyed"])
def test_each_player_gets_its_side_of_the_same_episodes(form):
    collector, env, _ = collecting_episodes(form=form)
    (first, second), _ = collector.collect(4)
    assert [which(episode) for episode in first] == [(0, 0, 0, 3), (1, 0, 0, 5), (0, 0, 1, 3), (1, 0, 1, 5)]
    assert [which(episode) for episode in second] == [(0, 1, 0, 3), (1, 1, 0, 5), (0, 1, 1, 3), (1, 1, 1, 5)]
    assert [len(one.actions) for one in env.envs] == [6, 10]


def test_infos_are_the_envs_own_in_the_order_of_the_episodes():
    collector, _, _ = collecting_episodes(lengths=(3, 5))
    _, infos = collector.collect(3)
    assert infos == [
        [{"eval_episode_return": float(n), "result": "wins"} for n in (3, 5, 3)],
        [{"eval_episode_return": float(10 + n), "result": "losses"} for n in (3, 5, 3)],
    ]


def test_the_env_gets_the_list_of_both_actions_as_arrays_of_its_own():
    policies = [Player(), Player()]
    policies[1].seen.extend([None] * 50)  # its actions count from 51
    collector, env, _ = collecting_episodes(lengths=(2,), policies=policies)
    ((first,), (second,)), _ = collector.collect(1)
    assert [[a.tolist() for a in pair] for pair in env.envs[0].actions] == [[[1], [51]], [[2], [52]]]
    env.envs[0].actions[0][1][:] = -9
    assert [row["action"].tolist() for row in first] == [[1], [2]]
    assert [row["action"].tolist() for row in second] == [[51], [52]]


def test_with_get_train_sample_each_policy_makes_its_samples():
    policies = [Player(sample=lambda fragment: fragment[:1]), Player(sample=lambda fragment: None)]
    (first, second), _ = collecting_episodes(policies=policies, cfg={"get_train_sample": True})[0].collect(2)
    assert [key(row) for row in first] == [(0, 0, 0, 0), (1, 0, 0, 0)] and second == []


def test_a_player_that_is_done_early_keeps_its_flag_and_the_episode_goes_on_for_all():
    def after_step(timesteps):
        return {i: ts._replace(done=[ts.done, True]) for i, ts in timesteps.items()}

    (first, second), _ = collecting_episodes(lengths=(3,), after_step=after_step)[0].collect(1)
    assert [row["done"] for row in first[0]] == [False, False, True]
    assert [row["done"] for row in second[0]] == [True, True, True]


def test_an_exception_of_one_policy_loses_no_finished_episode_of_either():
    class Failing(Player):
        def get_train_sample(self, transitions):
            if len(self.fragments) == 2 and not failed:
                failed.append(True)
                raise ZeroDivisionError
            return super().get_train_sample(transitions)

    failed = []
    collector, _, _ = collecting_episodes(
        lengths=(2, 9), policies=[Player(), Failing()], cfg={"get_train_sample": True}
    )
    with pytest.raises(ZeroDivisionError):
        collector.collect(5)
    (first, second), infos = collector.collect(3)
    assert [key(row)[2:] for row in first] == [key(row)[2:] for row in second]
    assert [key(row)[2] for row in first[:4]] == [0, 0, 1, 1]
    assert len(infos[0]) == len(infos[1]) == 3


@pytest.mark.parametrize("policies", [[Player()], [Player()] * 3, Player(), "ab"])
def test_anything_but_two_policies_is_refused(policies):
    with pytest.raises(AssertionError):
        collecting_episodes(policies=policies)


def test_a_bot_that_only_acts_gives_no_data_but_infos():
    bot = BareBot()
    for policies, with_data in (([Player(), bot], 0), ([bot, Player()], 1)):
        collector, env, _ = collecting_episodes(lengths=(2,), policies=policies)
        data, infos = collector.collect(2)
        assert [len(of_player) for of_player in data] == [2 * (with_data == 0), 2 * (with_data == 1)]
        assert [len(of_player) for of_player in infos] == [2, 2]
        assert env.envs[0].actions[0][1 - with_data].tolist() == [-1]
    assert bot.resets[:2] == [None, [0]]


def test_logged_values():
    tb = FakeWriter()
    collector, _, _ = collecting_episodes(lengths=(2, 4), tb=tb)
    collector.collect(3, train_iter=100)
    values = {tag.split("/")[1]: value for tag, value, _ in tb.scalars}
    assert values["reward0_mean"] == pytest.approx(8 / 3) and values["reward1_max"] == 14.0
    assert values["envstep_count"] == values["total_envstep_count"] == 8


# BattleSampleSerialCollector: the samples of any number of players.


def collecting_samples(lengths=(5, 5), policies=None, cfg=(), tb=None, env=None, players=2, **env_kwargs):
    config = BattleSampleSerialCollector.default_config()
    config.update(cfg)
    env = BattleManager(list(lengths), players=players, **env_kwargs) if env is None else env
    policies = [Player() for _ in range(players)] if policies is None else policies
    return BattleSampleSerialCollector(config, env, policies, tb or FakeWriter(), "exp"), env, policies


class OneSide(CountingEnv):
    """What one player of a `BattleEnv` sees, as an env of its own."""

    player = 0

    def arrays(self):
        obs = np.array([self.env_id, self.player, self.episode, self.count], np.float32)
        return obs, np.array([self.player + 1], np.float32)


def solo_samples(lengths, player, counts, policy):
    env = FakeManager(lengths)
    env.envs = [OneSide(i, length) for i, length in enumerate(lengths)]
    for one in env.envs:
        one.player = player
    collector = SampleSerialCollector(SampleSerialCollector.default_config(), env, policy, FakeWriter(), "solo")
    return [row for i, n in enumerate(counts) for row in collector.collect(n, train_iter=i)]


def plain(rows):
    return [
        {name: whole(x) if "obs" in name else x.tolist() if hasattr(x, "tolist") else x for name, x in row.items()}
        for row in rows
    ]


@pytest.mark.parametrize("make", [Player, PlainPlayer])
@pytest.mark.parametrize("form", ["array", "list", "dicts"])
def test_each_player_gets_what_it_would_get_alone(make, form):
    lengths, counts = [3, 5, 4], [9, 5, 30]
    collector, _, _ = collecting_samples(lengths, [make(n=9) for _ in range(3)], players=3, form=form)
    ours = [[], [], []]
    for i, n in enumerate(counts):
        for of_player, rows in zip(ours, collector.collect(n, train_iter=i)[0], strict=True):
            of_player.extend(rows)
    for player, rows in enumerate(ours):
        assert plain(rows) == plain(solo_samples(lengths, player, counts, ScriptedPolicy(n_sample=9)))
        assert len(rows) == sum(counts)


@pytest.mark.differs(
    "cuts the list of policies with `drop_extra=True` of `sample_1v1`, and drops samples with False",
    "cuts each policy's samples with True, and drops none with False",
)
@pytest.mark.parametrize("players", [2, 3])
def test_drop_extra_cuts_each_list_and_false_returns_all(players):
    lengths = (9, 9, 9)
    data, _ = collecting_samples(lengths, players=players)[0].collect(4)
    assert [len(rows) for rows in data] == [4] * players
    data, _ = collecting_samples(lengths, players=players)[0].collect(4, drop_extra=False)
    assert [len(rows) for rows in data] == [9] * players
    assert [len(rows) for rows in collecting_samples(lengths, players=players)[0].collect(1)[0]] == [1] * players


def test_it_goes_on_until_each_policy_that_collects_has_enough():
    half = Player(sample=lambda fragment: fragment[::2])
    (first, second), _ = collecting_samples(lengths=(8, 8), policies=[Player(), half])[0].collect(8, drop_extra=False)
    assert len(second) == 8 and len(first) == 16


@pytest.mark.differs(
    "mixes fragments of an old on-policy version into new samples in `sample_1v1`, ignores `traj_len_inf`, and "
    "gives infos to two policies only",
    "follows the rules of `sample` for every policy",
)
def test_fragments_of_on_policy_players_are_thrown_away_and_others_survive():
    collector, _, policies = collecting_samples(lengths=(2, 99), policies=[Player(n=8, on_policy=True), Player(n=8)])
    collector.collect(2)
    kept = collector._recorders
    assert [[len(kept[player].under_way(env_id)) for env_id in range(2)] for player in range(2)] == [[0, 0], [0, 2]]
    collector.collect(6)
    starts = [[key(fragment[0])[3] for fragment in policy.fragments if key(fragment[0])[0] == 1] for policy in policies]
    assert starts == [[2], [0]]


def test_time_limits_travel_by_player():
    def mark(env_id, episode, step):
        return [{"terminated": False, "truncated": step == 2}, {"terminated": step == 2, "truncated": False}]

    (first, second), _ = collecting_samples(lengths=(2,), policies=[Player(n=2), Player(n=2)], mark=mark)[0].collect()
    assert [row["truncated"] for row in first] == [False, True] and not any(row["terminated"] for row in first)
    assert [row["terminated"] for row in second] == [False, True]


@pytest.mark.guarantees("one-owner")
def test_a_reset_by_somebody_else_begins_new_fragments_for_every_player():
    class Counted(BattleManager):
        reset_count = 0

        def reset(self, reset_param=None):
            self.reset_count += 1
            super().reset(reset_param)

    tb, policies = FakeWriter(), [Player(n=8), Player(n=8)]
    collector, env, _ = collecting_samples(policies=policies, tb=tb, env=Counted([9, 9]))
    collector.collect(2)
    collector.collect(6)
    env.reset({1: None})
    collector.collect(24, train_iter=100)
    for policy in policies:
        assert all(len({key(row)[:3] for row in fragment}) == 1 for fragment in policy.fragments)
        assert policy.resets[1:3] == [[1], [0]]
    lengths = [value for tag, value, _ in tb.scalars if tag == "collector_iter/avg_envstep_per_episode"]
    assert lengths == [9.0]
