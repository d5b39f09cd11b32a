import os

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


def test_later_readings_weigh_more_in_the_average():
    table = StrategyTable(Goofspiel(2))
    policy = Policy(torch.tensor([100.0, 0.0]), torch.tensor([0.0, 100.0]))
    table.read(policy)
    table.read(policy)
    assert table.average()[Goofspiel(2).start()].tolist() == pytest.approx([1 / 5, 4 / 5])


def test_a_new_policy_can_be_read_and_exploited():
    game = Goofspiel(3)
    torch.manual_seed(0)
    policy = PPOPolicy(policy_config(3), enable_field=["learn"])
    assert 0.3 < exploitability(game, [StrategyTable(game).read(policy)]) < 1


def test_a_run_that_is_too_short_says_so_and_returns_1(capsys):
    threads = torch.get_num_threads()
    assert goofspiel_selfplay.main(["--seed", "3", "--collections", "1"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("NOT solved: a best answer to the average strategy wins 0.")
    assert out.endswith("results are in ./goofspiel_selfplay_seed3/\n")
    assert "ckpt_best.pth.tar" in os.listdir("goofspiel_selfplay_seed3/ckpt")
    assert torch.get_num_threads() == threads


@pytest.mark.slow
def test_self_play_ends_close_to_an_equilibrium(capsys):
    assert goofspiel_selfplay.main(["--seed", "0"]) == 0
    assert capsys.readouterr().out.startswith("solved: ")
