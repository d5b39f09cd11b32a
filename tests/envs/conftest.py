"""A stand-in for the package that encodes videos."""

import sys
import types

import pytest


@pytest.fixture
def clips(monkeypatch):
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
        monkeypatch.setitem(sys.modules, name, package)
    monkeypatch.setitem(sys.modules, "moviepy.video.io.ImageSequenceClip", clip_module)
    return written
