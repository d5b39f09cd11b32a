"""The elastic buffer: draws from as many of the newest items as it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from ding.utils.config_helper import ConfigError
from ding.worker.replay_buffer import ElasticReplayBuffer


def items(start: int, stop: int) -> list[dict]:
    return [{"n": i} for i in range(start, stop)]


def drawn(buffer: ElasticReplayBuffer, size: int, rounds: int = 60) -> set[int]:
    return {item["n"] for _ in range(rounds) for item in buffer.sample(size, 0)}


def test_only_the_newest_items_are_drawn_as_many_as_update_says(make_elastic):
    asked = []

    def set_buffer_size(envstep):
        asked.append(envstep)
        return 3 if envstep < 100 else 5

    buffer = make_elastic(8, set_buffer_size=set_buffer_size)
    buffer.push(items(0, 6), 6)
    assert drawn(buffer, 2) == {3, 4, 5}
    buffer.update(100)
    assert drawn(buffer, 2) == {1, 2, 3, 4, 5}
    buffer.push(items(6, 11), 200)
    assert drawn(buffer, 5) == {6, 7, 8, 9, 10}
    buffer.update(50)
    assert drawn(buffer, 3, rounds=1) == {8, 9, 10}
    assert asked == [0, 100, 50]
    assert (buffer.count(), buffer.push_count, buffer.replay_buffer_size) == (8, 11, 8)


def test_a_size_above_the_items_there_draws_from_all(make_elastic):
    buffer = make_elastic(4, set_buffer_size=lambda envstep: float("inf"))
    buffer.push(items(0, 6), 0)
    assert drawn(buffer, 4, rounds=1) == {2, 3, 4, 5}


def test_too_few_among_the_newest_give_none(make_elastic):
    buffer = make_elastic(8, set_buffer_size=lambda envstep: 2)
    buffer.push(items(0, 8), 0)
    assert buffer.sample(3, 0) is None
    assert {item["n"] for item in buffer.sample(50, 0, replace=True)} == {6, 7}
    none = make_elastic(8, name="none", set_buffer_size=lambda envstep: 0)
    none.push(items(0, 8), 0)
    assert none.sample(1, 0, replace=True) is None


def test_a_sample_range_is_refused(make_elastic):
    buffer = make_elastic(8, set_buffer_size=lambda envstep: 2)
    buffer.push(items(0, 8), 0)
    with pytest.raises(AssertionError):
        buffer.sample(1, 0, sample_range=slice(-1, None))


def test_the_function_is_required_and_must_be_one():
    with pytest.raises(AttributeError):
        ElasticReplayBuffer(ElasticReplayBuffer.default_config(), exp_name="exp")
    assert not Path("exp").exists()
    with pytest.raises(ConfigError):
        ElasticReplayBuffer({"set_buffer_size": 5}, exp_name="exp")


def test_update_takes_env_steps_and_nothing_else(make_elastic):
    buffer = make_elastic(8, set_buffer_size=lambda envstep: 2)
    with pytest.raises(TypeError):
        buffer.update({"priority": [1.0]})


def test_a_state_keeps_the_current_size(make_elastic):
    sizes = lambda envstep: 2 if envstep == 0 else 4  # noqa: E731
    buffer, other = (make_elastic(8, name=name, set_buffer_size=sizes) for name in ("one", "other"))
    buffer.push(items(0, 8), 0)
    buffer.update(1)
    other.load_state_dict(buffer.state_dict())
    assert drawn(other, 4, rounds=1) == {4, 5, 6, 7}
