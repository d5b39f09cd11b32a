"""The env interface and the functions that read env configs."""

import importlib
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict
from gymnasium import spaces

from ding.envs import (
    BaseEnv,
    BaseEnvInfo,
    BaseEnvTimestep,
    DingEnvWrapper,
    EnvOutputError,
    GymnasiumEnv,
    create_model_env,
    get_env_cls,
    get_vec_env_setting,
)
from ding.envs.common import EnvElement, EnvElementRunner
from ding.envs.common.env_element import EnvElementInfo
from ding.envs.common.env_element_runner import EnvElementRunner as FromModule
from ding.envs.env.gymnasium_spaces import checked_observation
from ding.utils.registry_factory import ENV_REGISTRY
from tests.envs.env_manager.scripted_env import ScriptedEnv


def test_timestep_has_four_fields_in_order():
    assert BaseEnvTimestep("o", "r", True, {})._asdict() == {"obs": "o", "reward": "r", "done": True, "info": {}}


@pytest.mark.parametrize("missing", ["__init__", "reset", "close", "step", "seed", "__repr__"])
def test_an_env_that_lacks_a_method_cannot_be_made(missing):
    members = {name: lambda self, *a: None for name in ("__init__", "reset", "close", "step", "seed", "__repr__")}
    del members[missing]
    with pytest.raises(TypeError, match=missing):
        type("Partial", (BaseEnv,), members)()


def test_optional_members_of_an_env():
    class Plain(ScriptedEnv):
        enable_save_replay = BaseEnv.enable_save_replay

    env = Plain()
    assert env.random_action() is None
    with pytest.raises(NotImplementedError):
        env.enable_save_replay("./video")


@pytest.mark.differs(
    "returns one object n times from `create_collector_env_cfg` and `create_evaluator_env_cfg`",
    "returns independent copies",
)
@pytest.mark.parametrize("kind", ["collector", "evaluator"])
def test_env_configs_are_independent_copies(kind):
    cfg = EasyDict({f"{kind}_env_num": 3, "kwargs": {"a": [1]}})
    made = getattr(BaseEnv, f"create_{kind}_env_cfg")(cfg)
    assert cfg == {"kwargs": {"a": [1]}}
    assert made == [cfg] * 3
    assert all(type(entry) is EasyDict for entry in made)
    made[0].kwargs.a.append(2)
    assert made[1].kwargs.a == cfg.kwargs.a == [1]


@pytest.mark.parametrize("kind", ["collector", "evaluator"])
def test_a_missing_env_count_is_named(kind):
    with pytest.raises(KeyError, match=f"{kind}_env_num"):
        getattr(BaseEnv, f"create_{kind}_env_cfg")(EasyDict())


def test_env_setting_takes_the_counts_out_of_the_config():
    cfg = EasyDict(type="gymnasium", env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=1)
    env_cls, collector, evaluator = get_vec_env_setting(cfg)
    assert env_cls is GymnasiumEnv
    assert len(collector) == 2
    assert len(evaluator) == 1
    assert cfg == evaluator[0] == {"type": "gymnasium", "env_id": "CartPole-v1"}


def test_env_setting_of_one_side_leaves_the_other_count():
    cfg = EasyDict(type="gymnasium", env_id="CartPole-v1", collector_env_num=2, evaluator_env_num=1)
    assert get_vec_env_setting(cfg, collect=False)[1] is None
    assert cfg.collector_env_num == 2
    assert get_vec_env_setting(cfg, eval_=False)[2] is None


def test_import_names_are_imported_before_the_type_is_looked_up(import_folder):
    (import_folder / "outside_env_pkg.py").write_text(
        "from ding.utils.registry_factory import ENV_REGISTRY\n"
        "@ENV_REGISTRY.register('outside')\n"
        "class Outside:\n"
        "    def __init__(self, size): self.size = size\n"
    )
    cfg = EasyDict(type="outside", import_names=["outside_env_pkg"])
    try:
        env_cls = get_env_cls(cfg)
        assert env_cls.__name__ == "Outside"
        assert create_model_env(EasyDict(size=4, **cfg)).size == 4
        assert cfg == {"type": "outside", "import_names": ["outside_env_pkg"]}
    finally:
        ENV_REGISTRY.pop("outside", None)
        sys.modules.pop("outside_env_pkg", None)


