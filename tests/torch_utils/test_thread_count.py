import contextlib
import os
import threading

import pytest
import torch

from ding.torch_utils.thread_count import flushed_denormals, keep_thread_count


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
def test_denormals_are_flushed_within_the_block_and_the_setting_of_before_comes_back(was_on):
    torch.set_flush_denormal(was_on)
    try:
        with contextlib.suppress(ZeroDivisionError), flushed_denormals():
            assert is_flushing()
            with flushed_denormals():
                assert is_flushing()
            assert is_flushing()
            raise ZeroDivisionError
        assert is_flushing() is was_on
    finally:
        torch.set_flush_denormal(False)
