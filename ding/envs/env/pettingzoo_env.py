"""Parallel environments of PettingZoo, for the collectors and evaluators of several players."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from ding.envs.env.base_env import BaseEnvTimestep
from ding.envs.env.gymnasium_env import factory_of
from ding.envs.env.gymnasium_spaces import ActionAdapter, action_adapter, one_float, to_float32
from ding.envs.env.lazy_env import LazyEnv
from ding.utils.config_helper import (
    NO_DEFAULT,
    ConfigError,
    Setting,
    Settings,
    anything,
    boolean,
    check_values,
    instance_of,
)
from ding.utils.import_helper import missing_package
from ding.utils.log_helper import shown
from ding.utils.references import plain, resolved
from ding.utils.registry_factory import ENV_REGISTRY


@ENV_REGISTRY.register("pettingzoo")
class PettingZooEnv(LazyEnv):
    """A parallel environment of PettingZoo, with a player for each of its `possible_agents`, in their order.

    The config names it by `env_id`, the module that has `parallel_env`, such as `pettingzoo.butterfly.pistonball_v6`
    (with `kwargs` for that function), or gives `env`, a function without arguments that makes one. With `act_scale`
    real-valued actions come in [-1, 1] and are mapped onto the bounds of the action spaces.

    Observations and actions are tuples with an entry for each player, rewards are [players, 1] float32, `info` is a
    list of dicts. An episode ends when no agent is left. A player that ends earlier keeps its last observation and
    gets the reward 0, its actions are ignored, and its `terminated` or `truncated` stays as it was; collectors record
    no step of it after its end. An agent that is not in `agents` but has not ended rests: its observation, rewards and
    end are those that the environment gives for it. `info[player]` has the bools `terminated` and `truncated` at each
    step, `acted: False` at a step in which it rested, `acts_next: False` if it rests in the next one, and at the last
    one `eval_episode_return` and `result`: `wins`, `losses` or `draws`, by comparing the returns, unless the
    environment gives a `result`.

    Environments whose agents act in turn are converted first: `pettingzoo.utils.aec_to_parallel`.
    """

    settings: ClassVar[Settings] = Settings(
        {
            "env_id": Setting(
                NO_DEFAULT, instance_of(str, optional=True), "Module with `parallel_env`, such as `pkg.pistonball_v6`."
            ),
            "env": Setting(NO_DEFAULT, anything, "A function that makes an env, or its name `module:name`."),
            "kwargs": Setting(NO_DEFAULT, instance_of(dict), "Arguments of `parallel_env`."),
            "act_scale": Setting(NO_DEFAULT, boolean, "Map actions in [-1, 1] onto the bounds of the action spaces."),
        }
    )
    config_keys: ClassVar[tuple[str, ...]] = tuple(settings)

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        check_values(cfg, "env (type pettingzoo)", self.settings.rules())
        self._make_game, self._name = _source(cfg)
        self._returns = np.zeros(0)
        super().__init__(bool(cfg.get("act_scale", False)))

    def step(self, action: Any) -> BaseEnvTimestep:
        """Act once.

        Args:
            action: an action for each player, in order; those of players that have ended or rest are ignored.

        Raises:
            TypeError: an action is of another kind than its space.
            ValueError: there are more or fewer actions than players, one is outside of its space, or a reward is not
                a number.
            RuntimeError: there was no reset.
        """
        if self._env is None:
            raise RuntimeError(f"{self!r}: step() before reset()")
        game: _Game = self._env
        infos: Any  # a list, as of every env of several players
        obs, rewards, infos, done = game.step(self._adapt_action(action))
        self._returns += rewards[:, 0]
        if done:
            for player, info in enumerate(infos):
                info["eval_episode_return"] = float(self._returns[player])
                info.setdefault("result", _result(self._returns, player))
        return BaseEnvTimestep(self._as_observation(obs), rewards, done, infos)

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """Raise NotImplementedError: PettingZoo records no videos."""
        raise NotImplementedError("videos of PettingZoo environments are not recorded; use their own render()")

    def __repr__(self) -> str:
        return f"PettingZooEnv({self._name})"

    def _make(self, video_folder: str | None) -> Any:
        return _Game(self._make_game(), self._name)

    def _discard(self, env: Any) -> None:
        env.close()

    def _attach(self, env: Any) -> None:
        self._adapt_action = _live_adapter(env, self._act_scale)

    def _begin(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        self._returns = np.zeros(len(self._env.agents))
        return self._env.reset(seed, options)


class _Game:
    """A parallel environment with tuples in place of dicts by agent.

    Attributes:
        agents: all possible agents; the order of the players.
    """

    def __init__(self, env: Any, name: str) -> None:
        if not all(hasattr(env, attribute) for attribute in ("possible_agents", "reset", "step")):
            raise TypeError(
                f"env (type pettingzoo): {name} gave {shown(env)}, which is not a ParallelEnv of PettingZoo"
            )
        if hasattr(env, "agent_iter"):
            raise TypeError(
                f"env (type pettingzoo): the agents of {name} act in turn; convert it with "
                "pettingzoo.utils.aec_to_parallel"
            )
        from gymnasium.spaces import Box, Tuple

        self._env = env
        self.agents = list(env.possible_agents)
        self.observation_space = Tuple([env.observation_space(agent) for agent in self.agents])
        self.action_space = Tuple([env.action_space(agent) for agent in self.agents])
        self.reward_space = Box(-np.inf, np.inf, (len(self.agents), 1), np.float32)
        self._obs: dict[Any, Any] = {}
        self._ends: dict[Any, tuple[bool, bool]] = {}  # (terminated, truncated)

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, ...]:
        """Begin an episode; return the observations."""
        self._obs = dict(self._env.reset(seed=seed, options=options)[0])
        missing = [agent for agent in self.agents if agent not in self._obs]
        if missing:
            raise ValueError(
                f"{shown(self._env, str)} returned no first observation for {missing}; every agent needs one"
            )
        self._ends = dict.fromkeys(self.agents, (False, False))
        return self._observations()

    @property
    def live(self) -> list[Any]:
        """The agents that act in the next step."""
        return list(self._env.agents)

    def step(self, actions: dict[Any, Any]) -> tuple[tuple[Any, ...], np.ndarray, list[dict[str, Any]], bool]:
        """Act once; return the observations, rewards [players, 1] and infos, and whether no agent is left.

        Args:
            actions: the actions of the agents that are `live`.
        """
        resting = {agent for agent, ends in self._ends.items() if agent not in actions and not any(ends)}
        obs, rewards, terminated, truncated, infos = self._env.step(actions)
        self._obs.update(obs)
        for agent in (*actions, *resting):
            self._ends[agent] = bool(terminated.get(agent, False)), bool(truncated.get(agent, False))
        # Some environments leave agents that have ended in `agents`.
        is_over = not self._env.agents or all(map(any, self._ends.values()))
        if is_over:  # for those that rest, too: as for the agents that have played the last step
            is_cut = any(self._ends[agent][1] for agent in actions)
            self._ends |= {agent: (not is_cut, is_cut) for agent in resting if not any(self._ends[agent])}
        own_rewards, own_infos = [], []
        for agent in self.agents:
            is_in = agent in actions or agent in resting
            own_rewards.append([one_float(rewards.get(agent, 0.0)) if is_in else 0.0])
            ended, cut = self._ends[agent]
            info = {**infos.get(agent, {}), "terminated": ended, "truncated": cut}
            if agent in resting:
                info["acted"] = False
            if not (is_over or ended or cut or agent in self._env.agents):
                info["acts_next"] = False
            own_infos.append(info)
        return self._observations(), to_float32(np.array(own_rewards)), own_infos, is_over

    def _observations(self) -> tuple[Any, ...]:
        return tuple(self._obs[agent] for agent in self.agents)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def _live_adapter(game: _Game, act_scale: bool) -> ActionAdapter:
    """Return a function that turns the players' actions into the `actions` of `_Game.step`."""
    adapters = [action_adapter(space, act_scale) for space in game.action_space]

    def adapt(action: Any) -> dict[Any, Any]:
        try:
            rows = list(zip(game.agents, adapters, action, strict=True))
        except (TypeError, ValueError) as e:
            raise ValueError(
                f"action {action!r} must have one member for each of the action space {game.action_space}"
            ) from e
        live = set(game.live)
        return {agent: adapter(member) for agent, adapter, member in rows if agent in live}

    return adapt


