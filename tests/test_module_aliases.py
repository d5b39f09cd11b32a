"""Modules of DI-engine whose contents are elsewhere here."""

import importlib
import subprocess
import sys

import pytest

from ding.module_aliases import ALIASES

# What programs import from these modules.
CONTENTS = {
    "ding.bonus.common": "TrainingReturn EvalReturn",
    "ding.data.buffer.middleware.clone_object": "clone_object",
    "ding.data.buffer.middleware.group_sample": "group_sample",
    "ding.data.buffer.middleware.padding": "padding",
    "ding.data.buffer.middleware.priority": "PriorityExperienceReplay",
    "ding.data.buffer.middleware.sample_range_view": "sample_range_view",
    "ding.data.buffer.middleware.staleness_check": "staleness_check",
    "ding.data.buffer.middleware.use_time_check": "use_time_check",
    "ding.data.shm_buffer": "ShmBuffer ShmBufferContainer",
    "ding.entry.serial_entry_bc": "serial_pipeline_bc",
    "ding.entry.serial_entry_onpolicy": "serial_pipeline_onpolicy",
    "ding.entry.serial_entry_sqil": "serial_pipeline_sqil",
    "ding.envs.common.env_element_runner": "EnvElementRunner",
    "ding.envs.gym_env": "env",
    "ding.envs.env.default_wrapper": "get_default_wrappers",
    "ding.interaction.base.app": "CommonErrorCode ResponsibleException failure_response success_response",
    "ding.interaction.base.common": "ControllableContext ControllableService random_token",
    "ding.interaction.base.network": "HttpEngine get_host_ip get_http_engine_class split_http_address",
    "ding.interaction.base.threading": "DblEvent",
    "ding.interaction.config": "DEFAULT_MASTER_PORT DEFAULT_SLAVE_PORT",
    "ding.interaction.exception.base": "ResponseException TaskFail",
    "ding.interaction.exception.master": "MasterErrorCode get_master_exception_class_by_error_code",
    "ding.interaction.exception.slave": "SlaveErrorCode get_slave_exception_class_by_error_code",
    "ding.interaction.slave.action": "DisconnectionRefuse",
    "ding.interaction.slave.slave": "Slave",
    "ding.league.algorithm": "pfsp uniform",
    "ding.league.one_vs_one_league": "OneVsOneLeague",
    "ding.model.common.utils": "create_model",
    "ding.model.template.acer": "ACER",
    "ding.model.template.mavac": "MAVAC",
    "ding.model.template.pg": "PG",
    "ding.model.template.ppg": "PPG",
    "ding.model.template.qac_dist": "QACDIST",
    "ding.model.template.qvac": "ContinuousQVAC",
    "ding.model.template.sqn": "SQN",
    "ding.policy.a2c": "A2CPolicy",
    "ding.policy.acer": "ACERPolicy",
    "ding.policy.bdq": "BDQPolicy",
    "ding.policy.c51": "C51Policy",
    "ding.policy.cql": "CQLPolicy",
    "ding.policy.d4pg": "D4PGPolicy",
    "ding.policy.discrete_sac": "DiscreteSACPolicy",
    "ding.policy.dqfd": "DQFDPolicy",
    "ding.policy.fqf": "FQFPolicy",
    "ding.policy.impala": "IMPALAPolicy",
    "ding.policy.iqn": "IQNPolicy",
    "ding.policy.mdqn": "MDQNPolicy",
    "ding.policy.ppo_offpolicy": "PPOOffPolicy",
    "ding.policy.qrdqn": "QRDQNPolicy",
    "ding.policy.rainbow": "RainbowDQNPolicy",
    "ding.policy.sql": "SQLPolicy",
    "ding.policy.sqn": "SQNPolicy",
    "ding.policy.td3": "TD3Policy",
    "ding.policy.td3_bc": "TD3BCPolicy",
    "ding.reward_model.base_reward_model": "BaseRewardModel",
    "ding.rl_utils.a2c": "a2c_data a2c_error",
    "ding.rl_utils.acer": "acer_policy_error acer_trust_region_update acer_value_error",
    "ding.rl_utils.beta_function": "beta_function_map",
    "ding.rl_utils.gae": "gae gae_data",
    "ding.rl_utils.ppg": "ppg_data ppg_joint_error",
    "ding.rl_utils.retrace": "compute_q_retraces",
    "ding.rl_utils.value_rescale": "value_inv_transform value_transform",
    "ding.torch_utils.network.activation": "build_activation",
    "ding.torch_utils.network.normalization": "build_normalization",
    "ding.torch_utils.nn_test_helper": "is_differentiable",
    "ding.torch_utils.network.res_block": "ResBlock ResFCBlock",
    "ding.torch_utils.network.scatter_connection": "ScatterConnection",
    "ding.torch_utils.network.transformer": "Transformer",
    "ding.utils.autolog.base": "RangedData TimeRangedData",
    "ding.utils.autolog.data": "TimeRangedData",
    "ding.utils.autolog.model": "LoggedModel TimeMode",
    "ding.utils.autolog.time_ctl": "BaseTime NaturalTime TickTime TimeProxy",
    "ding.utils.autolog.value": "LoggedValue",
    "ding.utils.collection_helper": "iter_mapping",
    "ding.utils.design_helper": "SingletonMetaclass",
    "ding.utils.dict_helper": "convert_easy_dict_to_dict",
    "ding.utils.k8s_helper": "exist_operator_server get_operator_server_kwargs",
    "ding.utils.log_writer_helper": "DistributedWriter",
    "ding.utils.profiler_helper": "Profiler register_profiler",
    "ding.utils.registry": "Registry",
    "ding.utils.scheduler_helper": "Scheduler",
    "ding.utils.slurm_helper": "get_ip",
    "ding.utils.time_helper_base": "TimeWrapper",
    "ding.utils.time_helper_cuda": "TimeWrapperCuda",
    "ding.utils.type_helper": "SequenceType",
    "ding.worker.collector.battle_episode_serial_collector": "BattleEpisodeSerialCollector",
    "ding.worker.collector.battle_interaction_serial_evaluator": "BattleInteractionSerialEvaluator",
    "ding.worker.collector.battle_sample_serial_collector": "BattleSampleSerialCollector",
    "ding.worker.collector.comm.utils": "NaiveCollector",
    "ding.worker.collector.zergling_parallel_collector": "ZerglingParallelCollector",
    "ding.worker.coordinator.resource_manager": "NaiveResourceManager",
    "ding.worker.learner.comm.utils": "NaiveLearner",
    "ding.worker.replay_buffer.episode_buffer": "EpisodeReplayBuffer",
}


def test_each_alias_has_an_entry_here():
    assert sorted(CONTENTS) == sorted(ALIASES)


@pytest.mark.guarantees("interfaces")
@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_an_alias_is_the_module_itself_with_what_programs_import_from_it(alias):
    module = importlib.import_module(alias)
    assert module is importlib.import_module(ALIASES[alias])
    assert module.__name__ == module.__spec__.name == ALIASES[alias]
    assert [name for name in CONTENTS[alias].split() if not hasattr(module, name)] == []


def test_an_alias_below_a_module_replaces_no_function_of_its_name():
    from ding.data.buffer.middleware import padding
    from ding.data.buffer.middleware.padding import padding as same

    assert padding is same and padding.__name__ == "padding"


def test_an_alias_can_be_the_first_thing_that_is_imported():
    code = (
        "from ding.policy.td3 import TD3Policy; import ding.utils.k8s_helper as k; "
        "print(TD3Policy.__module__, k.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["ding.policy.ddpg", "ding.utils.system_helper"]


def test_other_modules_are_still_missed():
    with pytest.raises(ModuleNotFoundError, match="No module named 'ding.utils.no_helper'"):
        importlib.import_module("ding.utils.no_helper")
