"""Agents, which combine an algorithm, an env and a config behind a few methods, and what these return."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from easydict import EasyDict

from ding.config.example.DQN import supported_env_cfg as dqn_examples
from ding.config.example.PPOF import supported_env_cfg as ppo_examples
from ding.config.example.TD3 import supported_env_cfg as td3_examples
from ding.config.read import put
from ding.entry.application_entry import collect_demo_data, collect_episodic_demo_data
from ding.entry.experiment import Experiment
from ding.entry.run_folder import RunFolder
from ding.entry.serial_entry import run_serial, run_serial_onpolicy
from ding.entry.serial_run import SerialRun
from ding.entry.trained import evaluate_pair, save_videos
from ding.envs.env.ding_env_wrapper import DingEnvWrapper
from ding.policy.ppo import PPOPolicy
from ding.utils.config_helper import ConfigError


@dataclass
class TrainingReturn:
    """The result of a training run.

    Attributes:
        wandb_url: URL of the run at Weights & Biases.
    """

    wandb_url: str


@dataclass
class EvalReturn:
    """The result of an evaluation.

    Attributes:
        eval_value: Mean of the episode returns.
        eval_value_std: Standard deviation of the episode returns.
    """

    eval_value: np.float32
    eval_value_std: np.float32


# The ids in gymnasium that replace those in published configs.
_SUCCESSORS = {"LunarLander-v2": "LunarLander-v3", "LunarLanderContinuous-v2": "LunarLanderContinuous-v3"}
_ENV_NUM = 4
# The keys of a flat config of PPOF, and where they are read. Those of the policy are the last parts of its keys, which
# are unique in the sections of PPO; `n_sample` outside of them has no effect.
_FLAT = {
    **{
        path.rpartition(".")[2]: f"policy.{path}"
        for path in sorted(PPOPolicy.settings, key=lambda path: path.count("."))
        if path.count(".") < 2
    },
    **{key: f"env.{key}" for key in (*DingEnvWrapper.config_keys, "stop_value", "n_evaluator_episode")},
    **{key: f"env.{key}" for key in ("collector_env_num", "evaluator_env_num")},
    "exp_name": "exp_name",
    "seed": "seed",
    "grad_norm": "policy.learn.grad_clip_value",
}


class Agent:
    """An agent, which trains an algorithm on an env, evaluates it, records videos and collects data.

    Args:
        env_id: a gymnasium id. The ids in `supported_env_list` have a config.
        env: an env with `clone(caller)`, such as a `DingEnvWrapper`, instead of the one that gymnasium makes.
        seed: the seed of trainings and evaluations.
        exp_name: the folder of the training; by default that of the config. A time stamp is added if it exists.
        model: the network; None for the policy's default.
        cfg: the main config, with the sections `env` and `policy`, instead of the one for `env_id`. Shapes of the model
            that it lacks are those of the env.
        policy_state_dict: the path of a checkpoint to begin with.

    Attributes:
        cfg: the main config.
        exp_name: the folder of the newest training.

    Raises:
        ConfigError: there is no config for the env, or its spaces do not tell the shapes of a model.
        TypeError: `env` cannot be cloned.

    Example:
        >>> agent = DQNAgent("CartPole-v1", exp_name="cartpole")  # doctest: +SKIP
        >>> agent.train(step=20_000)  # doctest: +SKIP
        >>> agent.best.batch_evaluate(n_evaluator_episode=10).eval_value  # doctest: +SKIP
        500.0
    """

    supported_env_list: ClassVar[list[str]]
    _policy_type: ClassVar[str]
    _examples: ClassVar[Mapping[str, Any]]
    _pipeline: ClassVar[Callable[..., SerialRun]]

    def __init__(
        self,
        env_id: str | None = None,
        env: Any = None,
        seed: int = 0,
        exp_name: str | None = None,
        model: torch.nn.Module | None = None,
        cfg: Mapping[str, Any] | None = None,
        policy_state_dict: str | os.PathLike[str] | None = None,
    ) -> None:
        # Any object with this method will do.
        if env is not None and not callable(getattr(env, "clone", None)):
            raise TypeError(f"env = {env!r} has no method clone(caller): pass DingEnvWrapper(env), or its id as env_id")
        self.seed, self._model, self._checkpoint = seed, model, policy_state_dict
        self.cfg = self._config(env_id, env, cfg)
        if env is None and not {"env_wrapper", "rew_clip"}.isdisjoint(self.cfg.env):
            env = DingEnvWrapper(cfg=self.cfg.env)
        self._env = env
        pair = self._pair(None, debug=False)
        self.cfg = Experiment.from_config(pair, seed, self._env_setting(pair[0].env)).main
        name = f"{self.cfg.env.get('env_id', 'env')}-{self._policy_type.upper()}"
        self.cfg.exp_name = self.exp_name = exp_name or self.cfg.get("exp_name", name)

    def train(
        self,
        step: int = 10_000_000,
        collector_env_num: int | None = None,
        evaluator_env_num: int | None = None,
        *,
        n_iter_save_ckpt: int = 1000,
        n_iter_log_show: int | None = None,
        context: str | None = None,
        reward_model: None = None,
        debug: bool = False,
        wandb_sweep: bool = False,
    ) -> TrainingReturn:
        """Train until the stop value is reached, for `step` env steps at most.

        A further call begins a new run with the weights, in a folder of its own.

        Args:
            step: the number of env steps.
            collector_env_num, evaluator_env_num: by default those of the config.
            n_iter_save_ckpt: iterations between two checkpoints.
            n_iter_log_show: iterations between two reports in the log; None for that of the config.
            context: the start method of env processes; None steps all envs in this process.
            reward_model, wandb_sweep: not supported.
            debug: whether to ignore `context`.

        Returns:
            The result; its URL is empty, as the logger `wandb` of the config prints the URL.
        """
        _refuse(reward_model=reward_model, wandb_sweep=wandb_sweep)
        pair = self._pair(context, debug, collector_env_num=collector_env_num, evaluator_env_num=evaluator_env_num)
        hook: dict[str, Any] = {"save_ckpt_after_iter": n_iter_save_ckpt, "log_show_after_iter": n_iter_log_show}
        hook["load_ckpt_before_run"] = None if self._checkpoint is None else os.fspath(self._checkpoint)
        for key, value in hook.items():
            if value is not None:
                put(pair[0], f"policy.learn.learner.hook.{key}", value)
        setting = self._env_setting(pair[0].env)
        run = type(self)._pipeline(pair, seed=self.seed, env_setting=setting, model=self._model, max_env_step=step)
        self.exp_name = run.cfg.exp_name
        self._checkpoint = RunFolder(self.exp_name).checkpoint(str(run.learner.train_iter))
        return TrainingReturn(wandb_url="")

    @property
    def best(self) -> Agent:
        """This agent, with the weights of the best evaluation of the training in `exp_name`.

        Raises:
            FileNotFoundError: the folder contains no training.
        """
        self._checkpoint = RunFolder(self.exp_name).checkpoint()
        return self

    def deploy(
        self,
        enable_save_replay: bool = False,
        concatenate_all_replay: bool = False,
        replay_save_path: str | os.PathLike[str] | None = None,
        seed: int | Sequence[int] | None = None,
        debug: bool = False,
    ) -> EvalReturn:
        """Play an episode for each seed, and return the statistics of their returns.

        Args:
            enable_save_replay: whether to record videos of the episodes.
            concatenate_all_replay: not supported.
            replay_save_path: the folder of the videos `episode_<seed>.mp4`; by default `videos` in `exp_name`.
            seed: one seed or several; by default that of the agent.
            debug: it has no effect, as the env runs in this process.

        Raises:
            RuntimeError: there are no weights yet.
            ImportError: a package for rendering or encoding is not installed.
        """
        _refuse(concatenate_all_replay=concatenate_all_replay)
        seeds: list[int] = np.atleast_1d(self.seed if seed is None else seed).tolist()
        folder = os.fspath(replay_save_path or os.path.join(self.exp_name, "videos"))
        videos = [os.path.join(folder, f"episode_{one}.mp4") if enable_save_replay else None for one in seeds]
        pair = self._pair(None, debug, evaluator_env_num=1, n_evaluator_episode=1)
        episodes = [self._evaluate(pair, one, video) for one, video in zip(seeds, videos, strict=True)]
        return _summary(np.concatenate(episodes))

    def batch_evaluate(
        self, env_num: int = 4, n_evaluator_episode: int = 4, context: str | None = None, debug: bool = False
    ) -> EvalReturn:
        """Play `n_evaluator_episode` episodes in at most `env_num` envs; see `train` for the other arguments.

        Raises:
            RuntimeError: there are no weights yet.
        """
        env_num = min(env_num, n_evaluator_episode)
        pair = self._pair(context, debug, evaluator_env_num=env_num, n_evaluator_episode=n_evaluator_episode)
        return _summary(self._evaluate(pair, self.seed))

    def collect_data(
        self,
        env_num: int = 8,
        save_data_path: str | os.PathLike[str] | None = None,
        n_sample: int | None = None,
        n_episode: int | None = None,
        context: str | None = None,
        debug: bool = False,
    ) -> None:
        """Save samples or whole episodes; see `collect_demo_data` and `collect_episodic_demo_data`.

        Args:
            save_data_path: the file; by default `demo_data` in `exp_name`.
            n_sample: the number of samples; by default that of the config.
            n_episode: the number of episodes, instead of samples.

        Raises:
            RuntimeError: there are no weights yet.
            ValueError: the amount is given twice or not at all.
        """
        if n_sample is None and n_episode is None:
            n_sample = self.cfg.policy.get("collect", {}).get("n_sample")
        if (n_sample is None) == (n_episode is None):
            raise ValueError(f"give one of n_sample = {n_sample} and n_episode = {n_episode}")
        weights = self._weights()
        main, create = self._pair(context, debug, collector_env_num=min(env_num, n_sample or n_episode or 1))
        path = os.fspath(save_data_path or os.path.join(self.exp_name, "demo_data"))
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        collect, count = (collect_demo_data, n_sample) if n_episode is None else (collect_episodic_demo_data, n_episode)
        with tempfile.TemporaryDirectory() as main.exp_name:
            setting = self._env_setting(main.env)
            pair = main, create
            collect(pair, self.seed, count, path, setting, self._model, state_dict_path=weights)  # type: ignore[arg-type]

    def _config(self, env_id: str | None, env: Any, cfg: Mapping[str, Any] | None) -> EasyDict:
        """Return the main config, which is complete except for what follows from the spaces of the env."""
        if cfg is None and env_id not in self._examples:
            raise ConfigError(
                f"{type(self).__name__} has no config for env_id = {env_id!r}; it has some for "
                f"{', '.join(self.supported_env_list)}. For another env pass cfg, with the sections env and policy, "
                "and env if gymnasium does not make it"
            )
        main = self._sections(EasyDict(copy.deepcopy(self._examples[str(env_id)] if cfg is None else cfg)))
        main.pop("seed", None)  # the argument counts
        env_section = main.setdefault("env", EasyDict())
        ids = {_SUCCESSORS.get(name, name) for name in (env_id, env_section.get("env_id")) if name is not None}
        if len(ids) > 1:
            raise ConfigError(
                f"env_id = {env_id!r}, but cfg.env.env_id = {env_section.env_id!r}: leave one of them out"
            )
        if ids:
            env_section.env_id = ids.pop()
        env_section.setdefault("collector_env_num", _ENV_NUM)
        env_section.setdefault("evaluator_env_num", _ENV_NUM)
        env_section.setdefault("n_evaluator_episode", env_section.evaluator_env_num)
        return main

    @staticmethod
    def _sections(cfg: EasyDict) -> EasyDict:
        """Return a config with the sections `env` and `policy`; `cfg` may be changed."""
        return cfg

    def _pair(self, context: str | None, debug: bool, **env: int | None) -> tuple[EasyDict, EasyDict]:
        """Return the configs of a run with the numbers of envs and episodes in `env` that are not None."""
        main = copy.deepcopy(self.cfg)
        main.env.update({key: number for key, number in env.items() if number is not None})
        create = EasyDict(
            env={"type": "gymnasium"},
            env_manager={"type": "base"},
            policy={"type": self._policy_type},
            replay_buffer={"type": "advanced"},
        )
        if context is not None and not debug:
            create.env_manager.type = "subprocess"
            put(main, "env.manager.context", context)
        if self._env is not None:
            del create.env
        return main, create

    def _env_setting(self, env_cfg: EasyDict) -> list[Any] | None:
        if self._env is None:
            return None
        collecting, evaluating = copy.deepcopy(env_cfg), copy.deepcopy(env_cfg)
        return [
            partial(_clone, self._env),
            DingEnvWrapper.create_collector_env_cfg(collecting),
            DingEnvWrapper.create_evaluator_env_cfg(evaluating),
        ]

    def _weights(self) -> Any:
        if self._checkpoint is None and self._model is None:
            raise RuntimeError(
                f"{type(self).__name__} has no weights yet: call train(), read best to load earlier "
                "ones, or pass policy_state_dict or model"
            )
        return self._checkpoint

    def _evaluate(self, pair: tuple[EasyDict, EasyDict], seed: int, video: str | None = None) -> list[float]:
        """Return the returns of the episodes; with `video`, play only one, and record it in that file."""
        pair = copy.deepcopy(pair)
        setting, path = self._env_setting(pair[0].env), self._weights()
        if video is None:
            episodes = evaluate_pair(pair, seed, env_setting=setting, model=self._model, load_path=path)
        else:
            _, episodes = save_videos(pair, video, 1, seed, env_setting=setting, model=self._model, load_path=path)
        return list(episodes.returns)


def _clone(env: Any, cfg: Mapping[str, Any]) -> Any:
    return env.clone("collector" if cfg["is_train"] else "evaluator")


def _refuse(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value:
            raise ValueError(f"{name} = {value!r} is not supported: leave it out")


def _summary(returns: Any) -> EvalReturn:
    return EvalReturn(np.float32(np.mean(returns)), np.float32(np.std(returns)))


class DQNAgent(Agent):
    """The agent for DQN, with discrete actions; see `Agent`."""

    supported_env_list = list(dqn_examples)
    _policy_type = "dqn"
    _examples = dqn_examples
    _pipeline = staticmethod(run_serial)


class TD3Agent(Agent):
    """TD3 for real-valued actions; see `Agent`."""

    supported_env_list = list(td3_examples)
    _policy_type = "td3"
    _examples = td3_examples
    _pipeline = staticmethod(run_serial)


class PPOF(Agent):
    """The agent for PPO, with discrete or real-valued actions; see `Agent`.

    `cfg` may also be flat, as for DI-engine's PPOF: `dict(env_id="LunarLander-v2", n_sample=400, learning_rate=1e-3)`.
    Any `value_norm` other than None and False then stands for True.

    Raises:
        ConfigError: a flat `cfg` has an unknown key.
    """

    supported_env_list = list(ppo_examples)
    _policy_type = "ppo"
    _examples = ppo_examples
    _pipeline = staticmethod(run_serial_onpolicy)

    @staticmethod
    def _sections(cfg: EasyDict) -> EasyDict:
        if "env" in cfg or "policy" in cfg:
            return cfg
        main = EasyDict(policy={})
        for key, value in cfg.items():
            if key not in _FLAT:
                raise ConfigError(
                    f"PPOF: cfg has the unknown key {key!r}; cfg may also have the sections env and policy"
                )
            put(main, _FLAT[key], bool(value) if key == "value_norm" else value)
        return main
