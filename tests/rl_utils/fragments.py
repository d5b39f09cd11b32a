"""Random trajectory fragments in columns, and the comparison of samples made together with samples made one by one."""

import numpy as np
import torch

from ding.utils.data.samples import Column, Kind, Table, columns_of

OBSERVATIONS = {
    "vector": lambda draw: torch.from_numpy(draw.random(3, np.float32)),
    "image": lambda draw: torch.from_numpy(draw.integers(0, 255, (2, 3), np.uint8)),
    "number": lambda draw: float(draw.random()),
    "dict": lambda draw: {"pos": torch.from_numpy(draw.random(2)), "goal": {"x": torch.ones(1) * draw.random()}},
    "of many shapes": lambda draw: torch.from_numpy(draw.random(draw.integers(1, 4))),
}
ACTIONS = {
    "number": lambda draw: torch.from_numpy(draw.integers(0, 5, 1)),
    "tuple": lambda draw: (torch.from_numpy(draw.integers(0, 5, 1)), torch.from_numpy(draw.random(2))),
    "list": lambda draw: [torch.from_numpy(draw.integers(0, 5, 1)) for _ in range(2)],
    "dict": lambda draw: {"type": torch.from_numpy(draw.integers(0, 5, 1)), "args": torch.from_numpy(draw.random(2))},
}
REWARDS = {
    "tensor": lambda draw: torch.from_numpy(draw.standard_normal(1, np.float32)),
    "scalar tensor": lambda draw: torch.tensor(draw.standard_normal()),
    "agents": lambda draw: torch.from_numpy(draw.standard_normal((2, 1), np.float32)),
    "vector": lambda draw: torch.from_numpy(draw.standard_normal(3, np.float32)),
    "float": lambda draw: float(draw.standard_normal()),
    "array": lambda draw: draw.standard_normal(1),
    "mixed": lambda draw: [1.0, np.float32(-0.0), torch.tensor(2.5)][draw.integers(3)],
    "half": lambda draw: torch.tensor([draw.standard_normal()]).bfloat16(),
}
# How a step tells that its episode goes on (False) or has ended (True).
FLAGS = {
    "done": lambda ends, draw: {"done": ends},
    "done tensor": lambda ends, draw: {"done": torch.tensor([ends])},
    "all flags": lambda ends, draw: {"done": ends, **_one_of_two(ends, draw)},
    "truncated": lambda ends, draw: {"done": ends, "truncated": ends and bool(draw.integers(2))},
    "untold": lambda ends, draw: (
        {"done": ends, **dict.fromkeys(("terminated", "truncated"))}
        if draw.integers(2)
        else {"done": ends, **_one_of_two(ends, draw)}
    ),
}


def _one_of_two(ends, draw):
    is_terminated = bool(draw.integers(2))
    return {"terminated": ends and is_terminated, "truncated": ends and not is_terminated}


def make_fragment(draw, length, obs="vector", action="number", reward="tensor", flags="done", ends=None):
    """Transitions of a fragment; it ends by chance, or as `ends` says, and rarely within it."""
    observations = [OBSERVATIONS[obs](draw) for _ in range(length + 1)]
    rows = []
    for i in range(length):
        is_end = draw.random() < 0.05 if i < length - 1 else draw.random() < 0.5 if ends is None else ends
        rows.append(
            {
                "obs": observations[i],
                "next_obs": observations[i + 1],
                "action": ACTIONS[action](draw),
                "logit": torch.from_numpy(draw.random(2, np.float32)),
                "value": torch.from_numpy(draw.standard_normal(3 if reward == "vector" else 1, np.float32)),
                "prev_state": {"h": torch.from_numpy(draw.random((1, 1, 2))), "c": torch.zeros(1)},
                "reward": REWARDS[reward](draw),
                **FLAGS[flags](is_end, draw),
                "note": f"room {draw.integers(9)}",
            }
        )
    return rows


def make_fragments(seed, lengths, **kinds):
    """A table of fragments of these lengths, one after the other, in shared arrays."""
    draw = np.random.default_rng(seed)
    rows = [row for length in lengths for row in make_fragment(draw, length, **kinds)]
    return Table(Table.of(rows).columns, chained=True, lengths=np.array(lengths))


def parts_of(samples):
    """Each fragment alone, in columns."""
    stops = samples.lengths.cumsum()
    return [samples.take(slice(stop - length, stop)) for stop, length in zip(stops, samples.lengths, strict=True)]


def assert_same(made, parts):
    """Check that samples made of all fragments together are, bit by bit, those made of each fragment alone."""
    assert isinstance(made, Table) and all(isinstance(part, Table) for part in parts)
    assert made.lengths.dtype == np.int64 and made.lengths.tolist() == [len(part) for part in parts]
    assert len(made) == sum(map(len, parts)) and all(part.lengths is None for part in parts)
    alone = [part for part in parts if len(part)] or parts[:1]
    expected = Table.joined(alone)
    assert list(made.columns) == list(expected.columns)
    assert made.is_chained is expected.is_chained
    for key, node in made.columns.items():
        assert_same_node(node, expected.columns[key], key)
    assert sharing(made) == sharing(expected)


def sharing(samples):
    """For each column of observations, the samples whose next observation is the row of the next sample's, or None."""
    if not {"obs", "next_obs"} <= samples.columns.keys():
        return None
    pairs = zip(columns_of(samples.columns["obs"]), columns_of(samples.columns["next_obs"]), strict=True)
    return [
        (obs.rows[1:] == after.rows[:-1]).tolist() if obs.data is after.data and obs.rows is not None else None
        for obs, after in pairs
        if obs.kind is not Kind.OBJECT
    ]


def assert_same_node(one, other, path=""):
    assert type(one) is type(other), path
    if isinstance(one, Column):
        assert one.kind is other.kind and one.steps is other.steps, path
        assert_same_item(one.values(), other.values(), path)
    elif isinstance(one, dict):
        assert list(one) == list(other), path
        for key in one:
            assert_same_node(one[key], other[key], f"{path}.{key}")
    else:
        assert len(one) == len(other), path
        for i, pair in enumerate(zip(one, other, strict=True)):
            assert_same_node(*pair, f"{path}[{i}]")


def assert_same_item(one, other, path=""):
    assert type(one) is type(other), path
    if isinstance(one, torch.Tensor):
        assert one.dtype is other.dtype and one.shape == other.shape, path
        assert one.reshape(-1).view(torch.uint8).tolist() == other.reshape(-1).view(torch.uint8).tolist(), path
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes(), path
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), path
        for pair in zip(one, other, strict=True):
            assert_same_item(*pair, path)
    elif isinstance(one, dict):
        assert list(one) == list(other), path
        for key in one:
            assert_same_item(one[key], other[key], f"{path}.{key}")
    else:
        assert one == other, path
