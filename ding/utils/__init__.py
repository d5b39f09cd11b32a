"""Utilities of all other packages, imported on first use, since many need torch, whose import takes over a second.

`ding.utils.data` and `ding.utils.autolog` have their own exports.
"""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {},
    {
        "compression_helper": "CloudPickleWrapper get_data_compressor get_data_decompressor",
        "default_helper": (
            "LimitedSpaceContainer RunningMeanStd Scheduler SequenceType SingletonMetaclass convert_easy_dict_to_dict "
            "deep_merge_dicts deep_update default_get dicts_to_lists error_wrapper flatten_dict get_shape0 "
            "iter_mapping list_split lists_to_dicts make_key_as_identifier one_time_warning override "
            "remove_illegal_item set_pkg_seed split_data_generator squeeze"
        ),
        "fast_copy": "fastcopy",
        "file_helper": "atomic_write read_file remove_file save_file",
        "import_helper": (
            "import_module try_import_ceph try_import_link try_import_mc try_import_redis try_import_rediscluster"
        ),
        "lock_helper": "LockContext LockContextType get_file_lock get_rw_file_lock",
        "log_helper": "DistributedWriter LoggerFactory TBLoggerFactory build_logger pretty_print",
        "pytorch_ddp_dist_helper": (
            "DDPContext DistContext allreduce allreduce_async allreduce_data allreduce_with_indicator broadcast "
            "broadcast_object_list dist_finalize dist_init dist_mode get_rank get_world_size reduce_data synchronize "
            "to_ddp_config"
        ),
        "registry_factory": (
            "BUFFER_REGISTRY COMM_COLLECTOR_REGISTRY COMM_LEARNER_REGISTRY COMMANDER_REGISTRY DATASET_REGISTRY "
            "ENV_MANAGER_REGISTRY ENV_REGISTRY ENV_WRAPPER_REGISTRY LEAGUE_REGISTRY LEARNER_REGISTRY MODEL_REGISTRY "
            "MQ_REGISTRY PARALLEL_COLLECTOR_REGISTRY PLAYER_REGISTRY POLICY_REGISTRY REWARD_MODEL_REGISTRY Registry "
            "SERIAL_COLLECTOR_REGISTRY SERIAL_EVALUATOR_REGISTRY STOCHASTIC_OPTIMIZER_REGISTRY TRANSPORT_REGISTRY "
            "WORLD_MODEL_REGISTRY registries"
        ),
        "render_helper": "fps get_env_fps render render_env",
        "segment_tree": "MinSegmentTree SegmentTree SumSegmentTree",
        "system_helper": (
            "PropagatingThread exist_operator_server find_free_port get_ip get_operator_server_kwargs get_pid "
            "get_task_uid"
        ),
        "time_helper": "EasyTimer Profiler WatchDog build_time_helper register_profiler",
    },
)
