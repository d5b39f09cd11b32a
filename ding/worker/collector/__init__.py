"""Collectors and evaluators."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {
        "base_parallel_collector": "BaseParallelCollector create_parallel_collector get_parallel_collector_cls",
        "base_serial_collector": (
            "ISerialCollector create_serial_collector get_serial_collector_cls to_tensor_transitions"
        ),
        "base_serial_evaluator": "ISerialEvaluator VectorEvalMonitor create_serial_evaluator",
        "comm": "BaseCommCollector create_comm_collector",
        "episode_serial_collector": "EpisodeSerialCollector",
        "interaction_serial_evaluator": "InteractionSerialEvaluator",
        "metric_serial_evaluator": "IMetric MetricSerialEvaluator",
        "players": (
            "BattleEpisodeSerialCollector BattleInteractionSerialEvaluator BattleSampleSerialCollector "
            "Episode1v1Collector OnevOneEvaluator"
        ),
        "sample_serial_collector": "SampleSerialCollector",
    },
    lazy={  # of parallel training
        "comm.flask_fs_collector": "FlaskFileSystemCollector NaiveCollector",
        "marine_parallel_collector": "MarineParallelCollector ZerglingParallelCollector",
    },
)
