import types

import numpy as np
import pytest

from ding.utils.render_helper import fps, render, render_env

FRAME = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)


class NewEnv:
    metadata = {"render_fps": 50}
    render_mode = "rgb_array"

    def render(self):
        return FRAME


class OldEnv:
    metadata = {"video.frames_per_second": 20}

    def render(self, mode="human"):
        return FRAME if mode == "rgb_array" else None


def manager_of(env):
    return types.SimpleNamespace(env_ref=env)


def test_the_frame_rate_comes_from_the_metadata_of_the_innermost_env():
    assert fps(manager_of(NewEnv())) == 50 and fps(manager_of(OldEnv())) == 20
    assert fps(manager_of(types.SimpleNamespace(_env=NewEnv()))) == 50


def test_the_frame_rate_is_thirty_where_it_cannot_be_told():
    for manager in (object(), manager_of(object()), manager_of(types.SimpleNamespace(metadata={}))):
        assert fps(manager) == 30


@pytest.mark.parametrize("env", [NewEnv(), OldEnv()])
def test_pictures_have_the_channels_first(env):
    for picture in (render_env(env), render(types.SimpleNamespace(_env=env)), render(env)):
        assert picture.shape == (3, 2, 4) and np.array_equal(picture, FRAME.transpose(2, 0, 1))
