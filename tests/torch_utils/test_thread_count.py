import contextlib
import os
import threading
from functools import partial

import pytest
import torch
from easydict import EasyDict
from torch import nn

from ding.envs import BaseEnvManager
from ding.envs.env.gymnasium_env import GymnasiumEnv
from ding.policy import DQNPolicy
from ding.torch_utils import thread_count
from ding.torch_utils.thread_count import fitting_threads, flushing_denormals, keep_thread_count
from ding.worker import BaseLearner, InteractionSerialEvaluator, SampleSerialCollector


def test_a_new_thread_computes_with_as_many_threads_as_torch_was_told():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    counts = []

    def compute():
        keep_thread_count()
        counts.append(len(os.listdir("/proc/self/task")))
        torch.nn.Linear(128, 128)(torch.randn(8, 128))
        counts.append(len(os.listdir("/proc/self/task")))

    try:
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert counts[1] <= counts[0]  # nobody came to help


def is_flushing() -> bool:
    return (torch.tensor([1e-38]) * 0.01).item() == 0.0


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor cannot flush denormals")
@pytest.mark.parametrize("was_on", [False, True])
def test_denormals_are_flushed_while_a_function_runs_and_the_setting_of_before_comes_back(was_on):
    torch.set_flush_denormal(was_on)
    try:
        flushed = []

        def fail():
            flushed.append(is_flushing())
            flushing_denormals(lambda: flushed.append(is_flushing()))
            flushed.append(is_flushing())
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            flushing_denormals(fail)
        assert flushed == [True, True, True]
        assert is_flushing() is was_on
    finally:
        torch.set_flush_denormal(False)


@pytest.fixture
def three_threads(monkeypatch):
    """Torch has three, and nobody has chosen that."""
    for name in ("DING_TORCH_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    monkeypatch.setattr(thread_count, "AT_IMPORT", 3)
    yield
    torch.set_num_threads(before)


def threads_for(model):
    with fitting_threads(model):
        return torch.get_num_threads()


def test_small_networks_have_one_thread_and_large_ones_what_there_is(three_threads):
    assert threads_for(nn.Linear(100, 100)) == 1
    assert threads_for(nn.Linear(1000, 1000)) == 3
    assert threads_for(None) == 3
    assert torch.get_num_threads() == 3


def convolutional(width, size):
    """Two convolutions that halve images of `size` pixels a side, and a linear layer."""
    first, second = nn.Conv2d(3, width, 3, 2, 1), nn.Conv2d(width, width, 3, 2, 1)
    return nn.Sequential(first, nn.ReLU(), second, nn.Flatten(), nn.Linear(width * (size // 4) ** 2, 8))


@pytest.mark.differs(
    "uses all cores for any network, so that processes slow each other down",
    "uses one thread for small networks",
)
@pytest.mark.parametrize(
    ("model", "threads"),
    [
        (convolutional(16, 32), 1),  # 0.3 million multiplications for an image
        (convolutional(64, 16), 1),  # 0.7
        (convolutional(64, 64), 3),  # 11.2
        (nn.Sequential(nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3)), 1),
        (nn.Sequential(nn.Conv2d(64, 128, 5)), 3),
    ],
    ids=["few channels", "small images", "large images", "no linear layer", "no linear layer, many channels"],
)
def test_the_multiplications_of_convolutions_count(three_threads, model, threads):
    assert threads_for(model) == threads
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_a_number_of_threads_that_the_environment_chooses_stays(three_threads, monkeypatch, name):
    monkeypatch.setenv(name, "3")
    assert threads_for(nn.Linear(2, 2)) == 3


def test_a_number_of_threads_that_a_program_chooses_stays(three_threads):
    torch.set_num_threads(2)
    assert threads_for(nn.Linear(2, 2)) == 2


def test_the_switch_holds_for_all_networks(three_threads, monkeypatch):
    monkeypatch.setenv("DING_TORCH_THREADS", "2")
    assert threads_for(nn.Linear(2, 2)) == threads_for(nn.Linear(1000, 1000)) == 2
    monkeypatch.setenv("DING_TORCH_THREADS", "many")
    with pytest.raises(ValueError, match="DING_TORCH_THREADS"):
        threads_for(None)


def test_after_an_error_the_threads_come_back(three_threads):
    with contextlib.suppress(ZeroDivisionError), fitting_threads(nn.Linear(2, 2)):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 3


def test_the_workers_of_a_loop_written_by_hand_use_fitting_threads(three_threads, tmp_path):
    cfg = EasyDict(DQNPolicy.default_config())
    cfg.model = {"obs_shape": 4, "action_shape": 2}
    cfg.learn.batch_size, cfg.collect.n_sample = 4, 4
    policy = DQNPolicy(cfg)
    seen = []
    policy._model.register_forward_pre_hook(lambda *_: seen.append(torch.get_num_threads()))
    workers = {"exp_name": str(tmp_path)}

    def envs():
        cfg = {"env_id": "CartPole-v1"}
        return BaseEnvManager([partial(GymnasiumEnv, cfg)] * 2, BaseEnvManager.default_config())

    sections = [cls.default_config() for cls in (SampleSerialCollector, InteractionSerialEvaluator, BaseLearner)]
    sections[1].n_episode = 2
    with (
        contextlib.closing(SampleSerialCollector(sections[0], envs(), policy.collect_mode, **workers)) as collector,
        contextlib.closing(InteractionSerialEvaluator(sections[1], envs(), policy.eval_mode, **workers)) as evaluator,
        contextlib.closing(BaseLearner(sections[2], policy.learn_mode, **workers)) as learner,
    ):
        for run in (
            lambda: learner.train(collector.collect(policy_kwargs={"eps": 0.0})),
            lambda: evaluator.eval(),
        ):
            seen.clear()
            run()
            assert seen and set(seen) == {1}
            assert torch.get_num_threads() == 3
        torch.set_num_threads(2)  # a program chooses it later
        seen.clear()
        learner.train(collector.collect(policy_kwargs={"eps": 0.0}))
        assert seen and set(seen) == {2}
