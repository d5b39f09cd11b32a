import contextlib
import gc
import logging
import threading

import pytest
import torch

from ding.utils.data import AsyncDataLoader, IDataLoader, dataloader
from ding.utils.data.dataloader import StreamCopier


class Source:
    """Counts its calls; batch k holds the numbers from k * size on, as dicts or as callables."""

    def __init__(self, as_callables=False):
        self.calls = 0
        self.as_callables = as_callables
        self.called = threading.Condition()

    def __call__(self, size):
        with self.called:
            begin = self.calls * size
            self.calls += 1
            self.called.notify_all()
        samples = [{"x": i} for i in range(begin, begin + size)]
        return [lambda sample=sample: sample for sample in samples] if self.as_callables else samples

    def wait_for_calls(self, count):
        with self.called:
            assert self.called.wait_for(lambda: self.calls >= count, timeout=10)


@pytest.fixture(autouse=True)
def no_thread_stays():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(("as_callables", "num_workers"), [(False, 0), (True, 0), (True, 1), (True, 3), (False, 3)])
def test_batches_and_samples_come_in_order(as_callables, num_workers):
    loader = AsyncDataLoader(Source(as_callables), 4, "cpu", chunk_size=2, num_workers=num_workers)
    assert isinstance(loader, IDataLoader)
    assert iter(loader) is loader
    for k in range(10):
        assert next(loader)["x"].tolist() == list(range(4 * k, 4 * k + 4))
    loader.close()


def test_samples_keep_their_order_when_callables_end_in_another():
    second_ended = threading.Event()

    def first():
        assert second_ended.wait(10)
        return {"x": 0}

    def second():
        second_ended.set()
        return {"x": 1}

    loader = AsyncDataLoader(lambda size: [first, second], 2, "cpu", num_workers=2)
    assert next(loader)["x"].tolist() == [0, 1]
    loader.close()


def test_loading_starts_at_construction_and_stops_at_the_bound():
    source = Source()
    loader = AsyncDataLoader(source, 2, "cpu")
    source.wait_for_calls(2)
    next(loader)
    source.wait_for_calls(3)
    loader.close()
    assert source.calls == 3


def test_a_batch_goes_through_collate_fn():
    loader = AsyncDataLoader(Source(), 2, "cpu", collate_fn=lambda samples: [sample["x"] for sample in samples])
    assert next(loader) == [0, 1]
    loader.close()


def fail(*args):
    raise ZeroDivisionError("of the test")


@pytest.mark.differs(
    "blocks forever in `next` of the dataloader after an exception in a worker, leaves a manager process behind, "
    "and orders samples as workers end",
    "raises the exception, leaves nothing behind, and keeps the order of the source",
)
@pytest.mark.parametrize(
    "options",
    [
        {"data_source": fail},
        {"data_source": lambda size: [fail] * size},
        {"data_source": lambda size: [fail] * size, "num_workers": 2},
        {"data_source": Source(), "collate_fn": fail},
    ],
)
def test_an_error_reaches_next_every_time(options):
    loader = AsyncDataLoader(batch_size=2, device="cpu", **options)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="of the test"):
            next(loader)
    loader.close()
    assert next(loader) is None


def test_next_after_close_gives_none_and_close_may_be_repeated():
    loader = AsyncDataLoader(Source(True), 2, "cpu", num_workers=2)
    next(loader)
    loader.close()
    loader.close()
    assert next(loader) is None
    assert next(loader) is None


def test_close_wakes_a_next_that_waits():
    asked, release = threading.Event(), threading.Event()

    def source(size):
        asked.set()
        release.wait(10)
        return [{"x": 0}]

    loader = AsyncDataLoader(source, 1, "cpu")
    taken = []
    taker = threading.Thread(target=lambda: taken.append(next(loader)))
    taker.start()
    assert asked.wait(10)
    closer = threading.Thread(target=loader.close)
    closer.start()
    taker.join(10)
    assert taken == [None]
    release.set()
    closer.join(10)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_close_is_bounded_and_warns_when_the_source_is_stuck(num_workers, monkeypatch, caplog):
    monkeypatch.setattr(dataloader, "_JOIN_S", 0.05)
    asked, release = threading.Event(), threading.Event()

    def stuck():
        asked.set()
        release.wait(10)
        return {"x": 0}

    loader = AsyncDataLoader(lambda size: [stuck] * size, 2, "cpu", num_workers=num_workers)
    assert asked.wait(10)
    with caplog.at_level(logging.WARNING, "ding"):
        loader.close()
    assert "did not end" in caplog.text
    assert next(loader) is None
    release.set()
    for thread in threading.enumerate():
        if thread.name.startswith("dataloader"):
            thread.join(10)


