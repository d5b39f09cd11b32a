"""Configuration of the advanced buffer: defaults, and what is allowed."""

from __future__ import annotations

import math
from typing import Any

from ding.utils.config_helper import boolean, integer, number
from ding.worker.replay_buffer.column_buffer import STORAGE_CONFIG, STORAGE_RULES

ADVANCED_CONFIG: dict[str, Any] = {
    "type": "advanced",
    "replay_buffer_size": 4096,
    # An item leaves once it was sampled so many times, or is so many learner iterations old.
    "max_use": math.inf,
    "max_staleness": math.inf,
    # Exponents of the priorities and of the importance weights; beta reaches 1 after anneal_step samples (0: never).
    "alpha": 0.6,
    "beta": 0.4,
    "anneal_step": int(1e5),
    # Delete the file `data_id` of an item that leaves.
    "enable_track_used_data": False,
    "deepcopy": False,
    **STORAGE_CONFIG,
    "thruput_controller": {
        # Bounds on items pushed / items sampled, over a window that fades.
        "push_sample_rate_limit": {"max": math.inf, "min": 0},
        "window_seconds": 30,
        # Sampling needs so many times the batch size in the buffer.
        "sample_min_limit_ratio": 1,
    },
    "monitor": {
        "sampled_data_attr": {"average_range": 5, "print_freq": 200},
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
