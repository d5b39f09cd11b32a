"""A training of two players with learner, collectors and league of this package, over both transports."""

from functools import partial

import pytest

from ding.worker.coordinator.coordinator import failure_text
from ding.worker.transport.stores import FolderPolicyStore
from tests.worker.collector import marine_fakes
from tests.worker.coordinator.fakes import commander_of
from tests.worker.coordinator.test_training import MAIN as SOLO_MAIN

MARINE = "ding.worker.collector.marine_parallel_collector"
ALWAYS = {str(env_id): [1] * 99 for env_id in range(2)}
MAIN = {
    **SOLO_MAIN,
    "env": {**SOLO_MAIN["env"], "lengths": [4, 5], "results": ALWAYS},
    "policy": {
        **SOLO_MAIN["policy"],
        "model": {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [8, 8], "dueling": False},
        "other": {
            **SOLO_MAIN["policy"]["other"],
            "commander": {"eval_interval": 1000, "league": {"naive_sp_player": {"one_phase_step": 5}}},
        },
    },
}
CREATE = {
    "env": {"type": "battle_task", "import_names": [marine_fakes.__name__]},
    "env_manager": {"type": "base"},
    "policy": {"type": "dqn_command"},
    "collector": {"type": "marine", "import_names": [MARINE]},
    "commander": {"type": "one_vs_one"},
}


@pytest.fixture(params=["local", "http"])
def train(trainer, request):
    """Trains."""
    return partial(trainer.train, MAIN, CREATE, transport=request.param)


def test_a_training_against_earlier_selves_ends_with_an_evaluation_of_the_last_weights(train):
    coordinator = train()
    assert coordinator.failure is None, failure_text(coordinator.failure)
    league, evaluations = commander_of(coordinator)._league, commander_of(coordinator).evaluations
    assert coordinator.progress().train_iter == 30 and evaluations[-1]["train_iter"] == 30
    assert evaluations[-1]["game_result"] == [["wins"], ["wins"]]
    steps = [player.total_agent_step for player in league.historical_players]
    assert steps[-1] >= 20 and len(steps) >= 2
    store = FolderPolicyStore(league.path_policy)
    read = [store.read(player.checkpoint_path).state for player in [*league.historical_players, *league.active_players]]
    # A snapshot is of weights that were sent at about that time, so of no earlier ones than the snapshot before.
    iterations = [state["iter"] for state in read]
    assert iterations == sorted(iterations) and iterations[-1] == 30
    assert sum(record["games"] for record in league.payoff._data.values()) > 0


def test_a_training_ends_when_the_hardest_opponent_is_beaten(train):
    forever = {"policy__learn__learner__train_iterations": 10**9}
    coordinator = train(env__stop_value=1, **forever)
    assert coordinator.failure is None
    assert [result["reward_mean"] for result in commander_of(coordinator).evaluations] == [1.0]
