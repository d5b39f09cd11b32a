"""The workers that direct the others: coordinator and commanders."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {
        "base_parallel_commander": "create_parallel_commander get_parallel_commander_cls",
        "base_serial_commander": "BaseSerialCommander",
    },
    lazy={  # of parallel training
        "coordinator": "Coordinator",
        "one_vs_one_parallel_commander": "OneVsOneCommander",
        "solo_parallel_commander": "SoloCommander",
    },
)
