"""import_module: imports that a config asks for, and what it says about those that fail."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import ding
from ding.utils import import_module
from ding.utils.import_helper import lazy_names


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `my_pkg` with a good module, one that divides by zero, and one that needs a missing package."""
    folder = tmp_path / "my_pkg"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "good_env.py").touch()
    (folder / "bad.py").write_text("1 / 0\n")
    (folder / "needy.py").write_text("import my_absent.part\n")
    (folder / "sibling.py").write_text("import my_pkg.nowhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


@pytest.mark.differs(
    "a missing module in `import_names` is an error of importlib that names no config entry",
    "one line names entry, module and what to do",
)
@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("my_none", "no package 'my_none' is installed: install it (pip install), add its folder to PYTHONPATH, or "),
        ("my_none.a.b", "no package 'my_none' is installed: install it"),
        ("my_pkg.good_envs", "the package 'my_pkg' has no module 'good_envs': did you mean my_pkg.good_env?"),
        ("my_pkg.zzz.deep", "the package 'my_pkg' has no module 'zzz': correct the name"),
        ("my_pkg.good_env.Env", "'my_pkg.good_env' is a module, not a package: correct the name"),
    ],
)
def test_a_missing_module_is_named_with_the_entry_and_what_to_do(name, rest, package):
    with pytest.raises(ModuleNotFoundError) as e:
        import_module(name, "create_config.env.import_names")
    message = str(e.value)
    assert message.startswith(f"create_config.env.import_names has {name!r}, but {rest}")
    assert "\n" not in message
    assert e.value.__suppress_context__


@pytest.mark.parametrize(
    "name", ["", ".good_env", "./good_env.py", "my_pkg/good_env.py", "my_pkg.good_env.py", None, 5]
)
def test_what_is_no_name_of_a_module_is_told_how_to_write_one(name, package):
    with pytest.raises(ImportError) as e:
        import_module([name], "create_config.env.import_names")
    assert str(e.value) == (
        f"create_config.env.import_names has {name!r}, which is no name of a module: write it as in an import "
        "statement, such as my_package.my_env for my_package/my_env.py, in a folder on PYTHONPATH"
    )


@pytest.mark.parametrize(
    ("name", "cause", "told"),
    [
        ("my_pkg.bad", ZeroDivisionError, "ZeroDivisionError: division by zero"),
        ("my_pkg.needy", ModuleNotFoundError, "ModuleNotFoundError: No module named 'my_absent'"),
        ("my_pkg.sibling", ModuleNotFoundError, "ModuleNotFoundError: No module named 'my_pkg.nowhere'"),
    ],
)
def test_an_error_inside_a_module_is_the_cause(name, cause, told, package):
    with pytest.raises(ImportError, match=rf"^import_names has '{name}', which failed to import: {told}$") as e:
        import_module(["my_pkg.good_env", name])
    assert type(e.value) is ImportError
    assert type(e.value.__cause__) is cause


def test_a_name_is_that_of_its_module():
    find = lazy_names("package", {"lazy_names": "ding.utils.import_helper"})
    assert find("lazy_names") is lazy_names


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'package' has no attribute 'other'"):
        lazy_names("package", {})("other")


PACKAGES = [name for _, name, is_package in pkgutil.walk_packages(ding.__path__, "ding.") if is_package]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_what_it_exports(package):
    module = importlib.import_module(package)
    exported = set(getattr(module, "__all__", ())) - {"LeagueMetricEnv", "PlayerRating"}  # which need trueskill
    assert exported <= set(dir(module)) and set(vars(module)) <= set(dir(module))
    assert dir(module) == sorted(set(dir(module)))
    inspect.getmembers(module)


def test_the_package_lists_train():
    assert "train" in dir(ding) and dict(inspect.getmembers(ding))["train"] is ding.train


def test_what_parallel_training_is_made_of_loads_when_it_is_first_used():
    code = (
        "import sys, ding.worker\n"
        "assert not any(name.startswith('ding.interaction') for name in sys.modules)\n"
        "from ding.worker import Coordinator, FlaskFileSystemCollector, ZerglingParallelCollector\n"
        "assert 'ding.interaction' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
