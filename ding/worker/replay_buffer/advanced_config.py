"""Default configuration of the advanced buffer, and the allowed values."""

from __future__ import annotations

import math
from typing import Any

from ding.utils.config_helper import boolean, integer, number
from ding.worker.replay_buffer.column_buffer import STORAGE_CONFIG, STORAGE_RULES

ADVANCED_CONFIG: dict[str, Any] = {
    "type": "advanced",
    "replay_buffer_size": 4096,
    # An item is removed after it was sampled this often.
    "max_use": math.inf,
    # An item is removed once it is this many learner iterations old.
    "max_staleness": math.inf,
    # Exponent of the priorities.
    "alpha": 0.6,
    # Initial exponent of the importance weights, which grows to 1.
    "beta": 0.4,
    # Number of samples until beta is 1; 0 keeps it constant.
    "anneal_step": int(1e5),
    # Delete the file `data_id` of each item that is removed.
    "enable_track_used_data": False,
    "deepcopy": False,
    **STORAGE_CONFIG,
    "thruput_controller": {
        # Bounds on the ratio pushed / sampled.
        "push_sample_rate_limit": {"max": math.inf, "min": 0},
        # Time after which what was pushed or sampled counts for 1 % in the ratio.
        "window_seconds": 30,
        # Sampling a batch needs at least this many times its size in the buffer.
        "sample_min_limit_ratio": 1,
    },
    "monitor": {
        "sampled_data_attr": {
            # Number of recent batches that the statistics cover.
            "average_range": 5,
            # Number of batches between two reports.
            "print_freq": 200,
        },
        "periodic_thruput": {"seconds": 60},
    },
}

ADVANCED_RULES = {
    "replay_buffer_size": integer(1),
    "max_use": number(1),
    "max_staleness": number(0),
    "alpha": number(0, 1),
    "beta": number(0, 1),
    "anneal_step": integer(0),
    "enable_track_used_data": boolean,
    "deepcopy": boolean,
    **STORAGE_RULES,
    "thruput_controller.push_sample_rate_limit.max": number(0),
    "thruput_controller.push_sample_rate_limit.min": number(0),
    "thruput_controller.window_seconds": number(1e-3),
    "thruput_controller.sample_min_limit_ratio": number(1),
    "monitor.sampled_data_attr.average_range": number(1e-3),
    "monitor.sampled_data_attr.print_freq": integer(1),
    "monitor.periodic_thruput.seconds": number(1e-3),
}
