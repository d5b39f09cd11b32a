"""Wrappers for images."""

import types

import numpy as np
import pytest
from gymnasium import spaces

from ding.envs import (
    FrameStackWrapper,
    ObsTransposeWrapper,
    RamWrapper,
    ScaledFloatFrameWrapper,
    TransposeWrapper,
    WarpFrameWrapper,
)
from tests.envs.toys import Toy, play


@pytest.fixture
def cv2(put_module):
    """A stand-in for OpenCV that resizes by taking every so many pixels and, as OpenCV, takes few dtypes."""

    def resize(frame, size, interpolation):
        assert (frame.dtype.name in ("uint8", "uint16", "float32"), frame.ndim, interpolation) == (True, 2, "area")
        rows, columns = (np.arange(n) * have // n for n, have in zip(size, frame.shape, strict=True))
        return frame[rows[:, None], columns]

    def gray(frame, code):
        assert (frame.dtype.name in ("uint8", "uint16", "float32"), code) == (True, "gray")
        return (frame @ np.array([0.25, 0.5, 0.25])).astype(frame.dtype)

    module = types.ModuleType("cv2")
    module.INTER_AREA, module.COLOR_RGB2GRAY, module.resize, module.cvtColor = "area", "gray", resize, gray
    put_module("cv2", module)


def images(shape, dtype=np.uint8, high=255, **kwargs):
    """An env of images whose every pixel is the step."""
    space = spaces.Box(0, high, shape, dtype)
    return Toy(observation_space=space, observe=lambda episode, step: np.full(shape, step, dtype), **kwargs)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int64])
@pytest.mark.parametrize(
    ("shape", "warped"), [((210, 160, 3), (84, 84)), ((50, 60), (84, 84)), ((4, 50, 60), (4, 84, 84))]
)
def test_images_are_gray_and_resized_in_their_dtype(cv2, shape, warped, dtype):
    env = WarpFrameWrapper(images(shape, dtype, high=200))
    assert env.observation_space == spaces.Box(0, 200, warped, dtype)
    for obs in (env.reset(), *(step[0] for step in play(env, 3))):
        assert (obs.shape, obs.dtype) == (warped, dtype)
    assert set(obs.ravel().tolist()) == {3}


def test_the_size_is_chosen(cv2):
    env = WarpFrameWrapper(images((20, 20, 3)), size=10)
    assert (env.size, env.reset().shape) == (10, (10, 10))


def test_pixels_keep_their_places(cv2):
    frame = np.zeros((20, 40), np.uint8)
    frame[:10, 20:] = 9
    toy = Toy(observation_space=spaces.Box(0, 255, (20, 40), np.uint8), observe=lambda e, s: frame)
    obs = WarpFrameWrapper(toy, size=4).reset()
    assert obs.tolist() == [[0, 0, 9, 9]] * 2 + [[0, 0, 0, 0]] * 2


def test_a_tuple_of_one_image_becomes_the_image(cv2):
    space = spaces.Tuple([spaces.Box(0, 255, (20, 20, 3), np.uint8)])
    env = WarpFrameWrapper(Toy(observation_space=space, observe=lambda e, s: (np.zeros((20, 20, 3), np.uint8),)))
    assert env.observation_space == spaces.Box(0, 255, (84, 84), np.uint8)
    assert env.reset().shape == (84, 84)


def test_of_a_tuple_of_images_each_is_resized(cv2):
    member = spaces.Box(0, 255, (20, 20, 3), np.uint8)
    toy = Toy(observation_space=spaces.Tuple([member] * 2), observe=lambda e, s: (np.zeros((20, 20, 3), np.uint8),) * 2)
    env = WarpFrameWrapper(toy)
    assert env.observation_space == spaces.Tuple([spaces.Box(0, 255, (84, 84), np.uint8)] * 2)
    assert [frame.shape for frame in env.reset()] == [(84, 84)] * 2


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_opencv_itself_resizes_what_the_stand_in_does(dtype):
    pytest.importorskip("cv2")
    for shape, warped in (((210, 160, 3), (84, 84)), ((4, 50, 60), (4, 84, 84))):
        obs = play(WarpFrameWrapper(images(shape, dtype)), 7)[-1][0]
        assert (obs.shape, obs.dtype) == (warped, dtype)
        assert np.abs(obs.astype(float) - 7).max() < 1e-3


