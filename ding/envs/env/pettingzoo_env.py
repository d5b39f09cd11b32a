"""Parallel environments of PettingZoo, for the collectors and evaluators of several players."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ding.envs.env.base_env import BaseEnvTimestep
from ding.envs.env.gymnasium_env import factory_of, name_of
from ding.envs.env.gymnasium_spaces import (
    ActionAdapter,
    action_adapter,
    checked_observation,
    one_float,
    to_float32,
)
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
from ding.utils.data.nested import own_copy
from ding.utils.import_helper import optional_module
from ding.utils.log_helper import shown
from ding.utils.references import plain, resolved
from ding.utils.registry_factory import ENV_REGISTRY


@ENV_REGISTRY.register("pettingzoo")
class PettingZooEnv(LazyEnv):
    """A parallel environment of PettingZoo, with a player for each of its `possible_agents`, in their order.

    The config names it by `env_id`, the module that has `parallel_env`, such as `pettingzoo.butterfly.pistonball_v6`
    or gives `env`, a function that makes one; `kwargs` are arguments of either. With `act_scale`
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
            "env_id": Setting(NO_DEFAULT, instance_of(str, optional=True), "Module that has `parallel_env`."),
            "env": Setting(NO_DEFAULT, anything, "Or what makes an env, its name `module:name`, or (it, kwargs)."),
            "kwargs": Setting(NO_DEFAULT, instance_of(dict), "Arguments of `parallel_env`."),
            "act_scale": Setting(NO_DEFAULT, boolean, "Map actions in [-1, 1] onto the bounds of the action spaces."),
        }
    )
    config_keys: ClassVar[tuple[str, ...]] = tuple(settings)

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        check_values(cfg, "env (type pettingzoo)", self.settings.rules())
        source = plain(resolved(cfg, "env"))
        env, env_id, kwargs = (source.get(key) for key in ("env", "env_id", "kwargs"))
        if (env_id is None) == (env is None):
            raise ConfigError(f"env: give one of env_id and env; env_id = {env_id!r}, env = {shown(env)}")
        factory = partial(_make_by_module, env_id) if env is None else env
        self._make_game = factory_of((factory, kwargs) if kwargs else factory)
        self._name = env_id or name_of(self._make_game)
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
        if self._actions is None:
            raise RuntimeError(f"{self!r}: step() before reset()")
        actions = self._adapt_action(action)
        self._actions.append(own_copy(actions))
        obs, rewards, done, _, infos = self._env.step(actions)
        self._episode_return = self._episode_return + self._summed(rewards)
        if done:
            self._add_return(infos)
        self._obs = checked_observation(obs, self.observation_space, self)
        return BaseEnvTimestep(self._obs, rewards, done, infos)

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """Raise NotImplementedError: PettingZoo records no videos."""
        raise NotImplementedError("videos of PettingZoo environments are not recorded; use their own render()")

    def __repr__(self) -> str:
        return f"PettingZooEnv({self._name})"

    def _make(self, video_folder: str | None) -> Any:
        return _Game(self._make_game(), self._name)

    def _adapter_of(self, env: Any) -> ActionAdapter:
        adapters = [action_adapter(space, self._act_scale) for space in env.action_space]

        def adapt(action: Any) -> dict[Any, Any]:
            live, rows = env.unwrapped.agents, zip(env.agents, adapters, action, strict=True)
            return {agent: adapter(member) for agent, adapter, member in rows if agent in live}

        return adapt

    def _summed(self, reward: Any) -> Any:
        return reward[:, 0]

    def _add_return(self, info: Any) -> None:
        returns = self._episode_return
        for player, own in enumerate(info):
            best_other = np.delete(returns, player).max(initial=-np.inf)
            result = "draws" if returns[player] == best_other else "wins" if returns[player] > best_other else "losses"
            own["eval_episode_return"] = float(returns[player])
            own.setdefault("result", result)


class _Game:
    """A parallel environment with the interface of a gymnasium env, and tuples in place of dicts by agent.

    Attributes:
        agents: all possible agents; the order of the players.
    """

    def __init__(self, env: Any, name: str) -> None:
        if hasattr(env, "agent_iter"):
            raise TypeError(f"the agents of {name} act in turn; convert it with pettingzoo.utils.aec_to_parallel")
        from gymnasium.spaces import Box, Tuple

        self._env = env
        self.agents = list(env.possible_agents)
        self.observation_space = Tuple([env.observation_space(agent) for agent in self.agents])
        self.action_space = Tuple([env.action_space(agent) for agent in self.agents])
        self.reward_space = Box(-np.inf, np.inf, (len(self.agents), 1), np.float32)
        self._obs: dict[Any, Any] = {}
        self._ends: dict[Any, tuple[bool, bool]] = {}  # (terminated, truncated)

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Begin an episode; return the observations, and no info."""
        self._obs = dict(self._env.reset(seed=seed, options=options)[0])
        self._ends = dict.fromkeys(self.agents, (False, False))
        return self._observations(), {}

    @property
    def unwrapped(self) -> Any:
        """The parallel environment."""
        return self._env

    def step(self, actions: dict[Any, Any]) -> tuple[tuple[Any, ...], np.ndarray, bool, bool, list[dict[str, Any]]]:
        """Act once; return the observations, rewards [players, 1], whether no agent is left, False, and the infos.

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
        return self._observations(), to_float32(np.array(own_rewards)), is_over, False, own_infos

    def _observations(self) -> tuple[Any, ...]:
        return tuple(self._obs[agent] for agent in self.agents)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def _make_by_module(env_id: str, **kwargs: Any) -> Any:
    if env_id.startswith("pettingzoo."):
        optional_module("pettingzoo", f"env (type pettingzoo): {env_id}")
    return importlib.import_module(env_id).parallel_env(**kwargs)
