"""Two-player envs and policies that a collector task can name, and a place to send to."""

from __future__ import annotations

from typing import Any

import numpy as np
from easydict import EasyDict

from ding.utils.registry_factory import ENV_REGISTRY, POLICY_REGISTRY
from ding.worker.collector import MarineParallelCollector
from tests.fakes import Timestep
from tests.worker.collector.battles import BattleEnv
from tests.worker.collector.parallel_fakes import ENVS, POLICIES, Sent, TaskEnv, TaskMode, collector_cfg, weights


@ENV_REGISTRY.register("battle_task")
class TaskBattle(BattleEnv):
    """A zero-sum `BattleEnv` by config; with one player, the env plays the other side and shows what player 0 sees.

    The reward of player 0 is 1 at each step, and its return of episode k is `results[env][k]` (0 where there is none).
    `form` is that of the observations; with `info` = "shared" both players have one info, with their returns in an
    array, and with "each" each has its own. See `TaskEnv` for `lengths`, `raise_at` and the like.
    """

    observation_space = action_space = reward_space = None
    create_collector_env_cfg = staticmethod(lambda cfg: TaskEnv.create_collector_env_cfg({**cfg, "players": 2}))
    create_evaluator_env_cfg = staticmethod(lambda cfg: TaskEnv.create_evaluator_env_cfg({**cfg, "players": 1}))

    def __init__(self, cfg: dict[str, Any]) -> None:
        self.cfg, self.is_alone = cfg, cfg["players"] == 1
        super().__init__(cfg["env_id"], cfg["lengths"][cfg["env_id"]], players=2, form=cfg.get("form", "array"))
        self.seeds: list[int] = []
        self.closed = 0
        ENVS.append(self)

    _mark = TaskEnv._mark

    def _seen(self, obs: Any) -> Any:
        return obs[0] if self.is_alone else obs

    def reset(self) -> Any:
        return self._seen(super().reset())

    def step(self, action: Any) -> Timestep:
        obs, _, done, _ = super().step(action)
        result = float(([*self.cfg.get("results", {}).get(str(self.env_id), ()), *[0] * 99])[self.episode])
        ends = {"eval_episode_return": np.array([result, -result], np.float32)} if done else {}
        more = {**self._mark(self.env_id, self.episode, self.count), "truncated": done}
        info: Any = {**ends, **more}
        if self.cfg.get("info") == "each":
            info = [{**more, **({"eval_episode_return": r} if done else {})} for r in (result, -result)]
        reward = np.array([[1.0], [-1.0]], np.float32)
        return Timestep(self._seen(obs), self._seen(reward), done, info)

    def seed(self, seed):
        self.seeds.append(seed)

    def close(self):
        self.closed += 1


class SeatMode(TaskMode):
    """A `TaskMode` whose k-th action is `base + k`."""

    def forward(self, obs, **kwargs):
        output = super().forward(obs, **kwargs)
        for out in output.values():
            out["action"] += self.cfg.get("base", 0)
        return output


@POLICY_REGISTRY.register("seat_task")
class SeatPolicy:
    def __init__(self, cfg: Any, enable_field: list[str]) -> None:
        self.fields = enable_field
        self.collect_mode = self.eval_mode = SeatMode(cfg)
        POLICIES.append(self)


def battle_cfg(
    is_eval=False, n_sample=2, env={}, left={}, right={}, flags=(True, True), paths=("left", "right"), **changes
) -> EasyDict:
    """The `collector_cfg` of a task over `TaskBattle`s; the actions of player 1 are those of player 0 plus 100."""
    cfg = collector_cfg(is_eval=is_eval, env={"type": "battle_task", **env}, **{"type": "marine", **changes})
    number = 1 if is_eval else 2
    own = left, {"base": 100, **right}
    cfg.policy = [{"type": "seat_task", "n_sample": n_sample, **of_player} for of_player in own][:number]
    cfg.policy_update_path, cfg.policy_update_flag = list(paths)[:number], list(flags)[:number]
    return cfg


class SentByPath(Sent):
    """Has a list of states for each path, handed out one after the other; then there is nothing new."""

    def __init__(self, **states: Any) -> None:
        super().__init__()
        self.by_path = {"left": [weights(7)], "right": [weights(3)], **states}

    def get_policy_update_info(self, path):
        self.states = self.by_path[path]
        return super().get_policy_update_info(path)


def make(sent: Any = None, collector_type: Any = MarineParallelCollector, **cfg: Any) -> Any:
    """A Marine collector that sends to `sent`."""
    return (sent or SentByPath()).attach(collector_type(battle_cfg(**cfg)))


def play(sent: Any = None, **cfg: Any) -> Any:
    """A collector that has played its task."""
    collector = make(sent, **cfg)
    collector.start()
    return collector
