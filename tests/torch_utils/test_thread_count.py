import os
import threading

import pytest
import torch
from torch import nn

from ding.torch_utils import thread_count
from ding.torch_utils.thread_count import fitting_threads, flushing_denormals, keep_thread_count


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


def test_a_number_of_threads_that_a_program_chooses_stays(three_threads):
    torch.set_num_threads(2)
    assert threads_for(nn.Linear(2, 2)) == 2