def test_observations_are_scaled_to_one():
    space = spaces.Box(np.array([-2, 0]), np.array([0, 6]), dtype=np.float32)
    env = ScaledFloatFrameWrapper(Toy(observation_space=space, observe=lambda e, s: np.array([-2.0, 6.0])))
    assert env.observation_space == spaces.Box(0, 1, (2,), np.float32)
    obs = env.reset()
    assert (obs.dtype, obs.tolist()) == (np.float32, [0.0, 1.0])
    assert play(ScaledFloatFrameWrapper(images((2, 2))), 3)[-1][0].max() == np.float32(3 / 255)


@pytest.mark.parametrize("reuse", [False, True])
def test_the_last_frames_are_stacked_on_a_new_first_axis(reuse):
    env = FrameStackWrapper(images((2, 3), length=9, reuse=reuse), n_frames=3)
    assert env.observation_space == spaces.Box(0, 255, (3, 2, 3), np.uint8)
    for _ in range(2):
        assert env.reset()[:, 0, 0].tolist() == [0, 0, 0]
        stacks = [env.step(0)[0] for _ in range(4)]
        assert [stack[:, 0, 0].tolist() for stack in stacks] == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
        assert stacks[0].dtype == np.uint8


def test_stacked_frames_are_not_shared_between_observations():
    env = FrameStackWrapper(images((2, 3)))
    first = env.reset()
    env.step(0)[0][:] = 99
    assert first.max() == 0
    assert env.step(0)[0][-2].max() == 1


@pytest.mark.parametrize("wrapper", [ObsTransposeWrapper, TransposeWrapper])
def test_channels_come_first(wrapper):
    picture = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
    toy = Toy(observation_space=spaces.Box(0, 255, (4, 3, 2), np.uint8), observe=lambda e, s: picture)
    env = wrapper(toy)
    assert env.observation_space == spaces.Box(0, 255, (2, 4, 3), np.uint8)
    np.testing.assert_array_equal(env.reset(), picture.transpose(2, 0, 1))


def test_a_tuple_of_images_becomes_one_array_of_them():
    member = spaces.Box(0, 255, (4, 3, 2), np.uint8)
    toy = Toy(
        observation_space=spaces.Tuple([member] * 2),
        observe=lambda e, s: (np.zeros((4, 3, 2), np.uint8), np.ones((4, 3, 2), np.uint8)),
    )
    env = ObsTransposeWrapper(toy)
    assert env.observation_space == spaces.Box(0, 255, (2, 2, 4, 3), np.uint8)
    obs = env.reset()
    assert (obs.shape, obs[0].max(), obs[1].min()) == ((2, 2, 4, 3), 0, 1)


def test_the_memory_of_a_game_has_the_form_of_an_image():
    memory = np.arange(128, dtype=np.uint8)
    toy = Toy(observation_space=spaces.Box(0, 255, (128,), np.uint8), observe=lambda e, s: memory)
    env = RamWrapper(toy)
    assert env.observation_space == spaces.Box(0, 255, (128, 1, 1), np.float32)
    obs = env.reset()
    assert (obs.dtype, obs.shape, obs[5, 0, 0]) == (np.float32, (128, 1, 1), 5.0)


@pytest.mark.parametrize("render", [False, True])
def test_a_game_is_shown_where_asked(render, monkeypatch):
    shown = []
    toy = images((128,))
    monkeypatch.setattr(toy, "render", lambda: shown.append(toy.count))
    play(RamWrapper(toy, render=render), 2)
    assert shown == ([1, 2] if render else [])
