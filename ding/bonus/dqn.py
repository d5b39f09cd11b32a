"""An agent for DQN."""

from __future__ import annotations

from ding.bonus.agent import Agent
from ding.config.example.DQN import supported_env_cfg
from ding.entry.serial_entry import run_serial


class DQNAgent(Agent):
    """The agent for DQN, with discrete actions; see `Agent`."""

    supported_env_list = list(supported_env_cfg)
    _policy_type = "dqn"
    _examples = supported_env_cfg
    _pipeline = staticmethod(run_serial)
