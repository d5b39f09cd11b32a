"""What a task may have a worker do."""

import pytest

from ding.worker.transport.imports import check_import_names, check_task


@pytest.mark.parametrize(
    "task",
    [
        {"cfg": {"import_names": ["evil"]}},
        {"cfg": [{"deep": {"import_names": "evil"}}]},
        {"import_names": ["ding.envs", "dingevil", "evil"]},
    ],
)
def test_modules_that_are_not_allowed_are_refused_wherever_they_are_named(task):
    with pytest.raises(PermissionError, match="evil"):
        check_task(task, {"import_names": ["good"]})


def test_modules_of_the_workers_own_config_and_of_this_package_are_allowed():
    task = {
        "env": {"import_names": ["good", "ding.envs.x"]},
        "policy": {"import_names": "better"},
        "import_names": None,
    }
    check_task(task, {"import_names": ["good"], "task_import_names": ["better"]})
    check_import_names(task, ["good", "better"])


@pytest.mark.parametrize("task", [{"trust_pickle": True}, {"hook": [{"ext_args": {"trust_pickle": 1}}]}])
def test_only_the_workers_own_config_can_have_pickles_trusted(task):
    with pytest.raises(PermissionError, match="trust_pickle"):
        check_task(task, {})
    check_task(task, {"trust_pickle": True})
    check_task({"trust_pickle": False}, {})