def test_a_forgotten_loader_ends_its_threads():
    before = set(threading.enumerate())
    loader = AsyncDataLoader(Source(True), 2, "cpu", num_workers=2)
    next(loader)
    del loader
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="data_source"):
        AsyncDataLoader([1], 2, "cpu")
    with pytest.raises(TypeError, match="device"):
        AsyncDataLoader(Source(), 2, torch.device("cpu"))
    with pytest.raises(ValueError, match="num_workers"):
        AsyncDataLoader(Source(), 2, "cpu", num_workers=-1)
    for chunk_size in (0, 3):
        with pytest.raises(AssertionError, match="chunk_size"):
            AsyncDataLoader(Source(), 4, "cpu", chunk_size=chunk_size)


@pytest.mark.gpu
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_arrive_on_the_gpu(num_workers):
    loader = AsyncDataLoader(Source(True), 2, "cuda", num_workers=num_workers)
    for k in range(20):
        batch = next(loader)
        assert batch["x"].is_cuda
        assert batch["x"].tolist() == [2 * k, 2 * k + 1]
    loader.close()


@pytest.mark.gpu
def test_a_batch_is_not_overwritten_while_the_gpu_still_reads_it():
    size = 1 << 20

    def source(batch_size):
        source.count += 1
        return [{"x": torch.full((size,), float(source.count))}]

    source.count = 0
    loader = AsyncDataLoader(source, 1, "cuda:0")
    big, sums = torch.rand(4000, 4000, device="cuda"), []
    for _ in range(30):
        batch = next(loader)
        for _ in range(3):
            big = torch.nn.functional.normalize(big @ big)  # keeps the stream busy, so that the sum below runs late
        sums.append(batch["x"].double().sum())
        del batch
    assert [value.item() for value in sums] == [size * (k + 1.0) for k in range(30)]
    loader.close()


@pytest.fixture
def events(monkeypatch):
    """What happens on a GPU that is not there, in order."""
    told = []

    class Stream:
        def __init__(self, device):
            told.append(f"new stream on {device}")

        def synchronize(self):
            told.append("wait for the copy")

    @contextlib.contextmanager
    def use(stream):
        told.append("enter stream")
        yield
        told.append("leave stream")

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", use)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "computing stream")
    monkeypatch.setattr(dataloader, "_record", lambda tensor, stream: told.append(f"{tensor.item()} on {stream}"))
    return told


def test_a_batch_is_copied_on_its_own_stream_and_made_known_to_the_computing_one(events):
    def mover(batch, device):
        events.append(f"copy to {device}")
        return batch

    copier = StreamCopier("cuda:1", mover)
    batch = copier.move({"x": [torch.tensor(1)], "y": (torch.tensor(2), "text")})
    assert events == ["new stream on cuda:1", "enter stream", "copy to cuda:1", "leave stream", "wait for the copy"]
    events.clear()
    assert copier.hand_over(batch) is batch
    assert events == ["1 on computing stream", "2 on computing stream"]


def test_the_dataloader_copies_only_for_a_gpu(events):
    def mover(batch, device):
        events.append(f"copy to {device}")
        return batch

    for device in ("cpu", "cuda"):
        loader = AsyncDataLoader(lambda size: [{"x": 7}], 1, device, to_device_fn=mover)
        assert next(loader)["x"].item() == 7
        loader.close()
        if device == "cpu":
            assert events == []
    assert {"copy to cuda", "7 on computing stream"} <= set(events)


def test_without_a_mover_the_tensors_in_containers_move():
    moved = StreamCopier("meta").move({"x": (torch.zeros(1), "text"), "n": 1})
    assert moved["x"][0].is_meta and moved["x"][1] == "text" and moved["n"] == 1
