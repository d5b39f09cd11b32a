"""Training pipelines, imported on first use, so that the command `ding` starts fast."""

from typing import TYPE_CHECKING

from ding.utils.import_helper import lazy_names

if TYPE_CHECKING:
    from ding.entry.application_entry import (
        collect_demo_data,
        collect_episodic_demo_data,
        episode_to_transitions,
        episode_to_transitions_filter,
        eval,
    )
    from ding.entry.parallel_entry import parallel_pipeline
    from ding.entry.serial_entry import serial_pipeline, serial_pipeline_onpolicy
    from ding.entry.serial_entry_dqfd import serial_pipeline_dqfd, serial_pipeline_sqil
    from ding.entry.serial_entry_offline import serial_pipeline_bc, serial_pipeline_offline
    from ding.entry.trained import evaluate_run, load_policy
    from ding.entry.training import Training, train
    from ding.entry.tuning import Tuning, tune
    from ding.entry.utils import mark_not_expert, mark_warm_up, random_collect

__all__ = [
    "Training",
    "Tuning",
    "collect_demo_data",
    "collect_episodic_demo_data",
    "episode_to_transitions",
    "episode_to_transitions_filter",
    "eval",
    "evaluate_run",
    "load_policy",
    "mark_not_expert",
    "mark_warm_up",
    "parallel_pipeline",
    "random_collect",
    "serial_pipeline",
    "serial_pipeline_bc",
    "serial_pipeline_dqfd",
    "serial_pipeline_offline",
    "serial_pipeline_onpolicy",
    "serial_pipeline_sqil",
    "train",
    "tune",
]

_NAMES = {
    "application_entry": (
        "collect_demo_data collect_episodic_demo_data episode_to_transitions episode_to_transitions_filter eval"
    ),
    "parallel_entry": "parallel_pipeline",
    "serial_entry": "serial_pipeline serial_pipeline_onpolicy",
    "serial_entry_dqfd": "serial_pipeline_dqfd serial_pipeline_sqil",
    "serial_entry_offline": "serial_pipeline_bc serial_pipeline_offline",
    "trained": "evaluate_run load_policy",
    "training": "Training train",
    "tuning": "Tuning tune",
    "utils": "mark_not_expert mark_warm_up random_collect",
}

__getattr__ = lazy_names(
    __name__, {name: f"ding.entry.{module}" for module, names in _NAMES.items() for name in names.split()}
)
