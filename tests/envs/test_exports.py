"""Names of `ding.envs` that other packages import, and what importing it loads."""

from __future__ import annotations

import importlib

import pytest

WRAPPERS = [
    "ActionRepeatWrapper", "AllinObsWrapper", "ClipRewardWrapper", "DelayRewardWrapper", "EpisodicLifeWrapper",
    "EvalEpisodeReturnWrapper", "FireResetWrapper", "FrameStackWrapper", "GymHybridDictActionWrapper",
    "MaxAndSkipWrapper", "NoopResetWrapper", "ObsNormWrapper", "ObsPlusPrevActRewWrapper", "ObsTransposeWrapper",
    "RamWrapper", "RewardNormWrapper", "RunningMeanStd", "ScaledFloatFrameWrapper", "StaticObsNormWrapper",
    "TimeLimitWrapper", "TransposeWrapper", "WarpFrameWrapper", "FlatObsWrapper", "GymToGymnasiumWrapper",
    "create_env_wrapper", "update_shape",
]  # fmt: skip
ENV = [
    "BaseEnv", "BaseEnvInfo", "BaseEnvTimestep", "DingEnvWrapper", "get_env_cls", "get_vec_env_setting",
    "create_model_env", "get_default_wrappers", "check_space_dtype", "check_array_space", "check_reset", "check_step",
    "check_different_memory", "check_obs_deepcopy", "check_all", "demonstrate_correct_procedure",
]  # fmt: skip
NAMES = {
    "ding.envs": WRAPPERS + ENV,
    "ding.envs.env_wrappers": WRAPPERS,
    "ding.envs.env_wrappers.env_wrappers": WRAPPERS,
    "ding.envs.env": ENV,
    "ding.envs.env.base_env": ["BaseEnv", "BaseEnvInfo", "BaseEnvTimestep"],
    "ding.envs.env.ding_env_wrapper": ["DingEnvWrapper"],
    "ding.envs.env.default_wrapper": ["get_default_wrappers"],
    "ding.envs.env.env_implementation_check": ["check_all", "demonstrate_correct_procedure"],
    "ding.envs.common": ["EnvElement", "EnvElementInfo", "EnvElementRunner", "div_one_hot", "save_frames_as_gif"],
    "ding.envs.common.env_element": ["EnvElement", "EnvElementInfo"],
    "ding.envs.common.env_element_runner": ["EnvElementRunner"],
    "ding.envs.gym_env": ["env"],
}


@pytest.mark.parametrize("path", NAMES)
def test_names_are_found_where_other_packages_look_for_them(path):
    module = importlib.import_module(path)
    assert [name for name in NAMES[path] if not hasattr(module, name)] == []


@pytest.mark.parametrize("path", ["ding.envs", "ding.envs.env_wrappers"])
def test_what_is_listed_is_there(path):
    module = importlib.import_module(path)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_the_two_running_statistics_are_different_classes():
    from ding.envs import RunningMeanStd
    from ding.utils import RunningMeanStd as OfUtils

    assert RunningMeanStd is not OfUtils
