"""Pipelines that learn from an expert: `serial_pipeline_sqil` and `serial_pipeline_dqfd`."""

import copy

import numpy as np
import pytest
import torch

from ding.entry import serial_pipeline_dqfd, serial_pipeline_sqil
from ding.policy.dqn import DQNPolicy
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import POLICY_REGISTRY
from tests.entry.fakes import pair, result, setting
from tests.entry.test_application_entry import always, state_of

SEEN = []


@pytest.fixture(autouse=True)
def watched_policy():
    SEEN.clear()

    @POLICY_REGISTRY.register("entry_student")
    class StudentPolicy(DQNPolicy):
        """DQN that notes what it learns from."""

        def _forward_learn(self, data):
            rows = [dict(row) for row in copy.deepcopy(list(data))]
            SEEN.append(rows)
            return super()._forward_learn(data)

    yield
    POLICY_REGISTRY.pop("entry_student")


def student(**policy):
    """Explores all the time, so that about half of its actions are 0."""
    main, create = pair(**policy)
    main.policy.other.eps = {"type": "linear", "start": 1.0, "end": 1.0, "decay": 10}
    create.policy.type = "entry_student"
    return main, create


def expert(**collect):
    main, create = pair()
    main.exp_name = "expert"
    main.policy.collect.update(collect)
    return main, create


# --- SQIL ---


def test_half_of_each_batch_is_the_experts_and_rewards_say_which():
    serial_pipeline_sqil(student(), expert(), 0, setting(), None, always(1), max_train_iter=9)
    assert len(SEEN) == 9 and all(len(batch) == 4 for batch in SEEN)
    for batch in SEEN:
        assert [row["reward"].tolist() for row in batch] == [[0.0]] * 2 + [[1.0]] * 2
        assert all(row["action"].item() == 1 for row in batch[2:])
    assert {row["action"].item() for batch in SEEN for row in batch[:2]} == {0, 1}


def test_samples_of_a_random_policy_have_no_reward_either():
    serial_pipeline_sqil(student(random_collect_size=16), expert(), 0, setting(), None, always(1), max_train_iter=12)
    assert {row["reward"].item() for batch in SEEN for row in batch[:2]} == {0.0}


def test_the_return_that_counts_is_that_of_the_env():
    serial_pipeline_sqil(student(), expert(), 0, setting(), always(1), always(1), max_train_iter=3)
    assert result()["eval_value"] == 5.0


def test_an_expert_comes_from_the_checkpoint_of_either_config():
    torch.save(state_of(1), "expert.pth.tar")
    serial_pipeline_sqil(student(), expert(model_path="expert.pth.tar"), 0, setting(), max_train_iter=3)
    main, create = student()
    main.policy.collect.model_path = "expert.pth.tar"
    serial_pipeline_sqil((main, create), expert(), 0, max_train_iter=3)
    assert all(row["action"].item() == 1 for batch in SEEN for row in batch[2:]) and len(SEEN) == 6


@pytest.mark.differs(
    "changes the expert's configs in `serial_pipeline_sqil` and `serial_pipeline_dqfd`, so that a second call fails",
    "leaves them alone",
)
def test_the_configs_stay_as_they_are_and_may_be_used_again():
    configs, experts = student(), expert()
    before = copy.deepcopy((configs, experts))
    for _ in range(2):
        serial_pipeline_sqil(configs, experts, 0, setting(), None, always(1), max_train_iter=1)
    assert (configs, experts) == before


def test_priorities_go_to_the_buffer_that_a_sample_came_from(monkeypatch):
    updates = []
    from ding.worker.replay_buffer.advanced_buffer import AdvancedReplayBuffer

    monkeypatch.setattr(AdvancedReplayBuffer, "update", lambda self, info: updates.append((self, info)))
    configs = student(priority=True, priority_IS_weight=True)
    serial_pipeline_sqil(configs, expert(), 0, setting(), None, always(1), max_train_iter=3)
    assert len(updates) == 6
    for batch, (own, own_info), (others, expert_info) in zip(SEEN, updates[::2], updates[1::2], strict=True):
        assert own is not others
        ids = [row["replay_unique_id"] for row in batch]
        assert [*own_info["replay_unique_id"]] == ids[:2] and [*expert_info["replay_unique_id"]] == ids[2:]
        assert len(own_info["priority"]) == len(expert_info["priority"]) == 2


def test_what_an_expert_needs_is_asked_for_before_anything_starts(tmp_path):
    with pytest.raises(ConfigError, match="the policy has no weights"):
        serial_pipeline_sqil(student(), expert(), 0, setting())
    with pytest.raises(FileNotFoundError):
        serial_pipeline_sqil(student(), expert(model_path="nowhere.pth.tar"), 0, setting())
    with pytest.raises(ConfigError, match=r"policy\.nstep = 3"):
        serial_pipeline_sqil(student(nstep=3), expert(), 0, setting(), None, always(1))
    assert [*tmp_path.iterdir()] == []


# --- DQfD ---


def dqfd_student(**learn):
    main, create = student(nstep=2)
    main.policy.learn.update({"per_train_iter_k": 2, "expert_replay_buffer_size": 20, **learn})
    main.policy.collect.pho = 0.5
    return main, create


def test_training_begins_with_demonstrations_alone():
    serial_pipeline_dqfd(dqfd_student(), expert(), 0, setting(), None, always(1), max_train_iter=12)
    assert len(SEEN) == 12
    marks = [[row["is_expert"] for row in batch] for batch in SEEN]
    assert marks[:2] == [[1] * 4] * 2
    assert {mark for batch in marks[2:] for mark in batch} == {0, 1}
    assert all(row["action"].item() == 1 for batch in SEEN for row in batch if row["is_expert"])


def test_a_policy_without_the_settings_of_dqfd_is_refused(tmp_path):
    main, create = dqfd_student()
    del main.policy.collect["pho"]
    with pytest.raises(ConfigError, match=r"policy\.collect\.pho is missing"):
        serial_pipeline_dqfd((main, create), expert(), 0, setting(), None, always(1))
    assert [*tmp_path.iterdir()] == []


def test_the_share_of_demonstrations_is_drawn_for_each_batch():
    main, create = dqfd_student(update_per_collect=40, batch_size=32, per_train_iter_k=0)
    main.policy.collect.update(pho=0.25, n_sample=32)
    serial_pipeline_dqfd((main, create), expert(), 0, setting(), None, always(1), max_train_iter=40)
    shares = [sum(row["is_expert"] for row in batch) for batch in SEEN]
    assert len(set(shares)) > 3 and 5 < np.mean(shares) < 11


def test_demonstrations_of_several_steps_are_complete():
    main, create = dqfd_student(per_train_iter_k=30, batch_size=16)
    serial_pipeline_dqfd((main, create), expert(), 0, setting(), None, always(1), max_train_iter=30)
    rewards = {(tuple(row["reward"].tolist()), bool(row["done"])) for batch in SEEN for row in batch}
    # Episodes of five steps: only the last step has nothing after it.
    assert rewards == {((1.0, 1.0), False), ((1.0, 1.0), True), ((1.0, 0.0), True)}
