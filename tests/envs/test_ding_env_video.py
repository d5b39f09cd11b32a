"""Videos of a DingEnvWrapper's episodes."""

from __future__ import annotations

import gymnasium
import pytest

from ding.envs import DingEnvWrapper, FrameStackWrapper
from tests.envs.toys import Toy
from tests.own_folder import own_folder as own_folder


@pytest.fixture
def registered():
    """The id `DingVideo-v1`; the list of the toys that were made by it."""
    made = []

    def make(**kwargs):
        made.append(Toy(length=2, **kwargs))
        return made[-1]

    gymnasium.register("DingVideo-v1", entry_point=make)
    yield made
    del gymnasium.registry["DingVideo-v1"]


def play_episodes(env, count):
    for _ in range(count):
        env.reset()
        while not env.step(0).done:
            pass


def recorders(env):
    """How many layers of the env record."""
    layer, count = env._env, 0
    while layer is not None:
        count += type(layer).__name__ == "RecordVideo"
        layer = getattr(layer, "env", None)
    return count


@pytest.mark.parametrize(
    "make",
    [
        lambda: DingEnvWrapper(cfg={"env_id": "DingVideo-v1"}),
        lambda: DingEnvWrapper(gymnasium.make("DingVideo-v1")),
        lambda: DingEnvWrapper(gymnasium.make("DingVideo-v1", render_mode="rgb_array")),
        lambda: DingEnvWrapper(Toy(length=2, render_mode="rgb_array")),
        lambda: DingEnvWrapper(FrameStackWrapper(Toy(length=2, render_mode="rgb_array"))),
    ],
)
def test_each_episode_is_recorded_once_whoever_made_the_env(make, clips, registered, tmp_path):
    env = make()
    env.enable_save_replay(str(tmp_path))
    play_episodes(env, 2)
    assert recorders(env) == 1
    env.close()
    assert [frames for frames, _ in clips] == [3] * 2
    assert len({path for _, path in clips}) == 2
    assert all(path.startswith(str(tmp_path / "rl-video-")) for _, path in clips)


def test_an_instance_that_renders_nothing_is_exchanged_and_closed(clips, registered, tmp_path):
    env = DingEnvWrapper(gymnasium.make("DingVideo-v1"))
    env.enable_save_replay(str(tmp_path))
    play_episodes(env, 1)
    assert [(toy.render_mode, toy.closed) for toy in registered] == [(None, 1), ("rgb_array", 0)]
    env.close()


def test_an_instance_that_renders_is_recorded_itself(clips, tmp_path):
    toy = Toy(length=2, render_mode="rgb_array")
    env = DingEnvWrapper(toy)
    play_episodes(env, 1)
    env.enable_save_replay(str(tmp_path))
    play_episodes(env, 1)
    assert (len(toy.actions), toy.closed) == (4, 0)
    env.close()
    assert len(clips) == 1


def test_recording_sees_every_frame_under_wrappers_that_skip(clips, tmp_path):
    env = DingEnvWrapper(Toy(length=6, render_mode="rgb_array"), {"env_wrapper": ["max_and_skip"]})
    env.enable_save_replay(str(tmp_path))
    play_episodes(env, 1)
    env.close()
    assert [frames for frames, _ in clips] == [7]


def test_the_default_folder_is_video(clips, registered, tmp_path):
    env = DingEnvWrapper(cfg={"env_id": "DingVideo-v1"})
    env.enable_save_replay()
    play_episodes(env, 1)
    env.close()
    assert clips[0][1].startswith(str(tmp_path / "video"))
