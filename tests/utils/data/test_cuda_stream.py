import contextlib

import pytest
import torch

from ding.utils.data import AsyncDataLoader, dataloader
from ding.utils.data.dataloader import StreamCopier


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
