"""Buffers in a folder of their own, closed after the test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ding.worker.replay_buffer import (
    AdvancedReplayBuffer,
    ElasticReplayBuffer,
    EpisodeReplayBuffer,
    NaiveReplayBuffer,
    SequenceReplayBuffer,
)
from tests.fakes import FakeWriter


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def tb() -> FakeWriter:
    return FakeWriter()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def _maker(cls: type) -> Iterator[Callable[..., Any]]:
    made = []

    def make(size: int = 64, tb_logger: Any = None, name: str = "demo", **cfg: Any) -> Any:
        made.append(cls({"replay_buffer_size": size, **cfg}, tb_logger or FakeWriter(), "exp", name))
        return made[-1]

    yield make
    for buffer in made:
        buffer.close()


@pytest.fixture
def make_naive() -> Iterator[Callable[..., NaiveReplayBuffer]]:
    yield from _maker(NaiveReplayBuffer)


@pytest.fixture
def make_advanced() -> Iterator[Callable[..., AdvancedReplayBuffer]]:
    yield from _maker(AdvancedReplayBuffer)


@pytest.fixture
def make_sequence() -> Iterator[Callable[..., SequenceReplayBuffer]]:
    yield from _maker(SequenceReplayBuffer)


@pytest.fixture
def make_episode() -> Iterator[Callable[..., EpisodeReplayBuffer]]:
    yield from _maker(EpisodeReplayBuffer)


@pytest.fixture
def make_elastic() -> Iterator[Callable[..., ElasticReplayBuffer]]:
    yield from _maker(ElasticReplayBuffer)
