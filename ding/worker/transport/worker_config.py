"""The config keys of all workers of parallel training."""

from __future__ import annotations

from ding.utils.config_helper import NO_DEFAULT, Setting, Settings, anything, boolean, instance_of, integer, number

WORKER_SETTINGS = Settings(
    {
        "data_wait_s": Setting(1.0, number(0), "How long a request of the coordinator may wait for new data."),
        "data_timeout_s": Setting(
            600.0,
            number(0),
            "How long the worker may wait for the coordinator to accept or send data, and the coordinator for an item.",
        ),
        "close_timeout_s": Setting(30.0, number(0), "How long the end of a task may take."),
        "path_data": Setting(NO_DEFAULT, instance_of(str), "Folder of the samples."),
        "path_policy": Setting(NO_DEFAULT, instance_of(str), "Folder of the weights."),
        "host": Setting(NO_DEFAULT, instance_of(str, optional=True), "Where the worker listens."),
        "port": Setting(NO_DEFAULT, integer(0, 65535), "Port of the worker; 0 for a free one."),
        "task_import_names": Setting(NO_DEFAULT, instance_of(list, tuple), "Modules that a task may import."),
        "task_load_paths": Setting(NO_DEFAULT, instance_of(list, tuple), "Files that a task may read."),
        "trust_pickle": Setting(NO_DEFAULT, boolean, "Whether pickles, which can run code, may be read."),
        "seed": Setting(NO_DEFAULT, integer(0, optional=True), "Seed of the worker."),
        "run_token": Setting(NO_DEFAULT, anything, "The secret of the run."),
        "nice": Setting(NO_DEFAULT, integer(0, 19), "Priority of a process that `parallel_pipeline` starts."),
        "torch_threads": Setting(NO_DEFAULT, integer(1), "Threads of a process that `parallel_pipeline` starts."),
        "exp_name": Setting(NO_DEFAULT, anything, "Folder of the run."),
    }
)
WORKER_REQUIRED = ("path_data", "path_policy")
