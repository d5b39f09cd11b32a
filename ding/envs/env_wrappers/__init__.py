"""Wrappers around environments, by class and, through `ENV_WRAPPER_REGISTRY`, by name."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {
        "base_wrapper": "EnvWrapper GymToGymnasiumWrapper ObservationWrapper",
        "env_wrappers": (
            "ActionRepeatWrapper AllinObsWrapper ClipRewardWrapper DelayRewardWrapper EpisodicLifeWrapper "
            "EvalEpisodeReturnEnv EvalEpisodeReturnWrapper FinalEvalRewardEnv FireResetWrapper FlatObsWrapper "
            "FrameStackWrapper GymHybridDictActionWrapper MaxAndSkipWrapper NoopResetWrapper "
            "ObsPlusPrevActRewWrapper ObsTransposeWrapper RamWrapper ScaledFloatFrameWrapper TimeLimitWrapper "
            "TransposeWrapper WarpFrameWrapper"
        ),
        "normalize_wrappers": "ObsNormWrapper RewardNormWrapper RunningMeanStd StaticObsNormWrapper",
        "wrapper_factory": "create_env_wrapper update_shape",
    },
)
