from ding.interaction.master.task import Task, TaskResultType, TaskStatus

DEADLINE_S = 20


def test_the_numbers_are_as_documented():
    assert {status.name: status.value for status in TaskStatus} == {
        "IDLE": 0x00, "STARTING": 0x11, "STARTED": 0x12, "START_FAILED": 0x13, "COMPLETED": 0x21, "FAILED": 0x22,
    }  # fmt: skip
    assert {kind.name: kind.value for kind in TaskResultType} == {"COMPLETED": 1, "FAILED": 2}


def test_a_result_that_comes_while_the_task_starts_is_its_last_word():
    def launch(task):
        assert task.status is TaskStatus.STARTING
        task.finish(TaskResultType.COMPLETED, 5)
        task.mark_started()
        task.mark_start_failed()

    task = Task(None, launch).start()
    assert task.join(DEADLINE_S).status is TaskStatus.COMPLETED and task.result == 5
