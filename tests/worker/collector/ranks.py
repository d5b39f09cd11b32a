"""One of several ranks of a run, without the others."""


def as_rank(monkeypatch, rank, size=2, told=None, sums=None):
    """Let this process be one of `size` ranks.

    Args:
        monkeypatch: the fixture.
        rank: the rank of this process.
        size: the number of ranks.
        told: what rank 0 tells the others.
        sums: what the others add to each sum; by default as much each as this rank.

    Returns:
        the tensors it has reduced with their operations, and the lists it has told.
    """
    reduced, sent = [], []

    def allreduce_data(tensor, op):
        reduced.append((tensor.clone(), op))
        return tensor * size if sums is None else tensor + tensor.new_tensor(sums)

    def broadcast_object_list(objects, src):
        if rank == 0:
            sent.append(list(objects))
        else:
            objects[:] = told

    parts = {
        "collector.get_rank": lambda: rank,
        "collector.get_world_size": lambda: size,
        "collector.allreduce_data": allreduce_data,
        "evaluator.broadcast_object_list": broadcast_object_list,
    }
    for name, part in parts.items():
        monkeypatch.setattr(f"ding.worker.collector.base_serial_{name}", part)
    return reduced, sent
