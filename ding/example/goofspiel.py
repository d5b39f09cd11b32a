"""Goofspiel, a zero-sum game of two players with simultaneous moves: its rules, its envs, and exploitability.

Each player holds the cards 1 to n. In round k the prize k is on offer; both players show a card at once, the higher one
wins the prize (neither if they are equal), and both cards are discarded. The player who won more at the end wins the
game: the return is 1, 0 or -1. Everything except the choice of the current round is known to both, so a strategy maps a
view (own hand, the other's hand, own lead) to probabilities of the cards. Its value against a best response is computed
exactly by backward induction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ding.envs.env.base_env import BaseEnv, BaseEnvTimestep
from ding.utils.object_state import generator_state, set_generator_state
from ding.utils.registry_factory import ENV_REGISTRY

VALUE_RANGE = 2.0  # range of the return: from -1 to 1


class View(NamedTuple):
    """The view of a player before a round: the cards of both, in ascending order, and the player's lead."""

    own: tuple[int, ...]
    other: tuple[int, ...]
    lead: int

    def swapped(self) -> View:
        """Return the view of the other player."""
        return View(self.other, self.own, -self.lead)


Strategy = Mapping[View, np.ndarray]  # probabilities of the cards of `view.own`, in order


class Goofspiel:
    """The rules for `cards` cards per hand.

    Example:
        >>> game = Goofspiel(3)
        >>> view = game.play(game.start(), 1, 3)
        >>> view
        View(own=(2, 3), other=(1, 2), lead=-1)
        >>> game.prize(view)
        2
    """

    def __init__(self, cards: int) -> None:
        if cards < 2:
            raise ValueError(f"a hand of {cards} cards is not allowed; it needs at least 2")
        self.cards = cards

    def start(self) -> View:
        """Return the view of either player before the first round."""
        hand = tuple(range(1, self.cards + 1))
        return View(hand, hand, 0)

    def prize(self, view: View) -> int:
        """Return the prize of the round."""
        return self.cards - len(view.own) + 1

    def play(self, view: View, own: int, other: int) -> View:
        """Return the view after both have shown their cards."""
        won = self.prize(view) * int(np.sign(own - other))
        own_left = tuple(card for card in view.own if card != own)
        other_left = tuple(card for card in view.other if card != other)
        return View(own_left, other_left, view.lead + won)

    def views(self) -> Iterator[View]:
        """Yield all reachable views, by round."""
        layer = {self.start()}
        for _ in range(self.cards):
            yield from sorted(layer)
            layer = {self.play(view, own, other) for view in layer for own in view.own for other in view.other}

    def observation(self, view: View) -> np.ndarray:
        """Return the view for a network, [3 * cards + 1] float32: both hands, prize, and lead over its maximum."""
        obs = np.zeros(3 * self.cards + 1, np.float32)
        for offset, marked in enumerate((view.own, view.other, (self.prize(view),))):
            obs[[offset * self.cards + card - 1 for card in marked if card <= self.cards]] = 1.0
        obs[-1] = view.lead / (self.cards * (self.cards + 1) / 2)
        return obs

    def mask(self, view: View) -> np.ndarray:
        """Return an array [cards] of float32, 1 for the cards in the own hand."""
        mask = np.zeros(self.cards, np.float32)
        mask[[card - 1 for card in view.own]] = 1.0
        return mask

    def best_answer(self, strategy: Strategy) -> float:
        """Return the expected return, -1 to 1, of the best response to this strategy.

        Raises:
            KeyError: the strategy has no entry for a view.
        """

        @cache
        def value(view: View) -> float:
            if not view.own:
                return float(np.sign(view.lead))
            chances = strategy[view.swapped()]
            return max(  # type: ignore[no-any-return]
                sum(p * value(self.play(view, own, other)) for p, other in zip(chances, view.other, strict=True))
                for own in view.own
            )

        return value(self.start())


