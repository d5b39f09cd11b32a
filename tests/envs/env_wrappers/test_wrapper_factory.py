"""Wrappers by name, class or function, in the interface that each expects."""

import functools

import gymnasium
import numpy as np
import pytest

from ding.envs import EnvWrapper, create_env_wrapper, update_shape
from ding.envs.env_wrappers.wrapper_factory import apply_env_wrappers
from ding.utils.registry_factory import ENV_WRAPPER_REGISTRY
from tests.envs.toys import FourValueToy, Toy, ToyBaseEnv, play

REGISTERED = {
    "noop_reset", "max_and_skip", "warp_frame", "scaled_float_frame", "clip_reward", "action_repeat", "delay_reward",
    "eval_episode_return", "frame_stack", "obs_transpose", "obs_norm", "static_obs_norm", "reward_norm", "ram",
    "episodic_life", "fire_reset", "gym_hybrid_dict_action", "obs_plus_prev_action_reward", "reward_in_obs",
}  # fmt: skip


class FourValueWrapper:
    """A wrapper as one writes it for the old interface, without a base class."""

    def __init__(self, env, factor=10):
        self.env, self.factor = env, factor
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def reset(self):
        return self.env.reset()

    def step(self, action):
        obs, reward, done, info = self.env.step(action)
        return obs, reward * self.factor, done, info


class FiveValueWrapper(gymnasium.Wrapper):
    """A wrapper of gymnasium that notes what passes through it."""

    def __init__(self, env, factor=10):
        super().__init__(env)
        self.factor, self.resets = factor, []

    def reset(self, *, seed=None, options=None):
        self.resets.append((seed, options))
        return super().reset(seed=seed, options=options)

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward * self.factor, terminated, truncated, info


@pytest.fixture
def registered():
    names = []

    def register(name, wrapper):
        ENV_WRAPPER_REGISTRY.register(name, wrapper)
        names.append(name)

    yield register
    for name in names:
        del ENV_WRAPPER_REGISTRY[name]


def apply(env, *entries):
    """The env in these wrappers, with four values."""
    return EnvWrapper(apply_env_wrappers(env, entries))


def test_the_wrappers_are_registered_under_the_documented_names():
    assert set(ENV_WRAPPER_REGISTRY) >= REGISTERED


def test_a_wrapper_is_made_by_type_and_kwargs_and_the_config_stays():
    cfg = {"type": "frame_stack", "kwargs": {"n_frames": 3}}
    assert create_env_wrapper(Toy(), cfg).reset().shape == (3, 2)
    assert cfg == {"type": "frame_stack", "kwargs": {"n_frames": 3}}
    assert create_env_wrapper(Toy(), {"type": "frame_stack"}).n_frames == 4


def test_modules_that_register_a_wrapper_are_imported_first(import_folder):
    text = (
        "from ding.envs import EnvWrapper\nfrom ding.utils import ENV_WRAPPER_REGISTRY\n"
        "@ENV_WRAPPER_REGISTRY.register('of_tmp')\nclass OfTmp(EnvWrapper):\n    pass\n"
    )
    (import_folder / "wrapper_of_tmp.py").write_text(text)
    env = create_env_wrapper(Toy(), {"type": "of_tmp", "import_names": ["wrapper_of_tmp"]})
    assert type(env).__name__ == "OfTmp"
    del ENV_WRAPPER_REGISTRY["of_tmp"]


@pytest.mark.parametrize("cfg", [{"type": "unheard_of"}, {"kwargs": {}}])
def test_an_unknown_or_missing_type_is_a_key_error(cfg):
    with pytest.raises(KeyError):
        create_env_wrapper(Toy(), cfg)


@pytest.mark.differs(
    "needs `gym` for its wrappers, and does not report truncation",
    "wraps envs of gym and gymnasium; `info` has `terminated` and `truncated`",
)
@pytest.mark.parametrize(
    "entry",
    [
        FourValueWrapper,
        lambda env: FourValueWrapper(env),
        functools.partial(FourValueWrapper, factor=10),
        FiveValueWrapper,
        functools.partial(FiveValueWrapper, factor=10),
        lambda env: EnvWrapper(FourValueWrapper(env)),
        lambda env: FourValueWrapper(EnvWrapper(env)),
    ],
)
@pytest.mark.parametrize(
    "under", [[], ["clip_reward"], [FourValueWrapper, "clip_reward"], [FiveValueWrapper, "clip_reward"]]
)
@pytest.mark.parametrize("over", [[], ["frame_stack"]])
@pytest.mark.parametrize("make", [Toy, functools.partial(FourValueToy, 4), lambda: ToyBaseEnv({"length": 4})])
def test_wrappers_of_every_interface_stand_under_and_over_each_other(make, under, entry, over):
    inner = make()
    inner.reset()
    env = apply(inner, *under, entry, *over)
    env.seed(7)
    first = env.reset()
    assert first.shape[0] == (4 if over else len(inner.observation_space.low))
    assert inner.seeds[-1] in (7, (7, True))
    steps = [env.step(0) for _ in range(4)]
    assert [float(np.asarray(reward).item()) for _, reward, _, _ in steps] == [10.0] * 4
    assert [bool(done) for _, _, done, _ in steps] == [False, False, False, True]
    assert env.reset().shape == first.shape


def test_a_registered_wrapper_of_a_user_is_found_by_its_name(registered):
    registered("times_ten", FourValueWrapper)
    registered("times_ten_too", FiveValueWrapper)
    env = apply(Toy(), "times_ten", {"type": "times_ten_too", "kwargs": {"factor": 2}})
    assert play(env, 1)[0][1] == 20.0


def test_gymnasiums_wrappers_get_seeds_and_options():
    toy = Toy()
    env = apply(toy, "clip_reward", FiveValueWrapper, "frame_stack")
    env.seed(3)
    env.reset()
    env.reset(options={"level": 2})
    assert env.resets == [(3, None), (None, {"level": 2})]
    assert toy.seeds == [3, None]
    assert toy.options == [None, {"level": 2}]


def test_a_function_may_leave_the_env_as_it_is():
    toy = Toy()
    assert apply(toy, lambda env: env).env.env is toy


def test_the_first_entry_is_the_innermost():
    env = apply(Toy(rewards=(0.5,)), "clip_reward", FourValueWrapper)
    assert play(env, 1)[0][1] == 10.0
    env = apply(Toy(rewards=(0.5,)), FourValueWrapper, "clip_reward")
    assert play(env, 1)[0][1] == 1.0


def test_shapes_are_changed_by_wrappers_that_define_how(registered):
    class Flat(EnvWrapper):
        @staticmethod
        def new_shape(obs_shape, act_shape, rew_shape):
            return (int(np.prod(obs_shape)),), act_shape, rew_shape

    registered("flat", Flat)
    assert update_shape((2, 3), (1,), (1,), ["frame_stack", "FrameStackWrapper", "nothing"]) == ((2, 3), (1,), (1,))
    assert update_shape((2, 3), (1,), (1,), ["flat"]) == ((6,), (1,), (1,))
    assert update_shape((2, 3), (1,), (1,), ["Flat"]) == ((6,), (1,), (1,))
