"""An agent for TD3."""

from __future__ import annotations

from ding.bonus.agent import Agent
from ding.config.example.TD3 import supported_env_cfg
from ding.entry.serial_entry import run_serial


class TD3Agent(Agent):
    """TD3 for real-valued actions; see `Agent`."""

    supported_env_list = list(supported_env_cfg)
    _policy_type = "td3"
    _examples = supported_env_cfg
    _pipeline = staticmethod(run_serial)
