"""The config keys of all workers of parallel training."""

from __future__ import annotations

from typing import Any

from ding.utils.config_helper import Rule, anything, boolean, instance_of, integer, number

WORKER_RULES: dict[str, Rule] = {
    "path_data": instance_of(str),
    "path_policy": instance_of(str),
    "host": instance_of(str, optional=True),
    "port": integer(0, 65535),
    "task_import_names": instance_of(list, tuple),
    "task_load_paths": instance_of(list, tuple),
    "trust_pickle": boolean,
    "seed": integer(0, optional=True),
    "run_token": anything,
    "data_wait_s": number(0),
    "data_timeout_s": number(0),
    "close_timeout_s": number(0),
    # Priority and threads of a process that `parallel_pipeline` starts.
    "nice": integer(0, 19),
    "torch_threads": integer(1),
    "exp_name": anything,
}
WORKER_DEFAULTS: dict[str, Any] = {
    # How long a request of the coordinator may wait for new data.
    "data_wait_s": 1.0,
    # How long the worker may wait for the coordinator to accept or send data, and the coordinator for one item.
    "data_timeout_s": 600.0,
    # How long the end of a task may take.
    "close_timeout_s": 30.0,
}
WORKER_REQUIRED = ("path_data", "path_policy")
