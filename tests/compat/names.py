"""Names that public programs import from this package, and how many programs import each.

Counted over 22 repositories, without the packages that this one does not have. `NAME*N` is imported by N programs, a
plain name by one; `.` is the module itself.
"""

_IMPORTS = """
ding: .*2
ding.bonus: DQNAgent PPOF TD3Agent
ding.bonus.common: EvalReturn*3 TrainingReturn*3
ding.config: Config compile_config*15 parallel_transform read_config*2 save_config_py*4
ding.config.example.DQN.gym_lunarlander_v2: cfg
ding.data: DequeBuffer
ding.data.buffer.middleware: PriorityExperienceReplay clone_object group_sample use_time_check
ding.entry: collect_demo_data parallel_pipeline serial_pipeline*5 serial_pipeline_bc serial_pipeline_onpolicy*4
  serial_pipeline_preference_based_irl
ding.entry.application_entry_trex_collect_data: trex_collecting_data
ding.envs: ActionRepeatWrapper*2 AsyncSubprocessEnvManager*4 BaseEnv*12 BaseEnvInfo*2 BaseEnvManager*13
  BaseEnvManagerV2 BaseEnvTimestep*15 ClipRewardWrapper*2 DingEnvWrapper*8 EpisodicLifeWrapper*2
  EvalEpisodeReturnEnv*2 FinalEvalRewardEnv FireResetWrapper*2 FrameStackWrapper*2 MaxAndSkipWrapper*2
  NoopResetWrapper*2 ObsPlusPrevActRewWrapper*2 ScaledFloatFrameWrapper*2 SubprocessEnvManagerV2
  SyncSubprocessEnvManager*10 TimeLimitWrapper WarpFrameWrapper*2 create_env_manager*6 get_vec_env_setting*6
ding.envs.common: EnvElement EnvElementRunner affine_transform*2 save_frames_as_gif*2
ding.envs.common.common_function: affine_transform*2
ding.envs.common.env_element: EnvElement*3 EnvElementInfo*8
ding.envs.env.base_env: BaseEnv*3 BaseEnvInfo*2 BaseEnvTimestep*6
ding.envs.env_manager.base_env_manager: BaseEnvManager*2
ding.envs.env_wrappers: EvalEpisodeReturnEnv EvalEpisodeReturnWrapper FinalEvalRewardEnv FrameStackWrapper*3
  MaxAndSkipWrapper*3 ScaledFloatFrameWrapper*3 WarpFrameWrapper*3
ding.model: ConvEncoder*4 DQN DiscreteHead*2 FCEncoder*3 QAC ReparameterizationHead*3 VAC model_wrap*6
ding.model.common: ConvEncoder*3 DiscreteHead*8 DuelingHead*5 FCEncoder*6 IMPALAConvEncoder MultiHead*8
  RegressionHead*6 ReparameterizationHead*9
ding.model.common.head: DiscreteHead*3 DuelingHead*3 MultiHead*3 RegressionHead*3 ReparameterizationHead*3
ding.model.template: QAC*3 VAC*5
ding.model.template.q_learning: DQN
ding.model.template.qac: QAC QACPixel
ding.model.template.vac: VAC
ding.policy: DDPGPolicy*5 DQNPolicy*5 PPOOffPolicy*2 PPOPGPolicy PPOPolicy*9 Policy*5 SACPolicy*4 TD3Policy*3
  create_policy*6 single_env_forward_wrapper
ding.policy.base_policy: Policy*4
ding.policy.common_utils: default_preprocess_learn*3
ding.policy.sac: SACPolicy
ding.reward_model: HerRewardModel
ding.reward_model.base_reward_model: BaseRewardModel*4
ding.reward_model.rnd_reward_model: collect_states
ding.rl_utils: create_noise_generator gae*2 gae_data*2 get_epsilon_greedy_fn*10 get_gae*2
  get_gae_with_default_last_value*2 get_nstep_return_data*3 get_train_sample*3 ppo_data*2 ppo_error*2
  ppo_error_continuous*2 ppo_policy_data*2 ppo_policy_error*2 q_nstep_td_data*2 q_nstep_td_error*2 v_1step_td_data
  v_1step_td_error v_nstep_td_data*2 v_nstep_td_error*2
ding.torch_utils: Adam*4 Flatten*2 GRUGatingUnit MLP*9 ResBlock*5 Transformer*3 build_normalization get_lstm*2
  is_differentiable*3 resnet18 to_device*9 to_dtype*3 to_item*3 to_list*7 to_ndarray*15 to_tensor*11 unsqueeze
ding.torch_utils.data_helper: to_device*2 to_dtype*3 to_list*3 to_ndarray*6 to_tensor*6
ding.torch_utils.network: GRUGatingUnit*3
ding.torch_utils.network.gtrxl: AttentionXL Memory PositionalEmbedding
ding.torch_utils.network.nn_module: fc_block
ding.torch_utils.network.normalization: build_normalization*3
ding.torch_utils.network.rnn: is_sequence
ding.utils: BUFFER_REGISTRY*3 DDPContext*2 DistContext ENV_REGISTRY*12 ENV_WRAPPER_REGISTRY*3 EasyTimer*7
  LEARNER_REGISTRY MODEL_REGISTRY*5 POLICY_REGISTRY*8 REWARD_MODEL_REGISTRY*4 RunningMeanStd*5
  SERIAL_COLLECTOR_REGISTRY*4 SERIAL_EVALUATOR_REGISTRY*5 SequenceType*8 allreduce_data*3 broadcast_object_list*3
  build_logger*7 deep_merge_dicts*7 dicts_to_lists*2 dist_init get_rank*5 get_world_size*4 import_module*2
  list_split*2 lists_to_dicts*3 one_time_warning save_file set_pkg_seed*14 split_data_generator*2 squeeze*5
ding.utils.compression_helper: jpeg_data_compressor*2 jpeg_data_decompressor*3
ding.utils.data: create_dataset default_collate*9 default_decollate*6 offline_data_save_type
ding.utils.data.collate_fn: default_collate*2 default_decollate*2
ding.utils.default_helper: deep_merge_dicts*7
ding.utils.registry: Registry*2
ding.utils.registry_factory: ENV_REGISTRY*2
ding.utils.system_helper: find_free_port*3
ding.worker: AdvancedReplayBuffer*6 BaseLearner*17 BattleInteractionSerialEvaluator*2 BattleSampleSerialCollector*3
  Episode1v1Collector EpisodeReplayBuffer*2 EpisodeSerialCollector*3 IMetric ISerialEvaluator*2
  InteractionSerialEvaluator*8 LearnerHook MetricSerialEvaluator NaiveReplayBuffer*9 OnevOneEvaluator
  SampleSerialCollector*10 VectorEvalMonitor*2 create_buffer*4 create_serial_collector*2
ding.worker.collector.base_serial_collector: CachePool*4 INF*4 ISerialCollector*4 TrajBuffer*4 to_tensor_transitions*4
ding.worker.collector.base_serial_evaluator: ISerialEvaluator*3 VectorEvalMonitor*3
"""

# What this package does not have: preferences from ranked trajectories, hindsight relabelling, random network
# distillation.
NOT_HERE = {
    ("ding.entry", "serial_pipeline_preference_based_irl"),
    ("ding.entry.application_entry_trex_collect_data", "trex_collecting_data"),
    ("ding.reward_model", "HerRewardModel"),
    ("ding.reward_model.rnd_reward_model", "collect_states"),
}


def imported_names() -> dict[tuple[str, str], int]:
    """Returns the number of programs by (module, name); the name is empty for the module itself."""
    counts: dict[tuple[str, str], int] = {}
    module = ""
    for word in _IMPORTS.split():
        if word.endswith(":"):
            module = word[:-1]
            continue
        name, _, number = word.partition("*")
        counts[module, "" if name == "." else name] = int(number or 1)
    return counts
