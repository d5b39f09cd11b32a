"""All env wrappers, under the module path that configs and other packages use."""

from ding.envs.env_wrappers.action_wrappers import (
    ActionRepeatWrapper,
    GymHybridDictActionWrapper,
    MaxAndSkipWrapper,
)
from ding.envs.env_wrappers.base_wrapper import EnvWrapper, GymToGymnasiumWrapper, ObservationWrapper
from ding.envs.env_wrappers.dict_wrappers import AllinObsWrapper, FlatObsWrapper, ObsPlusPrevActRewWrapper
from ding.envs.env_wrappers.episode_wrappers import (
    EpisodicLifeWrapper,
    FireResetWrapper,
    NoopResetWrapper,
    TimeLimitWrapper,
)
from ding.envs.env_wrappers.frame_wrappers import (
    FrameStackWrapper,
    ObsTransposeWrapper,
    RamWrapper,
    ScaledFloatFrameWrapper,
    TransposeWrapper,
    WarpFrameWrapper,
)
from ding.envs.env_wrappers.normalize_wrappers import (
    ObsNormWrapper,
    RewardNormWrapper,
    RunningMeanStd,
    StaticObsNormWrapper,
)
from ding.envs.env_wrappers.reward_wrappers import (
    ClipRewardWrapper,
    DelayRewardWrapper,
    EvalEpisodeReturnEnv,
    EvalEpisodeReturnWrapper,
    FinalEvalRewardEnv,
)
from ding.envs.env_wrappers.wrapper_factory import create_env_wrapper, update_shape

__all__ = [
    "ActionRepeatWrapper", "AllinObsWrapper", "ClipRewardWrapper", "DelayRewardWrapper", "EnvWrapper",
    "EpisodicLifeWrapper", "EvalEpisodeReturnEnv", "EvalEpisodeReturnWrapper", "FinalEvalRewardEnv", "FireResetWrapper",
    "FlatObsWrapper", "FrameStackWrapper",
    "GymHybridDictActionWrapper", "GymToGymnasiumWrapper", "MaxAndSkipWrapper", "NoopResetWrapper", "ObsNormWrapper",
    "ObsPlusPrevActRewWrapper", "ObsTransposeWrapper", "ObservationWrapper", "RamWrapper", "RewardNormWrapper",
    "RunningMeanStd", "ScaledFloatFrameWrapper", "StaticObsNormWrapper", "TimeLimitWrapper", "TransposeWrapper",
    "WarpFrameWrapper", "create_env_wrapper", "update_shape",
]  # fmt: skip
