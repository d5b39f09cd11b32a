"""Toys by their ids, and a stand-in for the package that encodes videos."""

import types

import gymnasium
import pytest

from tests.envs.toys import Toy


@pytest.fixture
def clips(put_module):
    """A stand-in for moviepy; the list of (number of frames, file) it was asked to write."""
    written = []

    class Clip:
        def __init__(self, frames, fps):
            self.frames = list(frames)

        def write_videofile(self, path, logger=None):
            written.append((len(self.frames), path))

    package = types.ModuleType("moviepy")
    clip_module = types.ModuleType("moviepy.video.io.ImageSequenceClip")
    package.ImageSequenceClip = clip_module.ImageSequenceClip = Clip
    for name in ("moviepy", "moviepy.video", "moviepy.video.io"):
        put_module(name, package)
    put_module("moviepy.video.io.ImageSequenceClip", clip_module)
    return written


@pytest.fixture
def registered():
    """The toys made by the ids `DingToy-v1`, whose episodes are limited, and `DingVideo-v1`, where they are short."""
    made = []

    def make(**kwargs):
        made.append(Toy(**kwargs))
        return made[-1]

    gymnasium.register("DingToy-v1", entry_point=make, max_episode_steps=3)
    gymnasium.register("DingVideo-v1", entry_point=make, kwargs={"length": 2})
    yield made
    for name in ("DingToy-v1", "DingVideo-v1"):
        del gymnasium.registry[name]
