"""Frames that stacked observations have in common: who declares the stack, and what a buffer then stores."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import RescaleObservation, TimeLimit

from ding.envs import DingEnvWrapper, GymnasiumEnv, create_env_manager
from ding.model import DQN
from ding.policy import DQNPolicy
from ding.worker import NaiveReplayBuffer, SampleSerialCollector
from tests.fakes import FakeWriter
from tests.worker.replay_buffer.test_column_store import shown

FrameStackObservation = getattr(gymnasium.wrappers, "FrameStackObservation", None)
pytestmark = pytest.mark.skipif(FrameStackObservation is None, reason="this gymnasium has another wrapper for stacks")
SIDE, STACK = 40, 3


class Pictures(gymnasium.Env):
    """Shows another picture in each step; an episode has 20 steps."""

    observation_space, action_space = Box(0, 255, (SIDE, SIDE), np.uint8), Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._picture(), {}

    def step(self, action):
        self.steps += 1
        return self._picture(), 1.0, self.steps == 20, False, {}

    def _picture(self):
        return self.np_random.integers(0, 256, (SIDE, SIDE), np.uint8)


gymnasium.register("Pictures-v0", Pictures)
STACKED = partial(FrameStackObservation, stack_size=STACK) if FrameStackObservation else None


def manager_of(env, kind="base", **cfg):
    manager = create_env_manager({"type": kind, **cfg}, [env] * 2 if env else None)
    manager.seed(0)
    return manager


def gymnasium_env(*wrappers, **cfg):
    return partial(GymnasiumEnv, {"env_id": "Pictures-v0", "wrappers": list(wrappers), **cfg})


@pytest.mark.parametrize(("env", "stack"), [
    (gymnasium_env(STACKED), STACK),
    (gymnasium_env(STACKED, partial(TimeLimit, max_episode_steps=9)), STACK),
    (gymnasium_env(STACKED, partial(RescaleObservation, min_obs=0, max_obs=1)), 1),
    (gymnasium_env(), 1),
    (lambda: DingEnvWrapper(Pictures(), {"env_wrapper": [{"type": "frame_stack", "kwargs": {"n_frames": 2}}]}), 2),
    (gymnasium_env(STACKED, norm_obs={"use_norm": True}), 1),
])  # fmt: skip
def test_a_manager_knows_the_stack_of_the_outermost_wrapper_that_changes_observations(env, stack):
    with manager_of(env) as manager:
        assert manager.frame_stack == stack


def test_a_vector_env_declares_its_stack():
    with manager_of(None, "vector_env", vector_env="tests.benchmarks.frames:FramesVectorEnv", env_num=2) as manager:
        assert manager.frame_stack == 4


@pytest.mark.parametrize("kind", ["base", "subprocess"])
@pytest.mark.parametrize("nstep", [1, 3])
def test_frames_are_stored_once_across_collects(kind, nstep):
    policy_cfg = DQNPolicy.default_config()
    policy_cfg.nstep = nstep
    policy = DQNPolicy(policy_cfg, DQN((STACK, SIDE, SIDE), 2, [4, 4, 4, 8]), enable_field=["collect"])
    cfg = {"replay_buffer_size": 60}
    shared = NaiveReplayBuffer({**cfg, "share_frames": True}, FakeWriter(), "exp", "shared")
    plain = NaiveReplayBuffer(cfg, FakeWriter(), "exp", "plain")
    with manager_of(gymnasium_env(STACKED), kind) as manager:
        collector = SampleSerialCollector(
            SampleSerialCollector.default_config(), manager, policy.collect_mode, FakeWriter(), "exp"
        )
        for _ in range(12):
            samples = collector.collect(16, policy_kwargs={"eps": 0.5})
            for buffer in (shared, plain):
                buffer.push(samples, 0)
            assert shown(shared._data) == shown(plain._data)
    frame = SIDE * SIDE
    assert shared._store.nbytes < 1.8 * 60 * frame and plain._store.nbytes > STACK * 60 * frame
