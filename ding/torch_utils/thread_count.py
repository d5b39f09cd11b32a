"""How many threads torch computes with, in threads that it does not know yet."""

from __future__ import annotations

import torch


def keep_thread_count() -> None:
    """Let what the calling thread computes be split among as many threads as `torch.get_num_threads()` says.

    To be called where a thread that computes begins. What `torch.set_num_threads` was told elsewhere does not reach the
    matrix library in a new thread by itself: that takes one thread for each core. On busy cores these wait for each
    other at each small product, which then takes many times as long.
    """
    torch.set_num_threads(torch.get_num_threads())
