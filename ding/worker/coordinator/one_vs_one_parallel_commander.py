"""The commander for two-player games: a league chooses the opponents."""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from easydict import EasyDict

from ding.league.base_league import BaseLeague, OneVsOneLeague, create_league, merge_league_config
from ding.league.player import ActivePlayer
from ding.league.shared_payoff import flat_results
from ding.utils.config_helper import ConfigError, Settings
from ding.utils.import_helper import import_module
from ding.utils.registry_factory import COMMANDER_REGISTRY, LEAGUE_REGISTRY
from ding.worker.coordinator.base_parallel_commander import Task
from ding.worker.coordinator.solo_parallel_commander import SoloCommander, Training

# An evaluation counts as won if more than this share of its games is won.
_EVAL_WIN_RATE = 0.7


@COMMANDER_REGISTRY.register("one_vs_one")
class OneVsOneCommander(SoloCommander):
    """The commander that trains one player of a league against itself and earlier versions.

    Evaluations are played against the env's opponent.

    The run ends with an evaluation whose mean return reaches `env.stop_value`, and in which more than 70 % of the games
    against the hardest opponent are won. See `SoloCommander`.

    The learner also writes its weights to the player's checkpoint, where collectors read them. For a snapshot, the
    newest weights are copied to another name in the same folder. They may be a few iterations older than the
    snapshot's name says; their own `iter` is exact.

    Args:
        cfg: the compiled main config. In the commander's section are `league`, merged into the league's defaults,
            and `path_policy`, the folder of the weights.

    Raises:
        ConfigError: a value in the commander section or the league's is not allowed, or a number of episodes is missing
            in `env`; the league does not have exactly one active player.
        KeyError: no league, or no player, is registered under that type.
    """

    settings = Settings({"collector_task_space": 2}, SoloCommander.settings)
    _eval_prefix = "evaluator_task"
    _goal_note = " against the hardest opponent"
    _saved = ("_steps_before", "_has_begun", "_league")

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._league = _make_league(EasyDict(cfg).policy.other.commander)
        self._active_player: ActivePlayer = self._league.active_players[0]
        self._jobs: dict[str, list[str]] = {}  # the players by collecting task
        self._steps_before = 0  # iterations of earlier learners
        self._has_begun = False
        super().__init__(cfg)

    @property
    def _current_policy_id(self) -> list[str]:
        return [] if self._training is None else [self._training.policy_id]

    @property
    def _current_buffer_id(self) -> str | None:
        return None if self._training is None else self._training.buffer_id

    def get_learner_task(self) -> Task | None:
        task = super().get_learner_task()
        if task is not None:
            task["league_save_checkpoint_path"] = self._active_player.checkpoint_path
            if not self._has_begun and not self._league.cfg.use_pretrain:
                _remove_old_weights(self._active_player)
            self._has_begun = True
        return task

    def _collector_cfg(self, task_id: str, is_eval: bool, setting: Mapping[str, Any], training: Training) -> EasyDict:
        job = self._league.get_job_info(self._active_player.player_id, is_eval)
        policies = [self._task_configs.policy_cfg() for _ in job["player_id"]]
        cfg = self._task_configs.collector_cfg(is_eval, setting, policies, list(job["checkpoint_path"]))
        cfg.policy_update_flag = list(job["player_active_flag"])
        if is_eval:
            cfg.env = EasyDict(cfg.env, eval_opponent=job["eval_opponent"])  # the section is shared with other tasks
        else:
            self._jobs[task_id] = list(job["player_id"])
        return cfg

    def _take_collected(self, task_id: str, finished_task: Mapping[str, Any]) -> None:
        players = self._jobs.pop(task_id, None)
        if players is not None and finished_task["real_episode_count"]:
            self._league.finish_job({"player_id": players, "result": finished_task["game_result"]})

    def _reaches_goal(self, finished_task: Mapping[str, Any]) -> bool:
        has_won = _win_rate(finished_task) > _EVAL_WIN_RATE
        news = {"player_id": self._active_player.player_id, "eval_win": has_won}
        gets_harder = self._league.update_active_player(news)
        if gets_harder:  # returns against easier opponents are not comparable
            self._best_return, self._idle_evaluations = -math.inf, 0
        return has_won and not gets_harder and super()._reaches_goal(finished_task)

    def _train_iter_of(self, finished_task: Mapping[str, Any]) -> int:
        """Return the iteration of the first player's weights; if it is missing, that of the learner's newest info."""
        train_iter = finished_task.get("train_iter", self._learner_info[-1]["learner_step"])
        return int(train_iter[0] if isinstance(train_iter, (list, tuple)) else train_iter)

    def _further_values(self, finished_task: Mapping[str, Any]) -> Mapping[str, float]:
        return {"win_rate": _win_rate(finished_task)}

    def update_learner_info(self, task_id: str, info: Mapping[str, Any]) -> None:
        """Keep the newest report, and take a snapshot of the player when it is due."""
        super().update_learner_info(task_id, info)
        player_id = self._active_player.player_id
        train_iteration = self._steps_before + int(info["learner_step"])
        self._league.update_active_player({"player_id": player_id, "train_iteration": train_iteration})
        self._league.judge_snapshot(player_id)

    def notify_fail_learner_task(self, task: Mapping[str, Any]) -> None:
        super().notify_fail_learner_task(task)
        if self._training is None:
            self._steps_before = self._active_player.total_agent_step  # the next learner counts from 0

    def notify_fail_collector_task(self, task: Mapping[str, Any]) -> None:
        super().notify_fail_collector_task(task)
        self._jobs.pop(task.get("task_id", ""), None)


def _make_league(section: Mapping[str, Any]) -> BaseLeague:
    given = section.get("league") or {}
    import_module(given.get("import_names", []))
    league_cls: type[BaseLeague] = LEAGUE_REGISTRY.get(given.get("league_type", OneVsOneLeague.config["league_type"]))
    cfg = merge_league_config(league_cls.default_config(), given)
    cfg.path_policy = section.get("path_policy", given.get("path_policy"))
    league = create_league(cfg)
    if len(league.active_players) != 1:
        raise ConfigError(
            f"league.active_players = {dict(cfg.active_players)} for {len(cfg.player_category)} categories is not "
            f"allowed: one player is trained, and there would be {len(league.active_players)}"
        )
    return league


def _remove_old_weights(player: ActivePlayer) -> None:
    """Remove the weights of an earlier run, which collectors could take for the learner's first ones."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(player.checkpoint_path)


def _win_rate(finished_task: Mapping[str, Any]) -> float:
    """Return the share of games that the first player has won; 0 without games."""
    results = Counter(flat_results(finished_task["game_result"]))
    return results["wins"] / max(1, results.total())
