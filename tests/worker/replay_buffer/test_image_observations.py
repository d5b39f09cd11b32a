"""Images of bytes stay bytes from the env to the model's door, whichever buffer they pass through."""

import numpy as np
import pytest
import torch

from ding.policy.dqn import DQNPolicy
from ding.utils.data.collate_fn import default_collate
from ding.worker import SampleSerialCollector, create_buffer
from tests.fakes import CountingEnv, FakeManager, FakeWriter
from tests.policy.learning import model_of

SHAPE = (1, 36, 36)


class ImageEnv(CountingEnv):
    """A frame of the env's step is all of one grey; the env draws every frame into the same array."""

    def __init__(self, env_id: int, length: int) -> None:
        super().__init__(env_id, length, reuse=True)
        self.obs = np.zeros(SHAPE, np.uint8)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        self.obs[:] = 200 + 10 * self.env_id + self.count
        self.reward[:] = 1.0
        return self.obs, self.reward


def manager(*lengths: int) -> FakeManager:
    made = FakeManager(list(lengths))
    made.envs = [ImageEnv(i, length) for i, length in enumerate(lengths)]
    return made


@pytest.fixture
def policy() -> DQNPolicy:
    torch.manual_seed(0)
    cfg = DQNPolicy.default_config()
    cfg.model = {"obs_shape": SHAPE, "action_shape": 2, "encoder_hidden_size_list": [2, 2, 2, 4]}
    cfg.priority = True
    return DQNPolicy(cfg)


@pytest.fixture
def collected(policy) -> list[dict]:
    collector = SampleSerialCollector(
        SampleSerialCollector.default_config(), manager(6), policy.collect_mode, FakeWriter(), "exp"
    )
    data = collector.collect(n_sample=24, policy_kwargs={"eps": 0.5})
    collector.close()
    return data


def greys(rows: list[dict], key: str) -> list[int]:
    """The grey of each frame, after checking that it is still a frame of bytes."""
    for row in rows:
        assert row[key].dtype == torch.uint8 and row[key].shape == SHAPE and len(row[key].unique()) == 1
    return [int(row[key][0, 0, 0]) for row in rows]


def seen_by(policy: DQNPolicy) -> list[torch.Tensor]:
    """What the encoder gets from now on."""
    seen: list[torch.Tensor] = []
    model_of(policy).encoder.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    return seen


def test_collected_frames_are_bytes_that_neighbours_share(collected):
    before, after = greys(collected, "obs"), greys(collected, "next_obs")
    assert before == [*range(200, 206)] * 4
    assert [b + 1 for b in before] == after
    frames = {row[key].data_ptr() for row in collected for key in ("obs", "next_obs")}
    assert len(frames) == 28  # each of 4 episodes has 7 frames


BUFFERS = {
    "naive": (12,),
    "advanced": (12,),
    "deque": (12,),
    "elastic": (12,),
    "sequence": (3, 4),
    "episode": (2,),
}


@pytest.mark.differs(
    "fails on byte images in networks",
    "stores bytes, and converts them to floats only in the model",
)
@pytest.mark.parametrize("name", BUFFERS)
def test_bytes_pass_through_every_buffer_and_are_floats_for_the_model_alone(name, policy, collected):
    cfg = {"type": name, "replay_buffer_size": 64, **({"priority": True} if name == "deque" else {})}
    if name == "elastic":
        cfg["set_buffer_size"] = lambda envstep: 64
    buffer = create_buffer(cfg, tb_logger=FakeWriter(), exp_name="exp")
    buffer.push([collected[:6], collected[6:12]] if name == "episode" else collected, 24)
    batch = buffer.sample(*BUFFERS[name], 0)
    rows = batch if isinstance(batch[0], dict) else [row for part in batch for row in part]
    assert [grey + 1 for grey in greys(rows, "obs")] == greys(rows, "next_obs")
    if name in ("sequence", "episode"):
        assert all(np.diff(greys(part, "obs")).tolist() == [1] * (len(part) - 1) for part in batch)
    assert default_collate([row["obs"] for row in rows]).dtype == torch.uint8
    seen = seen_by(policy)
    output = policy.learn_mode.forward(rows)
    assert len(output["priority"]) == 12
    assert seen and all(x.dtype == torch.float32 and x.min() >= 200 for x in seen)
    assert all(row["obs"].dtype == torch.uint8 for row in rows)
    buffer.close()
