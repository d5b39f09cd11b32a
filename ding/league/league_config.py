"""The config section of a league: what it may hold, and who plays by it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from easydict import EasyDict

from ding.utils.config_helper import ConfigError, Rule, anything, boolean, check_config, instance_of, integer, number
from ding.utils.default_helper import deep_merge_dicts

_METRIC: dict[str, Rule] = {
    "mu": number(),
    "sigma": number(0),
    "beta": number(0),
    "tau": number(0),
    "draw_probability": number(0, 1),
    "elo_init": integer(),
}
_RULES: dict[str, Rule] = {
    "league_type": instance_of(str),
    "player_category": instance_of(list, tuple),
    "active_players": instance_of(Mapping),
    "use_pretrain": boolean,
    "use_pretrain_init_historical": boolean,
    "pretrain_checkpoint_path": anything,
    "payoff": instance_of(Mapping),
    "metric": instance_of(Mapping),
    "path_policy": instance_of(str),
}


class Seat(NamedTuple):
    """A player that is wanted."""

    kind: str
    category: str
    player_id: str


def merge_league_config(defaults: Mapping[str, Any], cfg: Mapping[str, Any]) -> EasyDict:
    """`cfg` over `defaults`; its `active_players` replace the default ones. Neither is changed."""
    merged = EasyDict(deep_merge_dicts(dict(defaults), copy.deepcopy(dict(cfg))))
    if "active_players" in cfg:
        merged.active_players = EasyDict(cfg["active_players"])
    return merged


def check_league_config(cfg: Mapping[str, Any], where: str) -> None:
    """Check a merged section; the sections of the types of players, which may be called anything, are left to these.

    Raises:
        ConfigError: a value is not allowed, or missing.
    """
    of_types = {key: anything for key, value in cfg.items() if isinstance(value, Mapping) and key not in _RULES}
    check_config(cfg, where, {**of_types, **_RULES}, required=("path_policy",))
    check_config(cfg["metric"], f"{where}: metric", _METRIC)


def metric_settings(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `LeagueMetricEnv`."""
    return {key: value for key, value in cfg["metric"].items() if key in _METRIC}


def active_seats(cfg: Mapping[str, Any]) -> Iterator[Seat]:
    """The players that are to be trained: of each type, for each category, as many as `active_players` says.

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
                        f"{part!r} in active_players or player_category is not allowed: it becomes part of the name of "
                        "a file, so it must consist of letters, digits, '_' and '-'"
                    )
            for index in range(int(count)):
                yield Seat(kind, category, f"{kind}_{category}_{index}")


def pretrained_seats(cfg: Mapping[str, Any]) -> Iterator[tuple[Seat, str]]:
    """The historical players to begin with, and whose earlier selves they are: one for each category.

    Raises:
        ConfigError: it is not clear of which type.
    """
    kinds = [key for key in cfg if "main_player" in key] or list(cfg["active_players"])
    if len(kinds) != 1:
        raise ConfigError(
            "use_pretrain_init_historical needs exactly one config key that contains 'main_player' or, without any, "
            f"one type of active players; there are {', '.join(kinds) or 'none'}"
        )
    for category in cfg["player_category"]:
        parent_id = f"{kinds[0]}_{category}_0"
        yield Seat(kinds[0], category, f"{parent_id}_pretrain_historical"), parent_id


def pretrained_path(cfg: Mapping[str, Any], category: str) -> str:
    """Where the weights lie that players of this category begin with.

    Raises:
        ConfigError: `pretrain_checkpoint_path` does not tell.
    """
    paths = cfg["pretrain_checkpoint_path"]
    path = paths.get(category) if isinstance(paths, Mapping) else None
    if not isinstance(path, str):
        raise ConfigError(
            f"pretrain_checkpoint_path = {paths!r} is not allowed; it must be a dict that holds the path of a file for "
            f"the category {category!r}"
        )
    return path
