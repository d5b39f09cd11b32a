"""A real policy in a comm learner: what it is sent over the wire trains it as it would at home."""

import copy
import json

import torch
from easydict import EasyDict

from ding.policy import DQNPolicy
from ding.worker.transport.chunk import encode_chunk
from tests.worker.learner.comm.workers import entry

BATCH = 8


def policy_cfg():
    cfg = DQNPolicy.default_config()
    cfg.type = "dqn"
    cfg.priority = cfg.priority_IS_weight = True
    cfg.model = {"obs_shape": 4, "action_shape": 2, "encoder_hidden_size_list": [16, 16]}
    cfg.learn.batch_size, cfg.learn.learning_rate = BATCH, 0.01
    return cfg


def transitions(count=BATCH):
    rng = torch.Generator().manual_seed(3)
    return [
        {
            "obs": torch.rand(4, generator=rng),
            "next_obs": torch.rand(4, generator=rng),
            "action": torch.tensor([i % 2]),
            "reward": torch.rand(1, generator=rng),
            "done": i % 5 == 0,
        }
        for i in range(count)
    ]


def trained_at_home(cfg, batch):
    """The weights and priorities after three batches without any worker."""
    torch.manual_seed(7)
    policy = DQNPolicy(EasyDict(cfg), enable_field=["learn"]).learn_mode
    data = [{**sample, **row} for sample, row in zip(transitions(), batch, strict=True)]
    priorities = [policy.forward(copy.deepcopy(data))["priority"] for _ in range(3)]
    return policy.state_dict()["model"], priorities


def test_a_dqn_trains_on_what_comes_and_gives_its_weights(site):
    cfg = json.loads(json.dumps(policy_cfg()))
    batch = [entry("env_uid_1", index, IS=0.5 + index / 16) for index in range(BATCH)]
    model, priorities = trained_at_home(copy.deepcopy(cfg), batch)
    _, driver = site.pair()
    site.samples.write("env_uid_1", encode_chunk(transitions(), "lz4"))
    torch.manual_seed(7)
    driver.start(policy=cfg, learner={"train_iterations": 3})
    driver.learn(batch, batch, batch)
    infos, _ = driver.infos(9)
    state = site.policies.read("policy_task").state
    assert state["iter"] == 3 and state["model"].keys() == model.keys()
    assert all(torch.equal(value, model[key]) for key, value in state["model"].items())
    assert [info["priority_info"]["priority"] for info in infos[:3]] == priorities
    assert all(type(value) is float for info in infos for value in info["priority_info"]["priority"])
    assert [info["learner_step"] for info in infos] == [0, 1, 2, 3]
    assert torch.load("exp/ckpt/iteration_3.pth.tar", weights_only=True)["last_iter"] == 3
