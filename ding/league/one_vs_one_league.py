"""The league of two-player games."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding.league.base_league import BaseLeague
from ding.league.player import ActivePlayer
from ding.utils.registry_factory import LEAGUE_REGISTRY


@LEAGUE_REGISTRY.register("one_vs_one")
class OneVsOneLeague(BaseLeague):
    """A league whose jobs are games of two players. See `BaseLeague`.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> league = OneVsOneLeague({"path_policy": folder.name})
        >>> job = league.get_job_info()
        >>> job["player_id"], job["player_active_flag"]
        (['naive_sp_player_default_0', 'naive_sp_player_default_0'], [True, True])
        >>> league.finish_job({"player_id": job["player_id"], "result": [["wins", "losses"]]})
        >>> league.get_job_info(eval_flag=True)["eval_opponent"]
        'RULE_BASED'
        >>> folder.cleanup()
    """

    config: dict[str, Any] = {
        **BaseLeague.config,
        "league_type": "one_vs_one",
        "active_players": {"naive_sp_player": 1},
        "naive_sp_player": {
            # Iterations after which a snapshot may be taken; after twice as many it is.
            "one_phase_step": 10,
            # How often each kind of opponent is played.
            "branch_probs": {"pfsp": 0.5, "sp": 0.5},
            # What the win rates against all earlier selves must exceed for a snapshot before that.
            "strong_win_rate": 0.7,
        },
    }

    def _get_job_info(self, player: ActivePlayer, eval_flag: bool = False) -> dict[str, Any]:
        """Games for `player`.

        Returns:
            `agent_num`, `launch_player` (its name), and in lists for those who play: `player_id`, `checkpoint_path` and
            `player_active_flag` (whether the player is trained). In an evaluation there is one of them, and
            `eval_opponent`.
        """
        opponent = player.get_job(eval_flag)["opponent"]
        players = [player] if eval_flag else [player, opponent]
        job_info = {
            "agent_num": len(players),
            "launch_player": player.player_id,
            "player_id": [one.player_id for one in players],
            "checkpoint_path": [one.checkpoint_path for one in players],
            "player_active_flag": [isinstance(one, ActivePlayer) for one in players],
        }
        return {**job_info, "eval_opponent": opponent} if eval_flag else job_info

    def _mutate_player(self, player: ActivePlayer) -> None:
        """Nothing: it is trained on."""

    def _update_player(self, player: ActivePlayer, player_info: Mapping[str, Any]) -> bool:
        """Take news of a player: `train_iteration`, or `eval_win`, whether it has won an evaluation.

        Returns:
            whether its evaluations get harder from now on.
        """
        if "train_iteration" in player_info:
            player.total_agent_step = player_info["train_iteration"]
            return False
        return bool(player_info.get("eval_win")) and player.increment_eval_difficulty()
