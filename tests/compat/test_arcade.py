"""An env package in the manner of an arcade game, with wrappers by their earlier names, trains."""

import torch
from easydict import EasyDict
from torch import nn

from ding.entry import serial_pipeline
from ding.policy import DQNPolicy
from ding.torch_utils import Flatten
from ding.utils import MODEL_REGISTRY, POLICY_REGISTRY


@MODEL_REGISTRY.register("compat_frame_net")
class FrameNet(nn.Module):
    """Q values [B, N] of frames [B, 2, 8, 8]."""

    def __init__(self, obs_shape, action_shape, encoder_hidden_size_list):
        super().__init__()
        (width,) = encoder_hidden_size_list
        size = (obs_shape[1] - 2) * (obs_shape[2] - 2)
        self.main = nn.Sequential(
            nn.Conv2d(obs_shape[0], width, 3), nn.ReLU(), Flatten(), nn.Linear(width * size, action_shape)
        )

    def forward(self, obs):
        assert obs.dtype == torch.float32 and float(obs.max()) <= 1
        return {"logit": self.main(obs)}


@POLICY_REGISTRY.register("compat_clipped_dqn")
class ClippedDQNPolicy(DQNPolicy):
    """Overrides one method: rewards are clipped again before learning."""

    batches = 0

    def _forward_learn(self, data):
        self.batches += 1
        assert self._cuda is False and self._gamma == 0.9
        return super()._forward_learn([{**item, "reward": item["reward"].clamp(-1, 1)} for item in data])


def config_pair():
    main = EasyDict(
        exp_name="arcade",
        env=dict(env_id="Catch-v0", collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1, frame_stack=2),
        policy=dict(
            cuda=False,
            discount_factor=0.9,
            model=dict(
                type="compat_frame_net",
                import_names=["tests.compat.test_arcade"],
                obs_shape=[2, 8, 8],
                action_shape=3,
                encoder_hidden_size_list=[3],
            ),
            learn=dict(update_per_collect=2, batch_size=4),
            collect=dict(n_sample=8),
            other=dict(eps=dict(type="exp", start=1.0, end=0.05, decay=100)),
        ),
    )
    create = EasyDict(
        env=dict(type="compat_arcade", import_names=["tests.compat.arcade_envs"]),
        env_manager=dict(type="base"),
        policy=dict(type="compat_clipped_dqn", import_names=["tests.compat.test_arcade"]),
    )
    return main, create


def test_dqn_trains_on_frames_with_a_model_and_a_policy_of_the_program(tmp_path):
    policy = serial_pipeline(config_pair(), seed=0, max_train_iter=4)
    assert isinstance(policy, ClippedDQNPolicy) and policy._model.main[0].out_channels == 3
    assert policy.batches == 4
    assert (tmp_path / "arcade" / "ckpt" / "iteration_4.pth.tar").is_file()
