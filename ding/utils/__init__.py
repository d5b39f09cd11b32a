"""Utilities of all other packages, imported on first use, since many need torch, whose import takes over a second.

`ding.utils.data` and `ding.utils.autolog` have their own exports.
"""

from typing import TYPE_CHECKING

from ding.utils.import_helper import lazy_names

if TYPE_CHECKING:
    from ding.utils.compression_helper import CloudPickleWrapper, get_data_compressor, get_data_decompressor
    from ding.utils.default_helper import (
        LimitedSpaceContainer,
        RunningMeanStd,
        SequenceType,
        SingletonMetaclass,
        convert_easy_dict_to_dict,
        deep_merge_dicts,
        deep_update,
        default_get,
        dicts_to_lists,
        error_wrapper,
        flatten_dict,
        get_shape0,
        iter_mapping,
        list_split,
        lists_to_dicts,
        make_key_as_identifier,
        one_time_warning,
        override,
        remove_illegal_item,
        set_pkg_seed,
        split_data_generator,
        squeeze,
    )
    from ding.utils.fast_copy import fastcopy
    from ding.utils.file_helper import atomic_write, read_file, remove_file, save_file
    from ding.utils.import_helper import (
        import_module,
        try_import_ceph,
        try_import_link,
        try_import_mc,
        try_import_redis,
        try_import_rediscluster,
    )
    from ding.utils.k8s_helper import exist_operator_server, get_operator_server_kwargs
    from ding.utils.lock_helper import LockContext, LockContextType, get_file_lock, get_rw_file_lock
    from ding.utils.log_helper import LoggerFactory, TBLoggerFactory, build_logger, pretty_print
    from ding.utils.log_writer_helper import DistributedWriter
    from ding.utils.profiler_helper import Profiler, register_profiler
    from ding.utils.pytorch_ddp_dist_helper import (
        DDPContext,
        DistContext,
        allreduce,
        allreduce_async,
        allreduce_data,
        allreduce_with_indicator,
        broadcast,
        broadcast_object_list,
        dist_finalize,
        dist_init,
        dist_mode,
        get_rank,
        get_world_size,
        reduce_data,
        synchronize,
        to_ddp_config,
    )
    from ding.utils.registry import Registry
    from ding.utils.registry_factory import (
        BUFFER_REGISTRY,
        COMM_COLLECTOR_REGISTRY,
        COMM_LEARNER_REGISTRY,
        COMMANDER_REGISTRY,
        DATASET_REGISTRY,
        ENV_MANAGER_REGISTRY,
        ENV_REGISTRY,
        ENV_WRAPPER_REGISTRY,
        LEAGUE_REGISTRY,
        LEARNER_REGISTRY,
        MODEL_REGISTRY,
        MQ_REGISTRY,
        PARALLEL_COLLECTOR_REGISTRY,
        PLAYER_REGISTRY,
        POLICY_REGISTRY,
        REWARD_MODEL_REGISTRY,
        SERIAL_COLLECTOR_REGISTRY,
        SERIAL_EVALUATOR_REGISTRY,
        STOCHASTIC_OPTIMIZER_REGISTRY,
        TRANSPORT_REGISTRY,
        WORLD_MODEL_REGISTRY,
        registries,
    )
    from ding.utils.render_helper import fps, get_env_fps, render, render_env
    from ding.utils.scheduler_helper import Scheduler
    from ding.utils.segment_tree import MinSegmentTree, SegmentTree, SumSegmentTree
    from ding.utils.system_helper import PropagatingThread, find_free_port, get_ip, get_pid, get_task_uid
    from ding.utils.time_helper import EasyTimer, WatchDog, build_time_helper