def exploitability(game: Goofspiel, strategies: Sequence[Strategy]) -> float:
    """Return the average gain of best responses to the players' strategies, 0 for optimal play.

    It is half of what Lanctot et al. (2017), "A Unified Game-Theoretic Approach to Multiagent Reinforcement Learning",
    call NashConv; the game is symmetric and its value 0.
    """
    return float(np.mean([game.best_answer(strategy) for strategy in strategies]))


@ENV_REGISTRY.register("goofspiel")
class GoofspielEnv(BaseEnv):
    """An env for both players, for the battle collectors and evaluators.

    An observation has, for each player, `observation` [3 * cards + 1] and `action_mask` [cards], both float32; an
    action is a pair of card indices (card - 1). Rewards are [2, 1], 0 before the end.

    Args:
        cfg: `cards`, the number of cards of a hand (3); `exploring_starts` (False) starts each game from a
            random reachable view, so that the policy learns in every view, not only those that good players reach.
    """

    config_keys = ("cards", "exploring_starts", "eval_opponent")

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._game = Goofspiel(cfg.get("cards", 3))
        self._view: View | None = None
        self._starts = [[self._game.start()]]
        if cfg.get("exploring_starts", False):
            views = list(self._game.views())
            # The last round offers no choice.
            self._starts = [[view for view in views if len(view.own) == n] for n in range(2, self._game.cards + 1)]
        self._rng = np.random.default_rng()

    def reset(self) -> list[dict[str, np.ndarray]]:
        starts = self._starts[self._rng.integers(len(self._starts))]
        self._view = starts[self._rng.integers(len(starts))]
        return self._observe(self._view)

    def step(self, action: Sequence[Any]) -> BaseEnvTimestep:
        if self._view is None:
            raise RuntimeError("reset the env before its first step")
        own, other = (int(np.asarray(a).item()) + 1 for a in action)
        if own not in self._view.own or other not in self._view.other:
            raise ValueError(
                f"cards {own} and {other} were played from the hands {self._view.own} and {self._view.other}"
            )
        self._view = self._game.play(self._view, own, other)
        done = not self._view.own
        result = float(np.sign(self._view.lead)) if done else 0.0
        info: list[dict[str, Any]] = [{}, {}]
        if done:
            outcome = {1.0: "wins", 0.0: "draws", -1.0: "losses"}
            info = [{"eval_episode_return": r, "result": outcome[r]} for r in (result, 0.0 - result)]
        reward = np.array([[result], [-result]], np.float32)
        return BaseEnvTimestep(self._observe(self._view), reward, done, info)  # type: ignore[arg-type]

    def _observe(self, view: View) -> list[dict[str, np.ndarray]]:
        return [
            {"observation": self._game.observation(seen), "action_mask": self._game.mask(seen)}
            for seen in (view, view.swapped())
        ]

    @property
    def observation_space(self) -> Any:
        from gymnasium import spaces

        observation = spaces.Box(-1.0, 1.0, (3 * self._game.cards + 1,), np.float32)
        mask = spaces.Box(0.0, 1.0, (self._game.cards,), np.float32)
        return spaces.Tuple([spaces.Dict({"observation": observation, "action_mask": mask}) for _ in range(2)])

    @property
    def action_space(self) -> Any:
        from gymnasium import spaces

        return spaces.MultiDiscrete([self._game.cards] * 2)

    @property
    def reward_space(self) -> Any:
        from gymnasium import spaces

        return spaces.Box(-1.0, 1.0, (2, 1), np.float32)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Seed the exploring starts, the only random part of the game."""
        self._rng = np.random.default_rng(seed)

    def get_state(self) -> dict[str, Any]:
        """Return the game and the generator of exploring starts."""
        view = None if self._view is None else [list(self._view.own), list(self._view.other), self._view.lead]
        return {"view": view, "generator": generator_state(self._rng)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `get_state`."""
        self._view = None
        if state["view"] is not None:
            own, other, lead = state["view"]
            self._view = View(tuple(own), tuple(other), lead)
        set_generator_state(self._rng, state["generator"])

    def close(self) -> None:
        self._view = None

    def __repr__(self) -> str:
        return f"Goofspiel with {self._game.cards} cards"


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
