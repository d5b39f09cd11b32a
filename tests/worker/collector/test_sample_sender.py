"""Metadata in columns are those that are built one by one."""

import numpy as np
import pytest

from ding.utils.data.samples import Column, Kind, Samples
from ding.worker.collector.sample_sender import Metadata, SampleSender, joined_metadata


class Sink:
    """Takes samples or encoded chunks, and keeps all metadata."""

    def __init__(self, takes_samples):
        def send_stepdata(name, content):
            self.contents.append(content)
            return self.reference

        self.contents, self.metadata, self.reference = [], [], None
        send_stepdata.takes_samples = takes_samples
        self.sender = SampleSender("env_a", send_stepdata, self.metadata.append, "lz4", 1, 0.0)


VALUE = Column(Kind.FLOAT, np.array([0.5, 1.5]))
PIECES = {
    "plain": {},
    "iterations": {"collect_iter": Column(Kind.INT, np.array([3, 4]))},
    "priorities": {"priority": Column(Kind.TENSOR, np.array([[2.0], [0.25]], np.float32))},
    "steps": {"collect_iter": Column(Kind.INT, np.array([[3, 3, 4], [5, 6, 6]]), steps=True)},
}


@pytest.mark.parametrize("more", [{}, {"policy_iter": 9, "player": "one", "weight": 0.5}], ids=["usual", "more"])
@pytest.mark.parametrize("reference", [None, "of_the_object"])
@pytest.mark.parametrize("piece", PIECES)
def test_metadata_in_columns_are_the_dicts_that_others_get(piece, reference, more):
    sinks = Sink(True), Sink(False)
    for sink in sinks:
        sink.reference = reference
        for number in range(2):
            for env_id in range(2):
                samples = Samples({"value": VALUE, **PIECES[piece]})
                sink.sender.add(samples, env_id=env_id, collect_iter=7, **more)
            sink.sender.send({"cur_step": number, "get_data_time": 0.5})
    ours, theirs = sinks[0].metadata, sinks[1].metadata
    assert all(type(metadata) is Metadata for metadata in ours)
    joined = joined_metadata([Metadata(metadata.pieces) for metadata in ours])
    assert types(joined) == types([row for metadata in theirs for row in metadata])
    assert [metadata.last() for metadata in ours] == [rows[-1] for rows in theirs]
    assert list(joined) == [row for metadata in theirs for row in metadata]
    assert [list(metadata) for metadata in ours] == theirs
    assert sinks[0].sender.sent == sinks[1].sender.sent == 8


def types(rows):
    return [{key: type(value) for key, value in row.items()} for row in rows]


def test_samples_that_must_be_read_one_by_one_have_dicts_as_metadata():
    sink = Sink(True)
    sink.sender.add([{"value": 1}], env_id=0, collect_iter=7)
    sink.sender.send({})
    sink.sender.add(Samples({"value": VALUE, "priority": Column(Kind.OBJECT, [2, 3])}), env_id=0, collect_iter=7)
    sink.sender.send({})
    assert [type(metadata) for metadata in sink.metadata] == [list, list]
    assert [row["priority"] for row in sink.metadata[1]] == [2.0, 3.0]
    assert [row["cur_sample"] for rows in sink.metadata for row in rows] == [1, 2, 3]


def test_pieces_with_other_keys_have_dicts_as_metadata():
    sink = Sink(True)
    sink.sender.add(Samples({"value": VALUE}), env_id=0, collect_iter=7)
    sink.sender.add(Samples({"value": VALUE}), env_id=1, collect_iter=7, player="one")
    sink.sender.send({})
    (rows,) = sink.metadata
    assert [row.get("player") for row in rows] == [None, None, "one", "one"]


def test_metadata_that_were_read_are_not_joined():
    sink = Sink(True)
    for _ in range(2):
        sink.sender.add(Samples({"value": VALUE}), env_id=0, collect_iter=7)
        sink.sender.send({})
    sink.metadata[0][0]["policy_iter"] = 8
    assert joined_metadata(sink.metadata) is None
    assert sink.metadata[0][0]["policy_iter"] == 8
