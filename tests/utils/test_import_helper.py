"""import_module: imports that a config asks for, and what it says about those that fail."""

import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import ding
from ding.utils import import_module
from ding.utils.default_helper import SingletonMetaclass
from ding.utils.fast_copy import fastcopy
from ding.utils.import_helper import (
    FakeLink,
    try_import_ceph,
    try_import_link,
    try_import_mc,
    try_import_redis,
    try_import_rediscluster,
)


@pytest.fixture
def package(import_folder):
    """A package `my_pkg` with a good module, one that divides by zero, and one that needs a missing package."""
    folder = import_folder / "my_pkg"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "good_env.py").touch()
    (folder / "bad.py").write_text("1 / 0\n")
    (folder / "needy.py").write_text("import my_absent.part\n")
    return folder


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("my_none.a.b", ModuleNotFoundError, "No module named 'my_none'"),
        ("my_pkg.needy", ModuleNotFoundError, "No module named 'my_absent'"),
        ("my_pkg.bad", ImportError, "ZeroDivisionError: division by zero"),
        ("", ImportError, "ValueError: Empty module name"),
        (5, ImportError, "AttributeError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_the_entry(name, kind, told, package):
    with pytest.raises(kind, match=rf"^create_config.env.import_names has {name!r}, .*: {told}") as e:
        import_module(["my_pkg.good_env", name], "create_config.env.import_names")
    assert type(e.value) is kind


PACKAGES = [name for _, name, is_package in pkgutil.walk_packages(ding.__path__, "ding.") if is_package]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_what_it_exports(package):
    module = importlib.import_module(package)
    exported = set(getattr(module, "__all__", ())) - {"LeagueMetricEnv", "PlayerRating"}  # which need trueskill
    assert exported <= set(dir(module)) and set(vars(module)) <= set(dir(module))
    assert dir(module) == sorted(set(dir(module)))
    inspect.getmembers(module)


def test_what_parallel_training_is_made_of_loads_when_it_is_first_used():
    code = (
        "import sys, ding.worker\n"
        "assert not any(name.startswith('ding.interaction') for name in sys.modules)\n"
        "from ding.worker import Coordinator, FlaskFileSystemCollector, ZerglingParallelCollector\n"
        "assert 'ding.interaction' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_singleton_class_has_one_instance_and_each_subclass_its_own():
    class Base(metaclass=SingletonMetaclass):
        def __init__(self, value):
            self.value = value

    class Child(Base):
        pass

    assert Base(1) is Base(2) and Base.instance.value == 1
    assert Child(3) is Child(4) and Child.instance.value == 3 and Base.instance.value == 1


def test_fastcopy_copies_containers_tensors_and_arrays_and_shares_the_rest():
    shared = object()
    original = {"list": [torch.zeros(2), np.zeros(2)], "shared": shared}
    copied = fastcopy.copy(original)
    original["list"][0] += 1
    original["list"][1] += 1
    original["list"].append(None)
    assert copied["list"][0].tolist() == [0, 0] and copied["list"][1].tolist() == [0, 0] and len(copied["list"]) == 2
    assert copied["shared"] is shared


@pytest.mark.parametrize("form", [list, str], ids=["in a list", "alone"])
def test_import_module_takes_names(form, import_folder):
    name = f"some_env_package_{form.__name__}"
    (import_folder / f"{name}.py").write_text("LOADED = True\n")
    import_module([name] if form is list else name)
    assert sys.modules.pop(name).LOADED


def test_import_module_of_nothing_does_nothing_and_of_an_unknown_name_raises():
    import_module([])
    import_module(None)
    with pytest.raises(ImportError, match="no_such_package"):
        import_module(["no_such_package"])


def test_optional_clients_are_none_where_not_installed(put_module):
    for name in ("ceph", "mc", "redis", "rediscluster", "linklink"):
        put_module(name, None)
    assert try_import_ceph() is try_import_mc() is try_import_redis() is try_import_rediscluster() is None
    assert isinstance(try_import_link(), FakeLink)


def test_optional_clients_are_the_modules_where_installed(put_module):
    for name in ("redis", "linklink"):
        put_module(name, pickle)
    assert try_import_redis() is pickle and try_import_link() is pickle


def test_every_exported_name_exists():
    import ding.utils

    assert sorted(set(ding.utils.__all__)) == ding.utils.__all__
    for name in ding.utils.__all__:
        assert getattr(ding.utils, name) is not None
