"""BattleEpisodeSerialCollector: the episodes of two players."""

import pytest

from ding.worker.collector.players import BattleEpisodeSerialCollector
from tests.fakes import FakeWriter
from tests.worker.collector.battles import BareBot, BattleManager, Player, whole


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


def test_with_get_train_sample_each_policy_makes_its_samples():
    policies = [Player(sample=lambda piece: piece[:1]), Player(sample=lambda piece: None)]
    (first, second), _ = build(policies=policies, cfg={"get_train_sample": True})[0].collect(2)
    assert [key(row) for row in first] == [(0, 0, 0, 0), (1, 0, 0, 0)] and second == []


def test_a_player_that_is_done_early_keeps_its_flag_and_the_episode_goes_on_for_all():
    def after_step(timesteps):
        return {i: ts._replace(done=[ts.done, True]) for i, ts in timesteps.items()}

    (first, second), _ = build(lengths=(3,), after_step=after_step)[0].collect(1)
    assert [row["done"] for row in first[0]] == [False, False, True]
    assert [row["done"] for row in second[0]] == [True, True, True]


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


@pytest.mark.parametrize("policies", [[Player()], [Player()] * 3, Player(), "ab"])
def test_anything_but_two_policies_is_refused(policies):
    with pytest.raises(AssertionError):
        build(policies=policies)


def test_a_bot_that_only_acts_gives_no_data_but_infos():
    bot = BareBot()
    for policies, with_data in (([Player(), bot], 0), ([bot, Player()], 1)):
        collector, env, _ = build(lengths=(2,), policies=policies)
        data, infos = collector.collect(2)
        assert [len(of_player) for of_player in data] == [2 * (with_data == 0), 2 * (with_data == 1)]
        assert [len(of_player) for of_player in infos] == [2, 2]
        assert env.envs[0].actions[0][1 - with_data].tolist() == [-1]
    assert bot.resets[:2] == [None, [0]]


def test_logged_values():
    tb = FakeWriter()
    collector, _, _ = build(lengths=(2, 4), tb=tb)
    collector.collect(3, train_iter=100)
    values = {tag.split("/")[1]: value for tag, value, _ in tb.scalars}
    assert values["reward0_mean"] == pytest.approx(8 / 3) and values["reward1_max"] == 14.0
    assert values["envstep_count"] == values["total_envstep_count"] == 8
