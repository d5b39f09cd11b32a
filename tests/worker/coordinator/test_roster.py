import pytest

from ding.worker.coordinator.roster import Roster, WorkerStatus


class Link:
    def __init__(self, silence_s=1.0):
        self._silence_s = silence_s

    def silence_s(self):
        return self._silence_s


@pytest.fixture
def roster():
    return Roster()


def states(roster, **tasks):
    return {worker.name: (worker.state, worker.task_id, worker.restarts) for worker in roster.statuses(tasks)}


def test_workers_are_free_busy_or_lost(roster):
    links = {name: Link() for name in ("learner0", "collector0", "collector1")}
    for name, link in links.items():
        roster.joined(name[:-1], name, f"{name}:1", link)
    roster.left("collector1", links["collector1"])
    roster.left("nobody", Link())
    assert roster.statuses({"learner0": "train", "collector1": "its last task"}) == (
        WorkerStatus("learner", "learner0", "learner0:1", "busy", "train", 1.0, 0),
        WorkerStatus("collector", "collector0", "collector0:1", "free", None, 1.0, 0),
        WorkerStatus("collector", "collector1", "collector1:1", "lost", None, 1.0, 0),
    )


def test_each_return_counts_as_a_restart(roster):
    for port in (1, 2, 3):
        roster.joined("collector", "c", f"here:{port}", link := Link(port))
        assert roster.statuses({})[0] == WorkerStatus("collector", "c", f"here:{port}", "free", None, port, port - 1)
        roster.left("c", link)
    assert states(roster) == {"c": ("lost", None, 2)}


def test_an_old_link_that_ends_late_says_nothing_about_the_new_one(roster):
    roster.joined("collector", "c", "here:1", old := Link())
    roster.joined("collector", "c", "here:2", Link())
    roster.left("c", old)
    assert states(roster, c="task") == {"c": ("busy", "task", 1)}


def test_learners_come_first_and_numbers_count_as_such(roster):
    for name in ("collector10", "collector2", "learner1", "collector1", "learner0"):
        roster.joined(name.rstrip("0123456789"), name, "", Link())
    assert [worker.name for worker in roster.statuses({})] == [
        "learner0", "learner1", "collector1", "collector2", "collector10"
    ]  # fmt: skip


def test_of_very_many_lost_workers_the_last_are_kept(roster):
    roster.joined("learner", "learner0", "", Link())
    for i in range(60):
        roster.joined("collector", f"c{i}", "", link := Link())
        roster.left(f"c{i}", link)
    assert list(states(roster)) == ["learner0", *(f"c{i}" for i in range(10, 60))]