def test_an_unknown_env_type_is_a_key_error():
    with pytest.raises(KeyError):
        get_env_cls(EasyDict(type="nowhere"))


def test_a_model_env_needs_import_names():
    with pytest.raises(KeyError):
        create_model_env({"type": "gymnasium"})


# Names of `ding.envs` that other packages import, and what importing it loads.


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


# Parts of an environment that tell their shape and values.


class Speed(EnvElement):
    _name = "Speed"

    def _init(self, limit, unit="m/s"):
        self._shape, self._value = (1,), {"min": 0, "max": limit}
        self.unit = unit

    def _details(self):
        return f"up to {self._value['max']} {self.unit}"


class SpeedRunner(EnvElementRunner):
    def _init(self, limit):
        self._core = Speed(limit)

    def get(self, engine):
        return min(engine["speed"], self._core._value["max"])

    def reset(self):
        self.was_reset = True


def test_an_element_tells_its_shape_and_values():
    speed = Speed(3, unit="km/h")
    assert speed.info == EnvElementInfo(shape=(1,), value={"min": 0, "max": 3})
    assert repr(speed) == "Speed: up to 3 km/h"


def test_processors_of_an_element_are_part_of_its_info():
    class Scaled(Speed):
        def _init(self, limit):
            super()._init(limit)
            self._to_agent_processor = lambda value: value / limit

    info = Scaled(4).info
    assert info.to_agent_processor(2) == 0.5
    assert info.from_agent_processor is None


class Shapeless(Speed):
    def _init(self):
        self._shape = (1,)


class Coreless(SpeedRunner):
    def _init(self):
        """It forgets its element."""


@pytest.mark.parametrize(("cls", "names"), [(Shapeless, "_shape and _value"), (Coreless, "_core")])
def test_what_its_init_must_set_is_named(cls, names):
    with pytest.raises(AssertionError, match=rf"{cls.__name__}\._init must set {names}"):
        cls()


def test_an_element_must_say_how_it_is_made():
    with pytest.raises(TypeError):
        EnvElement()


def test_a_runner_reads_its_element_from_an_engine():
    runner = SpeedRunner(3)
    runner.reset()
    assert runner.get({"speed": 5}) == 3
    assert runner.info == Speed(3).info
    assert repr(runner) == "Speed: up to 3 m/s"
    assert FromModule is EnvElementRunner


def test_an_env_info_is_made_of_elements():
    info = BaseEnvInfo(agent_num=1, obs_space=Speed(1).info, act_space=None, rew_space=None)
    assert (info.agent_num, info.obs_space.shape, info.use_wrappers) == (1, (1,), None)


# What envs return in another form than they have to: taken where it is exact, else refused in one line.


BOX = spaces.Box(0, 9, (2,), np.float32)
BYTES = spaces.Box(0, 255, (2,), np.uint8)
DICT = spaces.Dict(a=BOX, b=spaces.Tuple([spaces.Discrete(3), BYTES]))


class Returning(gymnasium.Env):
    """An env whose `step` returns these values, and whose `reset` an observation."""

    observation_space, action_space = BOX, spaces.Discrete(2)

    def __init__(self, values, first=(0.0, 0.5)):
        self.first, self.values = first, values

    def reset(self, *, seed=None, options=None):
        return self.first, {}

    def step(self, action):
        return self.values


FOUR = partial(Returning, values=(np.zeros(2, np.float32), 0.0, False, {}))
WIDE = partial(Returning, values=(np.zeros(3, np.float32), 0.0, False, False, {}))


