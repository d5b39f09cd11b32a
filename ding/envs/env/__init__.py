"""The environment interface and the environments that come with the package."""

from ding.utils.import_helper import exports

__all__, __getattr__ = exports(
    __name__,
    {
        "base_env": (
            "BaseEnv BaseEnvInfo BaseEnvTimestep EnvOutputError create_model_env get_env_cls get_vec_env_setting"
        ),
        "demo_env": "DemoEnv",
        "ding_env_wrapper": "DingEnvWrapper get_default_wrappers",
        "env_implementation_check": (
            "check_all check_array_space check_different_memory check_obs_deepcopy check_reset check_space_dtype "
            "check_step demonstrate_correct_procedure"
        ),
        "gymnasium_env": "GymnasiumEnv",
        "pettingzoo_env": "PettingZooEnv",
    },
)
