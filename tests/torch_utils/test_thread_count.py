import os
import threading

import torch

from ding.torch_utils.thread_count import keep_thread_count


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
