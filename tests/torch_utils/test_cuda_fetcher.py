import threading

import pytest
import torch

from ding.torch_utils import CudaFetcher


def test_batches_come_in_order_and_the_end_is_told():
    fetcher = CudaFetcher(iter([{"x": torch.tensor(i)} for i in range(6)]), "cpu", queue_size=2)
    assert iter(fetcher) is fetcher
    fetcher.run()
    fetcher.run()
    assert fetcher.next()["x"].item() == 0
    assert [batch["x"].item() for batch in fetcher] == [1, 2, 3, 4, 5]
    fetcher.close()


def test_an_error_of_the_source_reaches_next():
    def source():
        yield 1
        raise ZeroDivisionError("of the test")

    fetcher = CudaFetcher(source(), "cpu")
    fetcher.run()
    assert next(fetcher) == 1
    with pytest.raises(ZeroDivisionError):
        next(fetcher)
    fetcher.close()


def test_closing_ends_the_thread_and_next_gives_none():
    before = set(threading.enumerate())
    fetcher = CudaFetcher(iter(int, 1), "cpu")
    fetcher.close()
    fetcher.run()
    assert next(fetcher) == 0
    fetcher.close()
    fetcher.close()
    assert next(fetcher) is None
    assert set(threading.enumerate()) == before


@pytest.mark.gpu
def test_batches_arrive_on_the_gpu():
    fetcher = CudaFetcher(iter([{"x": torch.full((1000,), float(i))} for i in range(20)]), "cuda")
    fetcher.run()
    assert [(batch["x"].is_cuda, batch["x"].sum().item()) for batch in fetcher] == [
        (True, 1000.0 * i) for i in range(20)
    ]
    fetcher.close()