@pytest.mark.parametrize(
    ("obs", "space", "dtype", "expected"),
    [
        ([0, 1], BOX, np.float32, [0, 1]),
        ((0.5, 1), BOX, np.float32, [0.5, 1]),
        ([0.1, 1.0], BOX, np.float32, np.float32([0.1, 1.0]).tolist()),
        (np.array([0.5, 1.0]), BOX, np.float32, [0.5, 1]),
        (np.array([3, 4], np.uint8), BOX, np.float32, [3, 4]),
        ([3, 4], BYTES, np.uint8, [3, 4]),
        (np.array([3.0, 4.0]), BYTES, np.uint8, [3, 4]),
        (np.array([3, 4]), BYTES, np.int64, [3, 4]),
        (0.5, spaces.Box(0, 1, (1,), np.float32), np.float32, [0.5]),
        ([[1, 0]], spaces.MultiBinary((1, 2)), np.int8, [[1, 0]]),
        ([2, 1], spaces.MultiDiscrete([3, 3]), np.int64, [2, 1]),
        (2, spaces.Discrete(3), np.int64, 2),
        (np.array([2]), spaces.Discrete(3), np.int64, [2]),
    ],
)
def test_what_converts_exactly_is_taken_as_an_array(obs, space, dtype, expected):
    array = checked_observation(obs, space, "env")
    assert (type(array), array.dtype, array.tolist()) == (np.ndarray, dtype, expected)


def test_lists_are_taken_in_dicts_and_tuples_too():
    found = checked_observation({"a": [0, 1], "b": [2, [3, 4]], "more": 0.5}, DICT, "env")
    assert type(found["b"]) is tuple and found["b"][0].tolist() == 2
    assert (found["a"].tolist(), found["b"][1].tolist(), found["more"].tolist()) == ([0, 1], [3, 4], 0.5)


@pytest.mark.parametrize(
    ("obs", "space", "message"),
    [
        (np.zeros(3, np.float32), BOX, r"of the shape \(3,\) and dtype float32; the env shows Box.*\(2,\), float32"),
        (np.zeros((1, 2), np.float32), BOX, r"of the shape \(1, 2\)"),
        ([0.0, 1.0, 2.0], BOX, r"observation is \[0.0, 1.0, 2.0\]; the env shows Box"),
        ([[0.0], [1.0, 2.0]], BOX, "the env shows Box"),
        (["a", "b"], BOX, "the env shows Box"),
        (None, BOX, "observation is None; the env shows Box"),
        (np.array([0.5, 1.0]), BYTES, "dtype float64; the env shows Box.* uint8"),
        ([256, 0], BYTES, "uint8"),
        (np.array([np.nan, 0.0]), BYTES, "uint8"),
        ([1, 2], spaces.Discrete(3), "Discrete"),
        ({"a": np.zeros(2)}, DICT, "the env shows Dict"),
        (np.zeros(2), DICT, "the env shows Dict"),
        ({"a": np.zeros(2), "b": (1,)}, DICT, r"observation\['b'\] .*the env shows Tuple"),
        ({"a": np.zeros(2), "b": (1, [0.5, 1])}, DICT, r"observation\['b'\]\[1\] .*uint8"),
    ],
)
def test_other_observations_are_refused_in_one_line(obs, space, message):
    with pytest.raises(EnvOutputError, match=message) as caught:
        checked_observation(obs, space, "env")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("first", [[0.0, 0.5], np.array([0.0, 0.5])])
def test_an_env_checks_its_first_observation_and_each_step(first):
    env = GymnasiumEnv({"env": partial(WIDE, first=first)})
    assert env.reset().tolist() == [0.0, 0.5]
    with pytest.raises(EnvOutputError):
        env.step(0)
    with pytest.raises(EnvOutputError):
        GymnasiumEnv({"env": partial(Returning, (), first=[0.0])}).reset()


@pytest.mark.parametrize(
    "make",
    [
        lambda: GymnasiumEnv({"env": FOUR}),
        lambda: GymnasiumEnv({"env": FOUR, "max_episode_steps": 5}),  # where gymnasium's own wrapper fails
        lambda: DingEnvWrapper(FOUR(), {"env_wrapper": []}),
        lambda: GymnasiumEnv({"env": partial(Returning, values=None)}),
    ],
)
def test_a_step_of_four_values_is_told_what_is_wanted(make):
    env = make()
    env.reset()
    with pytest.raises(EnvOutputError, match="truncated"):
        env.step(0)