__all__ = [
    "BUFFER_REGISTRY",
    "COMMANDER_REGISTRY",
    "COMM_COLLECTOR_REGISTRY",
    "COMM_LEARNER_REGISTRY",
    "CloudPickleWrapper",
    "DATASET_REGISTRY",
    "DDPContext",
    "DistContext",
    "DistributedWriter",
    "ENV_MANAGER_REGISTRY",
    "ENV_REGISTRY",
    "ENV_WRAPPER_REGISTRY",
    "EasyTimer",
    "LEAGUE_REGISTRY",
    "LEARNER_REGISTRY",
    "LimitedSpaceContainer",
    "LockContext",
    "LockContextType",
    "LoggerFactory",
    "MODEL_REGISTRY",
    "MQ_REGISTRY",
    "MinSegmentTree",
    "PARALLEL_COLLECTOR_REGISTRY",
    "PLAYER_REGISTRY",
    "POLICY_REGISTRY",
    "Profiler",
    "PropagatingThread",
    "REWARD_MODEL_REGISTRY",
    "Registry",
    "RunningMeanStd",
    "SERIAL_COLLECTOR_REGISTRY",
    "SERIAL_EVALUATOR_REGISTRY",
    "STOCHASTIC_OPTIMIZER_REGISTRY",
    "Scheduler",
    "SegmentTree",
    "SequenceType",
    "SingletonMetaclass",
    "SumSegmentTree",
    "TBLoggerFactory",
    "TRANSPORT_REGISTRY",
    "WORLD_MODEL_REGISTRY",
    "WatchDog",
    "allreduce",
    "allreduce_async",
    "allreduce_data",
    "allreduce_with_indicator",
    "atomic_write",
    "broadcast",
    "broadcast_object_list",
    "build_logger",
    "build_time_helper",
    "convert_easy_dict_to_dict",
    "deep_merge_dicts",
    "deep_update",
    "default_get",
    "dicts_to_lists",
    "dist_finalize",
    "dist_init",
    "dist_mode",
    "error_wrapper",
    "exist_operator_server",
    "fastcopy",
    "find_free_port",
    "flatten_dict",
    "fps",
    "get_data_compressor",
    "get_data_decompressor",
    "get_env_fps",
    "get_file_lock",
    "get_ip",
    "get_operator_server_kwargs",
    "get_pid",
    "get_rank",
    "get_rw_file_lock",
    "get_shape0",
    "get_task_uid",
    "get_world_size",
    "import_module",
    "iter_mapping",
    "list_split",
    "lists_to_dicts",
    "make_key_as_identifier",
    "one_time_warning",
    "override",
    "pretty_print",
    "read_file",
    "reduce_data",
    "register_profiler",
    "registries",
    "remove_file",
    "remove_illegal_item",
    "render",
    "render_env",
    "save_file",
    "set_pkg_seed",
    "split_data_generator",
    "squeeze",
    "synchronize",
    "to_ddp_config",
    "try_import_ceph",
    "try_import_link",
    "try_import_mc",
    "try_import_redis",
    "try_import_rediscluster",
]

_NAMES = {
    "compression_helper": "CloudPickleWrapper get_data_compressor get_data_decompressor",
    "default_helper": (
        "LimitedSpaceContainer RunningMeanStd SequenceType SingletonMetaclass convert_easy_dict_to_dict "
        "deep_merge_dicts deep_update default_get dicts_to_lists error_wrapper flatten_dict get_shape0 "
        "iter_mapping list_split lists_to_dicts make_key_as_identifier one_time_warning override "
        "remove_illegal_item set_pkg_seed split_data_generator squeeze"
    ),
    "fast_copy": "fastcopy",
    "file_helper": "atomic_write read_file remove_file save_file",
    "import_helper": (
        "import_module try_import_ceph try_import_link try_import_mc try_import_redis try_import_rediscluster"
    ),
    "k8s_helper": "exist_operator_server get_operator_server_kwargs",
    "lock_helper": "LockContext LockContextType get_file_lock get_rw_file_lock",
    "log_helper": "LoggerFactory TBLoggerFactory build_logger pretty_print",
    "log_writer_helper": "DistributedWriter",
    "profiler_helper": "Profiler register_profiler",
    "pytorch_ddp_dist_helper": (
        "DDPContext DistContext allreduce allreduce_async allreduce_data allreduce_with_indicator broadcast "
        "broadcast_object_list dist_finalize dist_init dist_mode get_rank get_world_size reduce_data synchronize "
        "to_ddp_config"
    ),
    "registry": "Registry",
    "registry_factory": (
        "BUFFER_REGISTRY COMM_COLLECTOR_REGISTRY COMM_LEARNER_REGISTRY COMMANDER_REGISTRY DATASET_REGISTRY "
        "ENV_MANAGER_REGISTRY ENV_REGISTRY ENV_WRAPPER_REGISTRY LEAGUE_REGISTRY LEARNER_REGISTRY MODEL_REGISTRY "
        "MQ_REGISTRY PARALLEL_COLLECTOR_REGISTRY PLAYER_REGISTRY POLICY_REGISTRY REWARD_MODEL_REGISTRY "
        "SERIAL_COLLECTOR_REGISTRY SERIAL_EVALUATOR_REGISTRY STOCHASTIC_OPTIMIZER_REGISTRY TRANSPORT_REGISTRY "
        "WORLD_MODEL_REGISTRY registries"
    ),
    "render_helper": "fps get_env_fps render render_env",
    "scheduler_helper": "Scheduler",
    "segment_tree": "MinSegmentTree SegmentTree SumSegmentTree",
    "system_helper": "PropagatingThread find_free_port get_ip get_pid get_task_uid",
    "time_helper": "EasyTimer WatchDog build_time_helper",
}

__getattr__ = lazy_names(
    __name__, {name: f"ding.utils.{module}" for module, names in _NAMES.items() for name in names.split()}
)
