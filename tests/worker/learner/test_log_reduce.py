"""The mean of the log buffer over ranks."""

import datetime
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from ding.torch_utils.data_helper import build_log_buffer
from ding.worker.learner import BaseLearner
from ding.worker.learner.learner_hook import LogReduceHook
from tests.worker.learner.fakes import FakePolicy, RecordingWriter, learner_cfg


def engine_with(scalar, scalars=(), histogram=()):
    buffer = {kind: build_log_buffer() for kind in ("scalar", "scalars", "histogram")}
    for kind, values in (("scalar", scalar), ("scalars", scalars), ("histogram", histogram)):
        buffer[kind].update(dict(values))
    return SimpleNamespace(log_buffer=buffer)


def reduce(engine):
    LogReduceHook("log_reduce", 10, position="after_iter")(engine)
    return engine.log_buffer


def join_group(path, rank, size):
    dist.init_process_group(
        "gloo", init_method=f"file://{path}", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=60)
    )


@pytest.fixture
def group_of_one(tmp_path):
    join_group(tmp_path / "rendezvous", 0, 1)
    yield
    dist.destroy_process_group()


def check_normalised():
    engine = engine_with(
        {"int": 2, "np": np.float32(0.5), "noreduce_name": "x", "flag": True},
        {"lr": {"a": 1, "noreduce_b": None, "t": torch.tensor([1.0, 2.0])}},
        {"q": (1, 2), "w": np.array([[1, 2]])},
    )
    sections = dict(engine.log_buffer)
    buffer = reduce(engine)
    assert buffer == {
        "scalar": {"int": 2.0, "np": 0.5, "noreduce_name": "x", "flag": 1.0},
        "scalars": {"lr": {"a": 1.0, "noreduce_b": None, "t": [1.0, 2.0]}},
        "histogram": {"q": [1.0, 2.0], "w": [[1.0, 2.0]]},
    }
    assert type(buffer["scalar"]["int"]) is float
    assert all(buffer[kind] is section for kind, section in sections.items())
    buffer["scalar"]["later"] = torch.tensor([3.0])
    assert buffer["scalar"]["later"] == [3.0]


def test_a_single_process_keeps_its_numbers_and_its_log_buffer():
    check_normalised()


@pytest.mark.differs(
    "needs CUDA, and a call for each scalar, to reduce logs over ranks",
    "reduces all of them in one call, also on CPUs",
)
def test_a_group_on_the_cpu_needs_no_gpu(group_of_one):
    check_normalised()


@pytest.mark.parametrize("value", ["text", None, object()])
def test_what_cannot_be_averaged_is_refused_by_name(value):
    with pytest.raises(TypeError, match="scalar/loss = "):
        reduce(engine_with({"loss": value}))


def test_a_whole_buffer_takes_one_reduction(monkeypatch):
    packed = []
    monkeypatch.setattr("ding.worker.learner.learner_hook.allreduce", lambda x: packed.append(x.tolist()))
    reduce(engine_with({"a": 1.0, "b": 2.0}, histogram={"q": [4.0, 5.0]}))
    assert len(packed) == 1 and packed[0][1:6] == [1.0, 2.0, 4.0, 5.0, 0.0]


def _train_on(rank, size, path, results):
    join_group(path, rank, size)
    try:
        policy = FakePolicy({"total_loss": float(rank), "[histogram]q": [float(rank), 1.0], "noreduce_rank": rank})
        learner = BaseLearner(
            learner_cfg({"log_show_after_iter": 1}), policy, RecordingWriter() if rank == 0 else None, exp_name="exp"
        )
        learner.train([])
        written = learner.tb_logger.written if rank == 0 else None
        errors = []
        for scalar in ({"ab"[rank]: 1.0}, dict.fromkeys("abc"[: 1 + rank], 1.0)):
            try:
                reduce(engine_with(scalar))
            except RuntimeError as error:
                errors.append(str(error))
        results[rank] = (learner.rank, learner.world_size, written, errors)
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_two_ranks_log_their_mean_and_notice_when_their_keys_differ(tmp_path):
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(_train_on, (2, str(tmp_path / "rendezvous"), results), nprocs=2)
        results = dict(results)
    assert [results[rank][:2] for rank in (0, 1)] == [(0, 2), (1, 2)]
    written = results[0][2]
    assert ("scalar", "learner_iter/total_loss_avg", 0.5, 0) in written
    assert ("histogram", "learner/q", [0.5, 1.0], 0) in written
    for rank in (0, 1):
        assert len(results[rank][3]) == 2 and all("different keys" in error for error in results[rank][3])
