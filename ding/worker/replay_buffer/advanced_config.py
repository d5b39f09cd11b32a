"""Settings of the advanced buffer."""

from __future__ import annotations

import math

from ding.utils.config_helper import Setting, Settings, integer, number
from ding.worker.replay_buffer.column_buffer import STORAGE_SETTINGS

ADVANCED_SETTINGS = Settings(
    {
        "type": "advanced",
        "replay_buffer_size": 4096,
        "max_use": Setting(math.inf, number(1), "How often a sample may be drawn before it is removed."),
        "max_staleness": Setting(math.inf, number(0), "Age in learner iterations at which a sample is removed."),
        "alpha": Setting(0.6, number(0, 1), "Exponent of the priorities."),
        "beta": Setting(0.4, number(0, 1), "Initial exponent of the importance weights, which grows to 1."),
        "anneal_step": Setting(int(1e5), integer(0), "Number of draws until `beta` is 1; 0 keeps it constant."),
        "thruput_controller.push_sample_rate_limit.max": Setting(
            math.inf, number(0), "Upper limit of the ratio pushed / sampled."
        ),
        "thruput_controller.push_sample_rate_limit.min": Setting(
            0, number(0), "Lower limit of the ratio pushed / sampled."
        ),
        "thruput_controller.window_seconds": Setting(
            30, number(1e-3), "Time after which what was pushed or sampled counts for 1 % in the ratio."
        ),
        "thruput_controller.sample_min_limit_ratio": Setting(
            1, number(1), "Sampling a batch needs at least this many times its size in the buffer."
        ),
        "monitor.sampled_data_attr.average_range": Setting(
            5, number(1e-3), "Number of recent batches that the statistics cover."
        ),
        "monitor.sampled_data_attr.print_freq": Setting(200, integer(1), "Number of batches between two reports."),
        "monitor.periodic_thruput.seconds": Setting(60, number(1e-3), "Seconds between two throughput reports."),
    },
    STORAGE_SETTINGS,
)
