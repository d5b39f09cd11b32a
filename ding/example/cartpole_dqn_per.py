"""DQN with prioritized replay on CartPole-v1 through the serial pipeline.

Run it with `python -m ding.example.cartpole_dqn_per [--seed N]`, or give this file's path to `serial_pipeline`.
"""

import copy

from ding.example.cartpole_dqn import cartpole_dqn_config, cartpole_dqn_create_config
from ding.example.runner import run

cartpole_dqn_per_config = copy.deepcopy(cartpole_dqn_config)
cartpole_dqn_per_config.exp_name = "cartpole_dqn_per"
# Sample in proportion to the TD error, and correct by importance-sampling weights.
cartpole_dqn_per_config.policy.update(priority=True, priority_IS_weight=True)
cartpole_dqn_per_create_config = copy.deepcopy(cartpole_dqn_create_config)
main_config, create_config = cartpole_dqn_per_config, cartpole_dqn_per_create_config

if __name__ == "__main__":
    raise SystemExit(run(main_config, create_config))
