"""What a task may have a worker do."""

import pytest

from ding.config.read import put
from ding.worker.transport.imports import (
    check_exp_name,
    check_import_names,
    check_task,
    named_imports,
    named_load_paths,
)


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


@pytest.mark.parametrize("section", ["learner_cfg", "collector_cfg"])
@pytest.mark.parametrize("exp_name", ["/tmp/x", "../x", "a/../../x", "a/..", 7, None])
def test_a_folder_that_a_peer_has_chosen_elsewhere_is_refused(section, exp_name):
    with pytest.raises(PermissionError, match="exp_name"):
        check_task({section: {"exp_name": exp_name}}, {})


@pytest.mark.parametrize("exp_name", ["exp", "a/b/exp", "a..b/..c", ""])
def test_a_folder_under_the_working_directory_is_allowed(exp_name):
    check_task({"learner_cfg": {"exp_name": exp_name}}, {})


@pytest.mark.parametrize("own", ["/data/exp", "../exp", "/"])
def test_the_folder_of_the_workers_own_config_is_allowed_and_what_lies_in_it(own):
    for exp_name in (own, f"{own}/deeper"):
        check_exp_name({"exp_name": exp_name}, own)


@pytest.mark.parametrize("exp_name", ["/data/exp2", "/data", "/data/exp/../other"])
def test_what_lies_beside_the_workers_own_folder_is_refused(exp_name):
    with pytest.raises(PermissionError, match="this worker's own config .now '/data/exp'."):
        check_exp_name({"exp_name": exp_name}, "/data/exp")


def test_a_task_that_names_no_folder_is_allowed():
    check_task({"learner_cfg": {}, "collector_cfg": None}, {"exp_name": "exp"})


HOOKS = [
    {"hook": {"load_ckpt_before_run": "PATH"}},
    {"hook": {"mine": {"type": "load_ckpt", "ext_args": {"load_path": "PATH"}}}},
]


@pytest.mark.parametrize("task", HOOKS)
@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "/data/exp2/x", 7, ["/etc/passwd"]])
def test_files_that_a_peer_has_chosen_are_not_loaded(task, path):
    task = {"learner_cfg": replaced(task, path)}
    for own in ({}, {"exp_name": "/data/exp"}, {"task_load_paths": ["/etc/shadow"]}):
        with pytest.raises(PermissionError, match="the task loads .*task_load_paths"):
            check_task(task, own)


@pytest.mark.parametrize("task", HOOKS)
@pytest.mark.parametrize("path", ["", None, "exp/ckpt/a.pth.tar", "/data/exp/ckpt/a", "/old/a..b"])
def test_files_of_the_workers_own_config_are_loaded(task, path):
    main = {"policy": {"learn": {"learner": replaced(task, "/old/a..b")}}}
    own = {"exp_name": "/data/exp", "task_load_paths": named_load_paths(main)}
    assert own["task_load_paths"] == ["/old/a..b"]
    check_task({"learner_cfg": replaced(task, path)}, own)


def replaced(content, path):
    """`content` with `path` for each PATH."""
    if isinstance(content, dict):
        return {key: replaced(value, path) for key, value in content.items()}
    return path if content == "PATH" else content


@pytest.mark.parametrize(
    "env", ["my_envs:Corridor", ["my_envs:Corridor", {"size": 3}], "ding.utils.file_helper:read_file"]
)
@pytest.mark.parametrize("path", ["env.env", "env.wrappers", "policy.model.type"])
def test_what_a_task_has_called_by_name_is_named_by_the_workers_own_config_word_by_word(env, path):
    task = {"collector_cfg": {}}
    put(task["collector_cfg"], path, [env] if path == "env.wrappers" else env)
    for allowed in ([], ["my_envs"], ["ding.utils.file_helper"], ["my_envs", "my_envs:Other"]):
        with pytest.raises(PermissionError, match="which this worker's own config does not name"):
            check_task(task, {"task_import_names": allowed})
    named = list(named_imports(task))
    check_task(task, {"task_import_names": named})


def test_env_ids_that_are_modules_are_named_by_the_workers_own_config():
    task = {"collector_cfg": {"env": {"env_id": "pettingzoo.butterfly.pistonball_v6"}}}
    with pytest.raises(PermissionError, match="the task imports pettingzoo.butterfly.pistonball_v6"):
        check_task(task, {})
    check_task(task, {"task_import_names": list(named_imports(task))})
    check_task({"collector_cfg": {"env": {"env_id": "CartPole-v1"}}}, {})