def _result(returns: np.ndarray, player: int) -> str:
    best_other = np.delete(returns, player).max(initial=-np.inf)
    if returns[player] == best_other:
        return "draws"
    return "wins" if returns[player] > best_other else "losses"


def _source(cfg: Mapping[str, Any]) -> tuple[Callable[[], Any], str]:
    """Return the function that makes the environment, and its name."""
    cfg = plain(resolved(cfg, "env"))
    env, kwargs = cfg.get("env"), dict(cfg.get("kwargs", {}))
    env_id: Any = cfg.get("env_id")
    if (env_id is None) == (env is None):
        raise ConfigError(f"env (type pettingzoo): give one of env_id and env; env_id = {env_id!r}, env = {shown(env)}")
    if env is not None:
        env = factory_of(env) if isinstance(env, (str, list, tuple)) else env
        if not callable(env) or kwargs:
            raise ConfigError(
                f"env (type pettingzoo): env = {env!r}, kwargs = {kwargs!r}; give a function without arguments that "
                "makes an environment, and no kwargs"
            )
        return env, str(getattr(env, "__name__", env))

    def make() -> Any:
        return _module(env_id).parallel_env(**kwargs)

    return make, env_id


def _module(env_id: str) -> Any:
    try:
        module = importlib.import_module(env_id)
    except ImportError as e:
        if env_id.split(".")[0] == "pettingzoo" and importlib.util.find_spec("pettingzoo") is None:
            raise missing_package(f"env (type pettingzoo): {env_id}", "pettingzoo") from e
        raise
    if not hasattr(module, "parallel_env"):
        raise ConfigError(
            f"env (type pettingzoo): env_id = {env_id!r} has no parallel_env; name a module such as "
            "'pettingzoo.butterfly.pistonball_v6'"
        )
    return module
