"""BattleInteractionSerialEvaluator: which episodes count, and what is told, saved and logged."""

import pytest
import torch
from easydict import EasyDict

from ding.worker.collector.players import BattleInteractionSerialEvaluator
from tests.fakes import FakeWriter
from tests.worker.collector.battles import BattleManager, Player


def build(lengths=(2, 4), policies=None, cfg=(), tb=None, env=None, players=2, **env_kwargs):
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
