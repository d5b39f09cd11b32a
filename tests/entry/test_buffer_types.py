"""Which replay buffers `serial_pipeline` trains from."""

from __future__ import annotations

from pathlib import Path

from ding.entry.serial_entry import run_serial
from ding.worker import ElasticReplayBuffer, EpisodeReplayBuffer
from tests.entry.fakes import pair


def configs(buffer_type: str, **buffer_cfg: object):
    main, create = pair()
    main.policy.other.replay_buffer.update(buffer_cfg)
    create.replay_buffer = {"type": buffer_type}
    return main, create


def test_an_elastic_buffer_gives_its_newest_transitions():
    asked = []

    def set_buffer_size(envstep):
        asked.append(envstep)
        return 16

    run = run_serial(configs("elastic", set_buffer_size=set_buffer_size), max_train_iter=9)
    assert type(run.buffer) is ElasticReplayBuffer and run.learner.train_iter == 9
    assert set(asked) == {0}  # nobody tells the buffer of env steps here


def test_an_episode_buffer_is_one_of_transitions_with_a_collector_of_samples():
    run = run_serial(configs("episode"), max_train_iter=6)
    assert type(run.buffer) is EpisodeReplayBuffer and run.learner.train_iter == 6
    assert "should be an episode, a list of transitions" in Path("exp/log/buffer/buffer_logger.txt").read_text()
