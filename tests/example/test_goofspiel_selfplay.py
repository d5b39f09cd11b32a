import numpy as np
import pytest
import torch

from ding.example import goofspiel_selfplay
from ding.example.goofspiel import Goofspiel, exploitability
from ding.example.goofspiel_selfplay import StrategyTable, policy_config
from ding.policy.ppo import PPOPolicy


class Policy:
    """A network whose logits are those of `tables`, one after the other."""

    def __init__(self, *tables):
        self._tables = iter(tables)

    def _model(self, obs, mode):
        assert mode == "compute_actor"
        return {"logit": next(self._tables).expand(len(obs["observation"]), -1)}


def test_a_strategy_has_chances_for_the_cards_in_hand_only():
    game = Goofspiel(3)
    strategy = StrategyTable(game).read(Policy(torch.tensor([0.0, np.log(2.0), 5.0])))
    view = game.play(game.start(), 3, 1)
    assert view.own == (1, 2)
    assert strategy[view].tolist() == pytest.approx([1 / 3, 2 / 3])
    assert all(chances.sum() == pytest.approx(1) for chances in strategy.values())


def test_a_new_policy_can_be_read_and_exploited():
    game = Goofspiel(3)
    torch.manual_seed(0)
    policy = PPOPolicy(policy_config(3), enable_field=["learn"])
    assert 0.3 < exploitability(game, [StrategyTable(game).read(policy)]) < 1


@pytest.mark.slow
def test_self_play_ends_close_to_an_equilibrium(capsys):
    assert goofspiel_selfplay.main(["--seed", "0"]) == 0
    assert capsys.readouterr().out.startswith("solved: ")
