"""The origins of config values, and a check of envs against the contract."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ding.config.read import read_config_directly
from ding.config.save import CREATE_SECTIONS
from ding.entry.experiment import Experiment
from ding.entry.run_folder import Path
from ding.envs.common.gym_compat import sample_legal
from ding.envs.env import env_implementation_check as checks
from ding.envs.env.base_env import BaseEnv, EnvOutputError
from ding.envs.env.gymnasium_env import GymnasiumEnv
from ding.utils.config_helper import ConfigError
from ding.utils.data.nested import plain
from ding.utils.log_helper import in_one_line, shown
from ding.utils.references import is_reference, resolve_reference
from ding.utils.state_folder import plain_tree

# Steps after which the checks that compare one step with another leave an episode.
_SOME_STEPS = 200
MAIN, CREATE, COMPILED = "main_config", "create_config", "compile_config"


def origins(path: Path) -> dict[str, tuple[Any, str]]:
    """Return the values of a compiled config by dotted path, each with its origin.

    The origin is `main_config`, `create_config`, the name of the class whose default it is, or `compile_config` for
    values derived from others. No files are written.

    Args:
        path: a config file; if it has a `system_config`, the values are those of the main section.

    Raises:
        Exception: the config cannot be compiled.
    """
    is_parallel = "system_config" in read_config_directly(str(path))
    make: Any = Experiment.parallel if is_parallel else Experiment.from_config
    experiment: Experiment = make(str(path), completes=False)
    user_main, types = plain_tree(experiment.main), dict[str, Any]()
    for name, section in CREATE_SECTIONS.items():
        if isinstance(experiment.create.get(name), Mapping):
            types.update(plain_tree(experiment.create[name], f"{section}."))
    # Names of classes, with the leaves of their defaults at their place in the config.
    defaults: list[tuple[str, Mapping[str, Any]]] = []
    for section, cls in experiment.known.classes.items():
        if hasattr(cls, "default_config"):
            owner = next((c for c in cls.__mro__ if "config" in vars(c)), cls)
            defaults.append((owner.__name__, plain_tree(cls.default_config(), f"{section}.")))
    sources = [(MAIN, user_main), (CREATE, types), *defaults]

    def origin_of(key: str, value: Any) -> str:
        fitting = (source for source, leaves in sources if key in leaves and _equal(leaves[key], value))
        return next(fitting, COMPILED)

    return {key: (value, origin_of(key, value)) for key, value in plain_tree(experiment.cfg).items()}


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(np.all(one == other)) or shown(one) == shown(other)
    except ValueError:  # arrays of other shapes
        return False


Check = tuple[str, Callable[[Any], Any]]


def check_env(name: str) -> Iterator[tuple[str, str | None]]:
    """Check an env against the contract of `BaseEnv`.

    Args:
        name: `module:Class` of a `BaseEnv`, created with the config `{}`, or of a gymnasium env, created without
            arguments; or the id of a gymnasium env.

    Yields:
        The checked property and the problem; None if there is no problem.

    Raises:
        ConfigError: the env does not exist.
    """
    for what, check in _CHECKS:
        env = _make(name)
        try:
            env.seed(0)
            check(env)
        except Exception as e:  # whatever the code of an env raises is a finding
            yield what, f"{e}" if isinstance(e, (AssertionError, EnvOutputError)) else f"{type(e).__name__}: {e}"
        else:
            yield what, None
        finally:
            env.close()


def _make(name: str) -> BaseEnv:
    try:
        make = resolve_reference(name, "env") if is_reference(name) else None
        if isinstance(make, type) and issubclass(make, BaseEnv):
            return make({})
        env = GymnasiumEnv({"env_id": name} if make is None else {"env": make})
        env.observation_space  # noqa: B018  creates the env, which reports an unknown id
        return env
    except Exception as e:  # gymnasium and envs raise many kinds for an id that they cannot make
        raise ConfigError(f"there is no env {name!r}: {e}") from e


def _check_seed(env: Any) -> None:
    first, second = (_episode(env) for _ in range(2))
    length = min(len(first), len(second))
    for step in range(length):
        for what, one, other in zip(("observation", "reward", "done"), first[step], second[step], strict=True):
            if not _equal(plain(one), plain(other)):
                raise AssertionError(
                    f"two episodes with one seed and equal actions differ at step {step}: the {what} was "
                    f"{in_one_line(one)} and {in_one_line(other)}; take all random numbers from a generator that "
                    "seed() or reset() seeds"
                )
    if len(first) != len(second):
        raise AssertionError(f"two episodes with one seed and equal actions have {len(first)} and {len(second)} steps")


def _episode(env: Any) -> list[tuple[Any, Any, Any]]:
    env.seed(0)
    rounds: list[tuple[Any, Any, Any]] = [(copy.deepcopy(env.reset()), 0.0, False)]
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    for _ in range(_SOME_STEPS):
        action = sample_legal(space, rounds[-1][0])
        timestep = env.step(env.random_action() if isinstance(action, (dict, tuple)) else np.atleast_1d(action))
        rounds.append((copy.deepcopy(timestep.obs), copy.deepcopy(timestep.reward), timestep.done))
        if timestep.done:
            break
    return rounds


def _check_reset_again(env: Any) -> None:
    env.seed(0)
    env.step(checks.action_for(env, env.reset(), env.random_action))
    env.reset()
    env.close()
    env.reset()


_CHECKS: tuple[Check, ...] = (
    ("the dtypes of the spaces", checks.check_space_dtype),
    ("the observation of reset() is in its space", checks.check_reset),
    ("observations and rewards of step() are in their spaces; episodes end and report their return", checks.check_step),
    ("equal seeds and actions give equal episodes", _check_seed),
    ("reset() within an episode, and after close()", _check_reset_again),
)
