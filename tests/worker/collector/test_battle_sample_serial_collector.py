"""BattleSampleSerialCollector: the samples of any number of players."""

import numpy as np
import pytest

from ding.worker.collector.players import BattleSampleSerialCollector
from ding.worker.collector.sample_serial_collector import SampleSerialCollector
from tests.fakes import CountingEnv, FakeManager, FakeWriter, ScriptedPolicy
from tests.worker.collector.battles import BattleManager, PlainPlayer, Player, whole


def build(lengths=(5, 5), policies=None, cfg=(), tb=None, env=None, players=2, **env_kwargs):
    config = BattleSampleSerialCollector.default_config()
    config.update(cfg)
    env = BattleManager(list(lengths), players=players, **env_kwargs) if env is None else env
    policies = [Player() for _ in range(players)] if policies is None else policies
    return BattleSampleSerialCollector(config, env, policies, tb or FakeWriter(), "exp"), env, policies


def key(row):
    """(env, player, episode, step acted on) of a transition."""
    env_id, player, episode, step = whole(row["obs"])
    assert [env_id, player, episode, step + 1] == whole(row["next_obs"])
    assert row["reward"].tolist() == [player + 1]
    return env_id, player, episode, step


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
    collector, _, _ = build(lengths, [make(n=9) for _ in range(3)], players=3, form=form)
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
    data, _ = build(lengths, players=players)[0].collect(4)
    assert [len(rows) for rows in data] == [4] * players
    data, _ = build(lengths, players=players)[0].collect(4, drop_extra=False)
    assert [len(rows) for rows in data] == [9] * players
    assert [len(rows) for rows in build(lengths, players=players)[0].collect(1)[0]] == [1] * players


def test_it_goes_on_until_each_policy_that_collects_has_enough():
    half = Player(sample=lambda piece: piece[::2])
    (first, second), _ = build(lengths=(8, 8), policies=[Player(), half])[0].collect(8, drop_extra=False)
    assert len(second) == 8 and len(first) == 16


@pytest.mark.differs(
    "mixes fragments of an old on-policy version into new samples in `sample_1v1`, ignores `traj_len_inf`, and "
    "gives infos to two policies only",
    "follows the rules of `sample` for every policy",
)
def test_fragments_of_on_policy_players_are_thrown_away_and_others_survive():
    collector, _, policies = build(lengths=(2, 99), policies=[Player(n=8, on_policy=True), Player(n=8)])
    collector.collect(2)
    kept = collector._recorders
    assert [[len(kept[player].under_way(env_id)) for env_id in range(2)] for player in range(2)] == [[0, 0], [0, 2]]
    collector.collect(6)
    starts = [[key(piece[0])[3] for piece in policy.pieces if key(piece[0])[0] == 1] for policy in policies]
    assert starts == [[2], [0]]


def test_time_limits_travel_by_player():
    def mark(env_id, episode, step):
        return [{"terminated": False, "truncated": step == 2}, {"terminated": step == 2, "truncated": False}]

    (first, second), _ = build(lengths=(2,), policies=[Player(n=2), Player(n=2)], mark=mark)[0].collect()
    assert [row["truncated"] for row in first] == [False, True] and not any(row["terminated"] for row in first)
    assert [row["terminated"] for row in second] == [False, True]


@pytest.mark.guarantees("one-owner")
def test_a_reset_by_somebody_else_begins_new_pieces_for_every_player():
    class Counted(BattleManager):
        reset_count = 0

        def reset(self, reset_param=None):
            self.reset_count += 1
            super().reset(reset_param)

    tb, policies = FakeWriter(), [Player(n=8), Player(n=8)]
    collector, env, _ = build(policies=policies, tb=tb, env=Counted([9, 9]))
    collector.collect(2)
    collector.collect(6)
    env.reset({1: None})
    collector.collect(24, train_iter=100)
    for policy in policies:
        assert all(len({key(row)[:3] for row in piece}) == 1 for piece in policy.pieces)
        assert policy.resets[1:3] == [[1], [0]]
    lengths = [value for tag, value, _ in tb.scalars if tag == "collector_iter/avg_envstep_per_episode"]
    assert lengths == [9.0]
