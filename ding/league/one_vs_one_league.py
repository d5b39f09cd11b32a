"""The league of two-player games."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ding.league.base_league import BaseLeague
from ding.league.player import ActivePlayer
from ding.utils.config_helper import Setting, Settings
from ding.utils.registry_factory import LEAGUE_REGISTRY


@LEAGUE_REGISTRY.register("one_vs_one")
class OneVsOneLeague(BaseLeague):
    """A league whose jobs are games of two players; see `BaseLeague`.

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

    settings = Settings(
        {
            "league_type": "one_vs_one",
            "active_players": {"naive_sp_player": 1},
            "naive_sp_player.one_phase_step": Setting(
                10, None, "Number of iterations after which a snapshot may be taken; after twice as many it always is."
            ),
            "naive_sp_player.branch_probs": Setting(
                {"pfsp": 0.5, "sp": 0.5}, None, "Probability of each kind of opponent."
            ),
            "naive_sp_player.strong_win_rate": Setting(
                0.7, None, "Win rate against all historical players that an early snapshot requires."
            ),
        },
        BaseLeague.settings,
    )

    def _get_job_info(self, player: ActivePlayer, eval_flag: bool = False) -> dict[str, Any]:
        """Create a job for `player`.

        Returns:
            `agent_num`, `launch_player` (its name), and lists for all players of the game: `player_id`,
            `checkpoint_path` and `player_active_flag` (whether the player is trained). An evaluation has one player,
            and `eval_opponent`.
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
        """Do nothing: the player continues training."""

    def _update_player(self, player: ActivePlayer, player_info: Mapping[str, Any]) -> bool:
        """Update a player by `train_iteration`, or by `eval_win`, whether it won an evaluation.

        Return whether the difficulty of its evaluations increased.
        """
        if "train_iteration" in player_info:
            player.total_agent_step = player_info["train_iteration"]
            return False
        return bool(player_info.get("eval_win")) and player.increment_eval_difficulty()
