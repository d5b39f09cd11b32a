"""An agent for PPO."""

from __future__ import annotations

from typing import Any

from easydict import EasyDict

from ding.bonus.agent import Agent, is_discrete
from ding.config.example.PPOF import supported_env_cfg
from ding.entry.serial_entry_onpolicy import run_serial_onpolicy
from ding.envs.env.ding_env_wrapper import DingEnvWrapper
from ding.policy.ppo import PPOPolicy
from ding.utils.config_helper import ConfigError

_ENV_KEYS = (*DingEnvWrapper.config_keys, "stop_value", "collector_env_num", "evaluator_env_num", "n_evaluator_episode")
_PATHS = [path for path in PPOPolicy.settings if path.count(".") < 2]
# By the last part of the key, which is unique in the sections of PPO; `n_sample` outside of them has no effect.
_POLICY_KEYS = {path.rpartition(".")[2]: path for path in sorted(_PATHS, key=lambda path: path.count("."))}


class PPOF(Agent):
    """The agent for PPO, with discrete or real-valued actions; see `Agent`.

    `cfg` may also be flat, as for DI-engine's PPOF: `dict(env_id="LunarLander-v2", n_sample=400, learning_rate=1e-3)`.
    Any `value_norm` other than None and False then stands for True.

    Raises:
        ConfigError: a flat `cfg` has an unknown key.
    """

    supported_env_list = list(supported_env_cfg)
    _policy_type = "ppo"
    _examples = supported_env_cfg
    _pipeline = staticmethod(run_serial_onpolicy)

    @staticmethod
    def _sections(cfg: EasyDict) -> EasyDict:
        if "env" in cfg or "policy" in cfg:
            return cfg
        main = EasyDict({"env": {}, "policy": {"learn": {}, "collect": {}}})
        for key, value in cfg.items():
            _place(main, key, value)
        return main

    def _infer_from_spaces(self, env: Any) -> None:
        if "action_space" not in self.cfg.policy:
            self.cfg.policy.action_space = "discrete" if is_discrete(env.action_space) else "continuous"
        super()._infer_from_spaces(env)


def _place(main: EasyDict, key: str, value: Any) -> None:
    if key in ("exp_name", "seed"):
        main[key] = value
    elif key in _ENV_KEYS:
        main.env[key] = value
    elif key == "value_norm":
        main.policy.learn.value_norm = bool(value)
    elif key == "grad_norm":
        main.policy.learn.grad_clip_value = value
    elif key in _POLICY_KEYS:
        section, _, name = _POLICY_KEYS[key].rpartition(".")
        (main.policy[section] if section else main.policy)[name] = value
    else:
        raise ConfigError(f"PPOF: cfg has the unknown key {key!r}; cfg may also have the sections env and policy")
