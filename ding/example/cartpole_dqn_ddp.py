"""DQN on CartPole-v1 on several ranks that train replicas of one model.

Run it with `torchrun --nproc-per-node 2 -m ding.example.cartpole_dqn_ddp [--seed N]`; without torchrun it trains on one
rank. Each rank collects and trains its share of the amounts below.
"""

import copy
import os
from collections.abc import Sequence

from ding.example.cartpole_dqn import cartpole_dqn_config, cartpole_dqn_create_config
from ding.example.runner import run
from ding.utils.pytorch_ddp_dist_helper import DDPContext, to_ddp_config

cartpole_dqn_ddp_config = copy.deepcopy(cartpole_dqn_config)
cartpole_dqn_ddp_config.exp_name = "cartpole_dqn_ddp"
cartpole_dqn_ddp_config.policy.multi_gpu = True
cartpole_dqn_ddp_create_config = copy.deepcopy(cartpole_dqn_create_config)
main_config, create_config = cartpole_dqn_ddp_config, cartpole_dqn_ddp_create_config


def main(argv: Sequence[str] | None = None) -> int:
    """Train in the process group that the environment (of torchrun) describes, or alone; return the exit status."""
    is_launched = "RANK" in os.environ or "SLURM_LOCALID" in os.environ
    with DDPContext("gloo") if is_launched else DDPContext("gloo", rank=0, world_size=1):
        return run(to_ddp_config(copy.deepcopy(main_config)), create_config, argv)


if __name__ == "__main__":
    raise SystemExit(main())
