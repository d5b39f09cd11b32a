"""A library with its own policy, collector, evaluator, buffer and entry trains on the package."""

import pytest
import torch
from easydict import EasyDict

from ding.worker import create_buffer
from tests.compat.search_library import HERE, SegmentBuffer, train_search


def config_pair(manager="base", **policy):
    """The config pair of the library's example; many of its keys are read by the library alone."""
    main = EasyDict(
        exp_name="search_seed0",
        env=dict(
            collector_env_num=2,
            evaluator_env_num=2,
            n_evaluator_episode=3,
            stop_value=100,
            action_num=3,
            manager=dict(shared_memory=False),
        ),
        policy=dict(
            model=dict(observation_shape=3, action_space_size=3),
            env_type="not_board_games",
            collector_env_num=2,
            evaluator_env_num=2,
            n_episode=4,
            batch_size=6,
            update_per_collect=3,
            segment_length=4,
            **policy,
        ),
    )
    create = EasyDict(
        env=dict(type="compat_target", import_names=["tests.compat.target_env"]),
        env_manager=dict(type=manager),
        policy=dict(type="one_step_search", import_names=[HERE]),
        collector=dict(type="episode_segment", import_names=[HERE]),
    )
    return main, create


@pytest.mark.guarantees("interfaces")
def test_the_entry_of_a_library_trains_with_its_own_parts(tmp_path):
    policy, learner, collector, buffer = train_search(config_pair(), max_train_iter=6)
    assert learner.train_iter == 6
    assert collector.envstep == 2 * 4 * 6 == buffer.count()
    assert policy.collect_mode.get_attribute("cfg").segment_length == 4
    assert policy.learn_mode.get_attribute("batch_size") == 6
    saved = sorted(path.name for path in (tmp_path / "search_seed0" / "ckpt").iterdir())
    assert saved == ["ckpt_best.pth.tar", "iteration_0.pth.tar", "iteration_4.pth.tar", "iteration_6.pth.tar"]
    collector.close()


def test_a_library_goes_on_from_its_own_checkpoint():
    first = train_search(config_pair(), max_train_iter=3)
    state = {key: value.clone() for key, value in first[0].learn_mode.state_dict()["model"].items()}
    second = train_search(config_pair(), max_train_iter=0, model_path="search_seed0/ckpt/iteration_3.pth.tar")
    loaded = second[0].learn_mode.state_dict()["model"]
    assert state.keys() == loaded.keys() and all(torch.equal(state[key], loaded[key]) for key in state)


def test_a_library_trains_on_env_processes():
    _, learner, collector, _ = train_search(config_pair("subprocess"), max_train_iter=3)
    assert (learner.train_iter, collector.envstep) == (3, 24)
    collector.close()


def test_the_buffer_of_a_library_is_made_by_its_type():
    cfg = EasyDict(type="segment", import_names=[HERE], replay_buffer_size=10)
    assert isinstance(create_buffer(cfg), SegmentBuffer)
