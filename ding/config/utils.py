"""The runnable form of a compiled config, and the parts of a parallel one, under the path scripts import them from."""

from ding.config.parallel_test import (
    parallel_test_create_config,
    parallel_test_main_config,
    parallel_test_system_config,
)
from ding.config.platforms import (
    parallel_transform,
    parallel_transform_k8s,
    parallel_transform_slurm,
    set_collector_interaction_for_coordinator,
    set_host_port,
    set_learner_interaction_for_coordinator,
    set_system_cfg,
)
from ding.config.save import save_config_formatted

__all__ = [
    "parallel_test_create_config",
    "parallel_test_main_config",
    "parallel_test_system_config",
    "parallel_transform",
    "parallel_transform_k8s",
    "parallel_transform_slurm",
    "save_config_formatted",
    "set_collector_interaction_for_coordinator",
    "set_host_port",
    "set_learner_interaction_for_coordinator",
    "set_system_cfg",
]
