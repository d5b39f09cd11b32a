"""The config section of a league: its checks, and the players that it defines."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from easydict import EasyDict

from ding.utils.config_helper import (
    NO_DEFAULT,
    ConfigError,
    Setting,
    Settings,
    anything,
    boolean,
    check_config,
    instance_of,
    integer,
    number,
)
from ding.utils.default_helper import deep_merge_dicts

LEAGUE_SETTINGS = Settings(
    {
        "league_type": Setting("base", instance_of(str), "Registered name of the league."),
        "import_names": Setting(["ding.league"], None, "Modules to import first."),
        "player_category": Setting(["default"], instance_of(list, tuple), "Names of the categories of players."),
        "active_players": Setting({}, instance_of(Mapping), "Number of players of each type, for each category."),
        "use_pretrain": Setting(
            False, boolean, "Whether players start with the weights in `pretrain_checkpoint_path`."
        ),
        "use_pretrain_init_historical": Setting(
            False, boolean, "Whether historical players with these weights are added."
        ),
        "pretrain_checkpoint_path": Setting(
            {"default": "default_cate_pretrain.pth"}, anything, "Files of weights, by category."
        ),
        "payoff": Setting(
            {"type": "battle", "decay": 0.99, "min_win_rate_games": 8}, instance_of(Mapping), "Settings of the payoff."
        ),
        "metric.mu": Setting(0, number(), "Initial mean of a rating."),
        "metric.sigma": Setting(25 / 3, number(0), "Initial standard deviation of a rating."),
        "metric.beta": Setting(25 / 6, number(0), "Standard deviation of the performance in a game."),
        "metric.tau": Setting(0.0, number(0), "Growth of the standard deviation before each game."),
        "metric.draw_probability": Setting(0.02, number(0, 1), "Probability of a draw between equal players."),
        "metric.elo_init": Setting(NO_DEFAULT, integer(), "Initial Elo rating."),
        "path_policy": Setting(NO_DEFAULT, instance_of(str), "Folder of the weights."),
    }
)


class PlayerSpec(NamedTuple):
    """A player that the config defines."""

    kind: str
    category: str
    player_id: str


def merge_league_config(defaults: Mapping[str, Any], cfg: Mapping[str, Any]) -> EasyDict:
    """Return `defaults` updated by `cfg`, with `active_players` replaced; neither argument is changed."""
    merged = EasyDict(deep_merge_dicts(dict(defaults), copy.deepcopy(dict(cfg))))
    if "active_players" in cfg:
        merged.active_players = EasyDict(cfg["active_players"])
    return merged


def check_league_config(cfg: Mapping[str, Any], where: str) -> None:
    """Check a merged section, except for the sections of player types, which are checked by the players.

    Raises:
        ConfigError: a value is missing or not allowed.
    """
    rules = LEAGUE_SETTINGS.rules()
    of_types = {key: anything for key, value in cfg.items() if isinstance(value, Mapping) and key != "metric"}
    check_config(cfg, where, {**of_types, **rules}, required=("path_policy",))


def metric_settings(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `LeagueMetricEnv`."""
    return {key: value for key, value in cfg["metric"].items() if f"metric.{key}" in LEAGUE_SETTINGS}


def active_player_specs(cfg: Mapping[str, Any]) -> Iterator[PlayerSpec]:
    """Yield the active players: for each category, `active_players[type]` players of each type.

    Raises:
        ConfigError: a number, or part of a name, is not allowed.
    """
    for kind, count in cfg["active_players"].items():
        allowed = integer(0)(count)
        if allowed is not None:
            raise ConfigError(f"active_players.{kind} = {count!r} is not allowed; it must be {allowed}")
        for category in cfg["player_category"]:
            for part in (kind, category):
                if not isinstance(part, str) or not re.fullmatch(r"[\w-]+", part):
                    raise ConfigError(
                        f"{part!r} in active_players or player_category is not allowed: it becomes part of a file "
                        "name, so it must consist of letters, digits, '_' and '-'"
                    )
            for index in range(int(count)):
                yield PlayerSpec(kind, category, f"{kind}_{category}_{index}")


def pretrained_player_specs(cfg: Mapping[str, Any]) -> Iterator[tuple[PlayerSpec, str]]:
    """Yield the initial historical players, one for each category, and the names of their parents.

    Raises:
        ConfigError: their type is ambiguous.
    """
    kinds = [key for key in cfg if "main_player" in key] or list(cfg["active_players"])
    if len(kinds) != 1:
        raise ConfigError(
            "use_pretrain_init_historical needs exactly one config key that contains 'main_player' or, without any, "
            f"one type of active players; found {', '.join(kinds) or 'none'}"
        )
    for category in cfg["player_category"]:
        parent_id = f"{kinds[0]}_{category}_0"
        yield PlayerSpec(kinds[0], category, f"{parent_id}_pretrain_historical"), parent_id


def pretrained_path(cfg: Mapping[str, Any], category: str) -> str:
    """Return the path of the pretrained weights of a category.

    Raises:
        ConfigError: `pretrain_checkpoint_path` does not have it.
    """
    paths = cfg["pretrain_checkpoint_path"]
    path = paths.get(category) if isinstance(paths, Mapping) else None
    if not isinstance(path, str):
        raise ConfigError(
            f"pretrain_checkpoint_path = {paths!r} is not allowed; it must be a dict with the path of a file for the "
            f"category {category!r}"
        )
    return path
