"""Recipes: measured configs in `ding/recipes/`, found by policy and env."""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from easydict import EasyDict

from ding.config.read import Config
from ding.utils.config_helper import ConfigError

FOLDER = Path(__file__).parents[1] / "recipes"
# The returns that the curves of recipes reach, by recipe and env, as `python -m tests.benchmarks.learning --report`
# writes them.
MEASURED = FOLDER / "measured.json"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A config for a policy on a family of envs.

    Attributes:
        name: the name of its file in `ding/recipes/`, without the suffix.
        path: the path of this file.
        summary: a description in one line.
        policy: the registered name of the policy.
        envs: patterns of env ids, such as `CartPole-v*`.
        env_steps: the number of env steps of its measured curves.
        measured: what its curves reach, in words, by env id.
    """

    name: str
    path: Path
    summary: str
    policy: str
    envs: tuple[str, ...]
    env_steps: int
    measured: Mapping[str, str]
    _pair: tuple[EasyDict, EasyDict]

    @classmethod
    def read(cls, path: Path) -> Recipe:
        """Read a recipe from its file."""
        names = Config.file_to_dict(str(path)).cfg_dict
        pair = EasyDict(names["main_config"]), EasyDict(names["create_config"])
        summary = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
        measured = json.loads(MEASURED.read_text(encoding="utf-8")).get(path.stem, {})
        return cls(
            path.stem, path, summary, pair[1].policy.type, tuple(names["envs"]), names["env_steps"], measured, pair
        )

    @property
    def configs(self) -> tuple[EasyDict, EasyDict]:
        """Copies of `(main_config, create_config)`."""
        return copy.deepcopy(self._pair)

    def fit(self, policy: str, env_id: str | None) -> int:
        """Return how well the recipe fits: 0 if it does not, else a larger number the more of the id the pattern has.

        A pattern that equals the id fits best.
        """
        if policy != self.policy or env_id is None:
            return 0
        patterns = [pattern for pattern in self.envs if fnmatchcase(env_id, pattern)]
        fits = [len(pattern.replace("*", "")) + 1 + (pattern == env_id) for pattern in patterns]
        return max(fits, default=0)


def all_recipes() -> list[Recipe]:
    """Return the recipes, sorted by name."""
    return [Recipe.read(path) for path in sorted(FOLDER.glob("*.py")) if path.stem != "__init__"]


def recipe_named(name: str) -> Recipe:
    """Return the recipe of this name.

    Raises:
        ConfigError: there is no such recipe.
    """
    known = {recipe.name: recipe for recipe in all_recipes()}
    if name not in known:
        raise ConfigError(f"there is no recipe {name!r}; there are: {', '.join(known)}")
    return known[name]


def find_recipe(policy: str, env_id: str | None) -> Recipe | None:
    """Return the recipe that fits a policy and an env best, or None if none fits."""
    best = max(all_recipes(), key=lambda recipe: recipe.fit(policy, env_id))
    return best if best.fit(policy, env_id) else None
