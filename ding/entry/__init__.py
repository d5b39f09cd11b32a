"""Training pipelines, imported on first use, so that the command `ding` starts fast."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {},
    {
        "application_entry": (
            "collect_demo_data collect_episodic_demo_data episode_to_transitions episode_to_transitions_filter eval"
        ),
        "parallel_entry": "parallel_pipeline",
        "serial_entry": "serial_pipeline serial_pipeline_onpolicy",
        "serial_entry_dqfd": "serial_pipeline_dqfd serial_pipeline_sqil",
        "serial_entry_offline": "serial_pipeline_bc serial_pipeline_offline",
        "trained": "load_policy",
        "training": "Training evaluate_run train",
        "tuning": "Tuning tune",
        "utils": "mark_not_expert mark_warm_up random_collect",
    },
)
