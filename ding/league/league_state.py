"""Saving and restoring the state of a league."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ding.league.player import HistoricalPlayer

if TYPE_CHECKING:
    from ding.league.base_league import BaseLeague


def league_state(league: BaseLeague) -> dict[str, Any]:
    """Return the players, their records and ratings; checkpoints are saved by file name."""
    return {
        "active_players": {player.player_id: player.state_dict() for player in league.active_players},
        "historical_players": [
            {
                "player_id": player.player_id,
                "parent_id": player.parent_id,
                "category": player.category,
                "checkpoint": os.path.basename(player.checkpoint_path),
                **player.state_dict(),
            }
            for player in league.historical_players
        ],
        "payoff": league.payoff.state_dict(),
    }


def restore_league(league: BaseLeague, state: Mapping[str, Any]) -> list[HistoricalPlayer]:
    """Restore a `league_state`, and return the historical players that the caller has to add.

    Raises:
        KeyError: its active players differ.
    """
    active, states = {player.player_id: player for player in league.active_players}, state["active_players"]
    if active.keys() != states.keys():
        raise KeyError(
            f"the state has the active players {', '.join(states)}, the league {', '.join(active)}; create the league "
            "with the config of the state"
        )
    for player_id, own in active.items():
        own.load_state_dict(states[player_id], league.create_rating)
    known = {player.player_id: player for player in league.historical_players}
    added = []
    for each in state["historical_players"]:
        player = known.get(each["player_id"])
        if player is None:
            player = _historical(league, active, each)
            added.append(player)
        player.load_state_dict(each, league.create_rating)
    league.payoff.load_state_dict(state["payoff"])
    return added


def _historical(league: BaseLeague, active: Mapping[str, Any], state: Mapping[str, Any]) -> HistoricalPlayer:
    path, step = os.path.join(league.path_policy, state["checkpoint"]), state["total_agent_step"]
    cfg = active[state["parent_id"]]._cfg
    own = cfg, state["category"], league.payoff, path, state["player_id"], step, None
    return HistoricalPlayer(*own, parent_id=state["parent_id"])
