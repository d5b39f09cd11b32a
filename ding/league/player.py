"""The players of a league: active ones, which are trained, and historical ones, their snapshots; matchmaking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ding.utils.config_helper import (
    NO_DEFAULT,
    ConfigError,
    Setting,
    Settings,
    check_section,
    instance_of,
    integer,
    number,
)
from ding.utils.default_helper import new_generator
from ding.utils.import_helper import import_module
from ding.utils.object_state import SavedAttributes
from ding.utils.registry_factory import PLAYER_REGISTRY

_SUFFIX = ".pth"
# Arguments of `create_rating`, and the corresponding attributes of a rating.
_ATTRIBUTES = (("mu", "mu"), ("sigma", "sigma"), ("elo_init", "elo"))
_WEIGHTINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "squared": lambda rates: (1 - rates) ** 2,  # prefers opponents that are hard to beat
    "variance": lambda rates: rates * (1 - rates),  # prefers opponents of the same strength
}


class Player(SavedAttributes):
    """A player: a checkpoint, a record against all other players, and a rating.

    Args:
        cfg: the settings of the player's type.
        category: category of the player, such as a race.
        init_payoff: the records of all players, the attribute `payoff`; see `BattleSharedPayoff`.
        checkpoint_path: path of the player's weights.
        player_id: unique name of the player.
        total_agent_step: number of iterations for which it was trained.
        rating: a `PlayerRating`, or a function that creates it on first access.
    """

    _name = "BasePlayer"
    _saved: ClassVar[tuple[str, ...]] = ("total_agent_step",)

    def __init__(
        self,
        cfg: Any,
        category: str,
        init_payoff: Any,
        checkpoint_path: str,
        player_id: str,
        total_agent_step: int,
        rating: Any,
    ) -> None:
        self._cfg = cfg
        self.category = category
        self.payoff = init_payoff
        self.checkpoint_path = checkpoint_path
        self.player_id = player_id
        self.total_agent_step = total_agent_step
        self._rating = rating

    @property
    def rating(self) -> Any:
        """The `PlayerRating` of the player."""
        if callable(self._rating):
            self._rating = self._rating()
        return self._rating

    @rating.setter
    def rating(self, rating: Any) -> None:
        self._rating = rating

    def state_dict(self) -> dict[str, Any]:
        """Return the values that change during training, in plain values and arrays.

        `rating` has arguments for `BaseLeague.create_rating`, or is None; the league restores it.
        """
        return {**super().state_dict(), "rating": rating_settings(self._rating)}

    def __repr__(self) -> str:
        return f"{self._name}({self.player_id})"


@PLAYER_REGISTRY.register("historical_player")
class HistoricalPlayer(Player):
    """A snapshot of another player; it is not trained.

    Args:
        args: see `Player`.
        parent_id: name of the player of which it is a snapshot.
    """

    _name = "HistoricalPlayer"

    def __init__(self, *args: Any, parent_id: str) -> None:
        super().__init__(*args)
        self.parent_id = parent_id


class ActivePlayer(Player):
    """A player that is trained.

    It chooses its opponents by branches: for each `{name: probability}` in `branch_probs`, the method
    `_<name>_branch()` returns an opponent.

    Args:
        args, kwargs: see `Player`. The settings are `one_phase_step`, `branch_probs` and `strong_win_rate`. A snapshot
            may be taken after `one_phase_step` iterations if the win rates against all historical players exceed
            `strong_win_rate`, and is always taken after twice as many.

    Raises:
        ConfigError: a value is missing or not allowed, or a branch has no method.
    """

    settings = Settings(
        {
            "one_phase_step": Setting(NO_DEFAULT, integer(1), "Number of iterations before a snapshot may be taken."),
            "branch_probs": Setting(NO_DEFAULT, instance_of(Mapping), "Probability of each kind of opponent."),
            "strong_win_rate": Setting(
                NO_DEFAULT, number(0, 1), "Win rate against all historical players that an early snapshot requires."
            ),
        }
    )

    _name = "ActivePlayer"
    _saved = ("_last_enough_step", "_eval_opponent_index", "_rng")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_section(self._cfg, type(self), f"player {self.player_id}", required=ActivePlayer.settings)
        self._one_phase_step = int(self._cfg["one_phase_step"])
        self._strong_win_rate = float(self._cfg["strong_win_rate"])
        self._branch_probs: dict[str, float] = dict(self._cfg["branch_probs"])
        for name, prob in self._branch_probs.items():
            allowed = number(0, 1)(prob)
            # Kinds of opponents are methods, which a subclass adds.
            if allowed is not None or not hasattr(self, f"_{name}_branch"):
                raise ConfigError(
                    f"player {self.player_id}: branch_probs.{name} = {prob!r} is not allowed; it must be "
                    f"{allowed or f'the name of a branch, but {type(self).__name__} has no method _{name}_branch'}"
                )
        total = sum(self._branch_probs.values())
        if abs(total - 1) > 1e-6:
            raise ConfigError(f"player {self.player_id}: branch_probs add up to {total:g}; they must add up to 1")
        self._last_enough_step = 0
        self._eval_opponent_difficulty = ["RULE_BASED"]
        self._eval_opponent_index = 0
        self._rng = new_generator()

    def is_trained_enough(self, select_fn: Callable[[Player], bool] | None = None) -> bool:
        """Return whether a snapshot is due; if so, the next phase starts.

        Args:
            select_fn: function that selects the players to beat for an early snapshot, by default all historical ones.
        """
        step_passed = self.total_agent_step - self._last_enough_step
        if step_passed < self._one_phase_step:
            return False
        if step_passed < 2 * self._one_phase_step and not self._is_strong(select_fn or _is_historical):
            return False
        self._last_enough_step = self.total_agent_step
        return True

    def _is_strong(self, select_fn: Callable[[Player], bool]) -> bool:
        # One by one, because this is called after each iteration, and usually the first rival is not beaten.
        has_rival = False
        for rival in filter(select_fn, self.payoff.players):
            has_rival = True
            if self.payoff[self, rival][0] <= self._strong_win_rate:
                return False
        return has_rival

    def snapshot(self, metric_env: Any) -> HistoricalPlayer:
        """Return a historical player of the current state, with the mean of its rating; the caller copies the weights.

        Args:
            metric_env: the environment that creates the rating; see `LeagueMetricEnv`.
        """
        # A rating that was never accessed is usually that of a new player.
        mu = (rating_settings(self._rating) or {}).get("mu")
        stem = self.checkpoint_path.removesuffix(_SUFFIX)
        return HistoricalPlayer(
            self._cfg,
            self.category,
            self.payoff,
            f"{stem}_{self.total_agent_step}{_SUFFIX}",
            f"{self.player_id}_{self.total_agent_step}_historical",
            self.total_agent_step,
            partial(metric_env.create_rating, mu=mu),
            parent_id=self.player_id,
        )

    def mutate(self, info: Mapping[str, Any]) -> str | None:
        """Return the path of the weights to restart from after a snapshot, or None to continue."""
        return None

    def get_job(self, eval_flag: bool = False) -> dict[str, Any]:
        """Choose an opponent, and return `{'opponent': player}`, or for an evaluation the name of a difficulty."""
        if eval_flag:
            return {"opponent": self._eval_opponent_difficulty[self._eval_opponent_index]}
        names, probs = list(self._branch_probs), list(self._branch_probs.values())
        branch = names[self._rng.choice(len(names), p=probs)]
        return {"opponent": getattr(self, f"_{branch}_branch")()}

    def increment_eval_difficulty(self) -> bool:
        """Switch evaluations to the next difficulty, and return whether there is one."""
        if self._eval_opponent_index == len(self._eval_opponent_difficulty) - 1:
            return False
        self._eval_opponent_index += 1
        return True

    def _get_players(self, select_fn: Callable[[Player], bool]) -> list[Player]:
        """Return the players of the league for which `select_fn` returns true."""
        return [player for player in self.payoff.players if select_fn(player)]

    def _get_opponent(self, players: Sequence[Player], p: np.ndarray | None = None) -> Player:
        """Draw one of `players` with the probabilities `p`, by default uniformly."""
        return players[self._rng.choice(len(players), p=p)]


@PLAYER_REGISTRY.register("naive_sp_player")
class NaiveSpPlayer(ActivePlayer):
    """A player that plays against itself (branch `sp`) and against the historical players hardest to beat (`pfsp`)."""

    _name = "NaiveSpPlayer"

    def _pfsp_branch(self) -> Player:
        historical = self._get_players(_is_historical)
        if not historical:
            return self
        return self._get_opponent(historical, pfsp(self.payoff[self, historical], "squared"))

    def _sp_branch(self) -> Player:
        return self


def _is_historical(player: Player) -> bool:
    return isinstance(player, HistoricalPlayer)


def pfsp(win_rates: np.ndarray, weighting: str) -> np.ndarray:
    """Return the probability [opponents] of each opponent by prioritized fictitious self-play.

    See Vinyals et al., "Grandmaster level in StarCraft II using multi-agent reinforcement learning" (2019), Methods.

    Args:
        win_rates: [opponents], the win rates x in [0, 1] against each opponent.
        weighting: 'squared' for weights (1 - x)^2, 'variance' for x (1 - x). If all weights are 0, the probabilities
            are equal.

    Raises:
        KeyError: `weighting` has another value.

    Example:
        >>> pfsp(np.array([0.0, 0.5, 1.0]), "squared").tolist()
        [0.8, 0.2, 0.0]
    """
    if weighting not in _WEIGHTINGS:
        raise KeyError(f"weighting = {weighting!r} is not allowed; it must be one of {', '.join(_WEIGHTINGS)}")
    weights = _WEIGHTINGS[weighting](np.asarray(win_rates, dtype=np.float64))
    total = weights.sum()
    return weights / total if total > 0 else uniform(weights)


def uniform(win_rates: np.ndarray) -> np.ndarray:
    """Return the same probability for each opponent."""
    return np.full(len(win_rates), 1 / len(win_rates))


def rating_settings(rating: Any) -> dict[str, Any] | None:
    """Return the arguments of `create_rating` for a rating, or for a function that creates it, and None for None."""
    if rating is None:
        return None
    if callable(rating):
        return dict(rating.keywords) if isinstance(rating, partial) else {}
    # A rating of a user's own `rating_cls` need not have all of them.
    return {name: getattr(rating, attribute) for name, attribute in _ATTRIBUTES if hasattr(rating, attribute)}


def create_player(cfg: Mapping[str, Any], player_type: str, *args: Any, **kwargs: Any) -> Player:
    """Import `cfg['import_names']`, then create a player of the type `player_type` with the other arguments.

    Raises:
        KeyError: no player of this type is registered.
    """
    import_module(cfg.get("import_names", []))
    player: Player = PLAYER_REGISTRY.build(player_type, *args, **kwargs)
    return player
