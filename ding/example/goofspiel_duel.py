"""Goofspiel for two policies, or for one policy against a player of the env."""

from __future__ import annotations

from typing import Any

import numpy as np

from ding.envs.env.base_env import BaseEnvTimestep
from ding.example.goofspiel import GoofspielEnv, View
from ding.utils.registry_factory import ENV_REGISTRY


@ENV_REGISTRY.register("goofspiel_duel")
class GoofspielDuelEnv(GoofspielEnv):
    """An env for both players of Goofspiel or, for evaluations, for one player against a built-in opponent.

    An action names a card (card - 1); if it is not in the hand, the nearest card is played, the lower of two. For
    both players observations are [2, 3 * cards + 1], actions [2] and rewards [2, 1]; for one player the first axis is
    missing.

    Args:
        cfg: as for `GoofspielEnv`; with `eval_opponent` one player is built in: half of its cards equal the prize,
            which is a good heuristic, the others are random.
    """

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self._is_alone = "eval_opponent" in cfg

    def reset(self) -> Any:
        return self._seen(super().reset())

    def step(self, action: Any) -> BaseEnvTimestep:
        view = self._view
        if view is None:
            raise RuntimeError("reset the env before its first step")
        own, *others = np.reshape(action, -1)
        card = self._answer(view) if self._is_alone else others[0]
        timestep = super().step([_nearest(view, int(own)), _nearest(view.swapped(), int(card))])
        obs, info = self._seen(timestep.obs), timestep.info
        if self._is_alone:
            return BaseEnvTimestep(obs, timestep.reward[0], timestep.done, info[0])  # type: ignore[index]
        return BaseEnvTimestep(obs, timestep.reward, timestep.done, info)

    def _answer(self, view: View) -> int:
        """Return the action of the built-in player, which is every second time the card that equals the prize."""
        is_plain = self._rng.random() < 0.5
        return int(self._game.prize(view) if is_plain else self._rng.choice(view.other)) - 1

    def _seen(self, obs: Any) -> np.ndarray:
        seen = np.stack([of_player["observation"] for of_player in obs])
        return seen[0] if self._is_alone else seen


def _nearest(view: View, action: int) -> int:
    """Return the action for the card of the hand nearest to the given one."""
    return min(view.own, key=lambda card: (abs(card - 1 - action), card)) - 1
