"""What a task may have a worker do."""

import pytest

from ding.config.read import put
from ding.worker.transport.imports import check_task, named_imports


@pytest.mark.parametrize(
    "task",
    [
        {"cfg": {"import_names": ["evil"]}},
        {"cfg": [{"deep": {"import_names": "evil"}}]},
        {"import_names": ["ding.envs", "dingevil", "evil"]},
        {"env": {"env_id": "evil:Name"}},
        {"env": {"kwargs": {"id": "evil:space/Name-v0"}}},
        {"collector_cfg": {"env": {"env_name": "evil:Name"}}},
        {"policy": {"env_name": "evil:Name"}},
        {"env": {"games": [{"family": "evil.deep:space/Name"}]}},
        {"env": {"game": "evil-module:3D"}},
        {"env": [{"games": ["evil:space/Name-v0"]}]},
        {"policy": {"learn": {"lr_scheduler": "evil:function"}}},
        {"env": {"kwargs": {"cost": {"__reference__": "evil:cost", "args": []}}}},
        {"policy": {"model": [{"activation": {"__reference__": "evil:Act"}}]}},
    ],
)
def test_modules_that_are_not_allowed_are_refused_wherever_they_are_named(task):
    with pytest.raises(PermissionError):
        check_task(task, {"import_names": ["good"]})


def test_modules_of_the_workers_own_config_and_of_this_package_are_allowed():
    task = {
        "env": {"import_names": ["good", "ding.envs.x"]},
        "policy": {"import_names": "better"},
        "import_names": None,
    }
    check_task(task, {"import_names": ["good"], "task_import_names": ["better"]})


def test_env_ids_may_name_modules_that_the_workers_own_config_names():
    no_ids = {"device": "cuda:0", "note": "a: b-v1", "url": "http://host:80/x", "place": "host:", "time": "12:30:01"}
    task = {"env": {"env_id": "good.envs:Name-v0", **no_ids}, "policy": {"tag": "any:thing"}}
    assert list(named_imports(task)) == ["good.envs"]
    check_task(task, {"task_import_names": ["good.envs"]})


@pytest.mark.parametrize("task", [{"trust_pickle": True}, {"hook": [{"ext_args": {"trust_pickle": 1}}]}])
def test_only_the_workers_own_config_can_have_pickles_trusted(task):
    with pytest.raises(PermissionError, match="trust_pickle"):
        check_task(task, {})
    check_task(task, {"trust_pickle": True})
    check_task({"trust_pickle": False}, {})


@pytest.mark.parametrize(
    "env", ["my_envs:Corridor", ["my_envs:Corridor", {"size": 3}], "ding.utils.file_helper:read_file"]
)
@pytest.mark.parametrize("path", ["env.env", "env.wrappers", "policy.model.type"])
def test_what_a_task_has_called_by_name_is_named_by_the_workers_own_config_word_by_word(env, path):
    task = {"collector_cfg": {}}
    put(task["collector_cfg"], path, [env] if path == "env.wrappers" else env)
    for allowed in ([], ["my_envs"], ["ding.utils.file_helper"], ["my_envs", "my_envs:Other"]):
        with pytest.raises(PermissionError):
            check_task(task, {"task_import_names": allowed})
    named = list(named_imports(task))
    check_task(task, {"task_import_names": named})


def test_env_ids_that_are_modules_are_named_by_the_workers_own_config():
    task = {"collector_cfg": {"env": {"env_id": "pettingzoo.butterfly.pistonball_v6"}}}
    with pytest.raises(PermissionError):
        check_task(task, {})
    check_task(task, {"task_import_names": list(named_imports(task))})
    check_task({"collector_cfg": {"env": {"env_id": "CartPole-v1"}}}, {})
