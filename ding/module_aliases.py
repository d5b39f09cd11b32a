"""Modules of DI-engine whose contents are in other modules here: programs and configs may import them by both names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

# By package: the module here, or "" for the package itself, and the names that DI-engine has for it.
_ALIASES: Mapping[str, Mapping[str, str]] = {
    "ding": {"utils.shm_buffer": "data.shm_buffer"},
    "ding.data.buffer.middleware": {
        "": "clone_object group_sample padding priority sample_range_view staleness_check use_time_check"
    },
    "ding.bonus": {"agent": "common"},
    "ding.entry": {
        "serial_entry": "serial_entry_onpolicy",
        "serial_entry_dqfd": "serial_entry_sqil",
        "serial_entry_offline": "serial_entry_bc",
    },
    "ding.envs": {"env.ding_env_wrapper": "gym_env"},
    "ding.envs.common": {"env_element": "env_element_runner"},
    "ding.envs.env": {"ding_env_wrapper": "default_wrapper"},
    "ding.interaction": {"http_client": "base.network config"},
    "ding.interaction.base": {"": "app common threading"},
    "ding.interaction.exception": {"": "base master slave"},
    "ding.interaction.slave": {"": "action slave"},
    "ding.league": {"base_league": "one_vs_one_league", "player": "algorithm"},
    "ding.model.common": {"model_factory": "utils"},
    "ding.model.template": {"q_learning": "sqn", "qac": "qac_dist qvac", "vac": "acer mavac pg ppg"},
    "ding.policy": {
        "ddpg": "d4pg td3 td3_bc",
        "distributional": "c51 fqf iqn qrdqn rainbow",
        "dqn": "bdq dqfd",
        "pg": "a2c",
        "ppo": "ppo_offpolicy",
        "sac": "cql discrete_sac",
        "sequence_policy": "acer impala",
        "soft_q": "mdqn sql sqn",
    },
    "ding.reward_model": {"": "base_reward_model"},
    "ding.rl_utils": {
        "distributional": "beta_function",
        "ppo": "a2c ppg",
        "returns": "gae value_rescale",
        "vtrace": "acer retrace",
    },
    "ding.torch_utils": {"optimizer_helper": "nn_test_helper"},
    "ding.torch_utils.network": {
        "gtrxl": "transformer",
        "nn_module": "activation normalization scatter_connection",
        "resnet": "res_block",
    },
    "ding.utils": {
        "default_helper": "collection_helper design_helper dict_helper scheduler_helper type_helper",
        "log_helper": "log_writer_helper",
        "registry_factory": "registry",
        "system_helper": "k8s_helper slurm_helper",
        "time_helper": "profiler_helper time_helper_base time_helper_cuda",
    },
    "ding.utils.autolog": {"": "base data model time_ctl value"},
    "ding.worker.collector": {
        "marine_parallel_collector": "zergling_parallel_collector",
        "players": (
            "battle_episode_serial_collector battle_interaction_serial_evaluator battle_sample_serial_collector"
        ),
    },
    "ding.worker.collector.comm": {"flask_fs_collector": "utils"},
    "ding.worker.learner.comm": {"flask_fs_learner": "utils"},
    "ding.worker.replay_buffer": {"naive_buffer": "episode_buffer"},
    "ding.worker.coordinator": {"worker_table": "resource_manager"},
}
ALIASES = {
    f"{package}.{alias}": f"{package}.{module}".rstrip(".")
    for package, modules in _ALIASES.items()
    for module, aliases in modules.items()
    for alias in aliases.split()
}


class _OwnParent(ModuleType):
    """A module with an alias below itself, whose import would set it as its own attribute, in the place of another."""

    def __setattr__(self, name: str, value: object) -> None:
        if value is not self:
            super().__setattr__(name, value)


class AliasFinder:
    """Finder and loader of the aliases; it is asked for what no other finder has found."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of an alias, None for any other name."""
        return ModuleSpec(name, AliasFinder) if name in ALIASES else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Leave it to the import system to make a module, which the other one replaces."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Put the module that has the contents in the place of the alias."""
        target = importlib.import_module(ALIASES[module.__name__])
        if module.__name__.rpartition(".")[0] == target.__name__:
            target.__class__ = _OwnParent
        sys.modules[module.__name__] = target


def install() -> None:
    """Let the aliases be imported; a second call changes nothing."""
    if AliasFinder not in sys.meta_path:
        sys.meta_path.append(AliasFinder)
