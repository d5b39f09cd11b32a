"""Operations of a group in which something goes wrong, with a line to ranks that are not there."""

import pytest
import torch
import torch.distributed as dist

from ding.utils import collectives
from ding.utils.collectives import await_work, begin, comm_device, copy_objects, current, on_comm_device
from ding.utils.rank_line import RankFailedError

FAILED = RankFailedError(1, "it broke", "rank 1 failed")


class Line:
    """Knows of a failure from its `after`-th look on, and of ranks that have left."""

    def __init__(self, after=None, left=None):
        self.looks, self.waited = 0, []
        self._after, self._left = after, left

    def check(self):
        self.looks += 1
        if self._after is not None and self.looks > self._after:
            raise FAILED

    def wait_for_failure(self, seconds):
        self.waited.append(seconds)
        self.check()

    def first_left(self, seconds=0.0):
        return self._left


class Work:
    """An operation whose waits end as told: None for a result, "late", or an exception, which stays."""

    def __init__(self, *ends, completed_when_late=False):
        self._ends = list(ends)
        self._completed_when_late = completed_when_late
        self.timeouts = []

    def wait(self, timeout=None):
        self.timeouts.append(timeout)
        end = self._ends[0]
        if not isinstance(end, Exception):
            self._ends.pop(0)
        self._is_late = end == "late"
        if self._is_late:
            raise RuntimeError("Operation timed out!")
        if end is not None:
            raise end

    def is_completed(self):
        return not self._is_late or self._completed_when_late


@pytest.fixture
def line(monkeypatch):
    def set_line(*args, **kwargs):
        monkeypatch.setattr(current, "line", Line(*args, **kwargs))
        return current.line

    return set_line


def test_without_a_line_an_operation_is_just_waited_for():
    work = Work(None)
    await_work("x", work, True)
    assert work.timeouts == [None]
    await_work("x", None, True)


def test_without_a_line_errors_pass_unchanged():
    error = RuntimeError("broken")
    with pytest.raises(RuntimeError) as e:
        await_work("x", Work(error), True)
    assert e.value is error
    with pytest.raises(RuntimeError) as e:
        begin("x", Work(error).wait)
    assert e.value is error


def test_an_operation_is_waited_for_in_slices(line):
    line()
    work = Work("late", "late", None)
    await_work("x", work, True)
    assert len(work.timeouts) == 3 and None not in work.timeouts


def test_an_operation_on_a_gpu_is_waited_for_at_once(line):
    line()
    work = Work(None)
    await_work("x", work, False)
    assert work.timeouts == [None]


def test_a_result_that_comes_at_the_end_of_a_slice_counts(line):
    line()
    work = Work("late", None, completed_when_late=True)
    await_work("x", work, True)
    assert work.timeouts[-1] is None


def test_a_failure_ends_the_wait(line):
    line(after=1)
    with pytest.raises(RankFailedError, match="rank 1 failed"):
        await_work("x", Work("late", "late", "late"), True)


def test_nothing_begins_after_a_failure(line):
    line(after=0)
    with pytest.raises(RankFailedError):
        begin("x", pytest.fail)


def test_what_begins_is_returned(line):
    line()
    assert begin("x", lambda: 3) == 3


@pytest.mark.parametrize("at", ["begin", "await"])
def test_a_broken_operation_is_explained_by_the_failure_of_a_rank(line, at):
    known = line(after=1 if at == "begin" else 0)
    error = RuntimeError("Connection closed by peer")
    with pytest.raises(RankFailedError) as e:
        begin("x", Work(error).wait) if at == "begin" else await_work("x", Work(error), True)
    assert e.value.__cause__ is error and known.waited == [collectives._NEWS_S]


def test_a_broken_operation_without_an_explanation_says_so(line):
    line()
    with pytest.raises(RuntimeError, match=r"all_reduce broke: odd \(no rank is known to have failed\)"):
        await_work("all_reduce", Work(RuntimeError("odd")), True)


def test_an_operation_that_lacks_a_rank_which_left_is_given_up(line):
    known = line(left="rank 1 (process 11)")
    with pytest.raises(RuntimeError, match=r"x broke: it needs every rank \(rank 1 \(process 11\) has left the group"):
        await_work("x", Work("late"), True)
    assert known.waited == [0.0]


def test_a_timeout_names_the_setting(line):
    known = line()
    with pytest.raises(RuntimeError, match=r"\$DING_DIST_TIMEOUT"):
        await_work("x", Work(RuntimeError("Timed out waiting 1000ms for recv operation to complete")), True)
    assert known.waited == [0.0]


@pytest.mark.parametrize(
    ("config", "device", "expected"),
    [
        ("cpu:gloo,cuda:nccl", "cpu", "cpu"),
        ("cpu:gloo,cuda:nccl", "cuda", "cuda"),
        ("cpu:gloo,cuda:nccl", "meta", "cpu"),
        ("cpu:gloo,cuda:nccl", None, "cpu"),
        ("cuda:nccl", "cpu", "cuda"),
        ("cuda:nccl", None, "cuda"),
        ("cpu:gloo", "cuda", "cpu"),
    ],
)
def test_the_device_of_an_operation_is_one_that_the_backend_reaches(monkeypatch, config, device, expected):
    monkeypatch.setattr(dist, "get_backend_config", lambda: config)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert comm_device(device and torch.device(device)).type == expected


def test_what_the_backend_cannot_reach_is_copied_there_and_back(monkeypatch):
    seen = []

    def double(x):
        seen.append(x)
        x.mul_(2)

    monkeypatch.setattr(collectives, "comm_device", lambda device: torch.device("cpu"))
    plain = torch.ones(3)
    on_comm_device(double, plain)
    assert seen[0] is plain
    transposed = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    on_comm_device(double, transposed)
    assert seen[1] is not transposed and seen[1].is_contiguous()
    assert transposed.tolist() == [[0, 6], [2, 8], [4, 10]]


def test_objects_may_travel_on_a_device_of_ones_choice(monkeypatch, clean_environment):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    objects = [{"a": 1}]
    copy_objects(objects, 0, device=torch.device("cpu"))
    assert objects == [{"a": 1}]
