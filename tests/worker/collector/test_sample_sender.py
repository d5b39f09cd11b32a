"""The metadata of samples, in dicts and in columns."""

import numpy as np
import pytest

from ding.utils.data.samples import Column, Kind, Samples, Table, table_of
from ding.worker.collector.task_collector import SampleSender


class Sink:
    """Keeps chunks and metadata."""

    def __init__(self):
        def send_stepdata(name, content):
            self.contents.append(content)
            return self.reference

        self.contents, self.metadata, self.reference = [], [], None
        self.sender = SampleSender("env_a", send_stepdata, self.metadata.append, "lz4", 1, 0.0)


VALUE = Column(Kind.FLOAT, np.array([0.5, 1.5]))
PIECES = {
    "plain": {},
    "iterations": {"collect_iter": Column(Kind.INT, np.array([3, 4]))},
    "priorities": {"priority": Column(Kind.TENSOR, np.array([[2.0], [0.25]], np.float32))},
    "steps": {"collect_iter": Column(Kind.INT, np.array([[3, 3, 4], [5, 6, 6]]), steps=True)},
}


@pytest.mark.parametrize("more", [{}, {"policy_iter": [9, 2], "player": 1, "weight": 0.5}], ids=["usual", "more"])
@pytest.mark.parametrize("reference", [None, "of_the_object"])
@pytest.mark.parametrize("piece", PIECES)
def test_the_metadata_of_each_sample_are_in_columns(piece, reference, more):
    sink = Sink()
    sink.reference = reference
    for number in range(2):
        for env_id in range(2):
            samples = Samples(Table({"value": VALUE, **PIECES[piece]}))
            sink.sender.add(samples, env_id=env_id, collect_iter=7, **more)
        sink.sender.send({"cur_step": number, "get_data_time": 0.5})
    assert all(table_of(metadata) is not None for metadata in sink.metadata)
    iterations = {"iterations": [3, 4], "steps": [3, 5]}.get(piece, [7, 7])
    expected = [
        {
            "cur_step": number,
            "get_data_time": 0.5,
            "data_id": f"env_a_{number}",
            "compressor": "lz4",
            "env_id": env_id,
            "data_index": 2 * env_id + i,
            "cur_sample": 4 * number + 2 * env_id + i + 1,
            "collect_iter": iterations[i],
            "policy_iter": iterations[i],
            "unroll_len": 3 if piece == "steps" else 1,
            "priority": [2.0, 0.25][i] if piece == "priorities" else 1.0,
            **({"object_ref": reference} if reference else {}),
            **more,
        }
        for number in range(2)
        for env_id in range(2)
        for i in range(2)
    ]
    rows = [row for rows in sink.metadata for row in rows]
    assert rows == expected and types(rows) == types(expected)
    assert sink.sender.sent == 8


def types(rows):
    return [{key: type(row[key]) for key in sorted(row)} for row in rows]
