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


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `my_pkg` with a good module, one that divides by zero, and one that needs a missing package."""
    folder = tmp_path / "my_pkg"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "good_env.py").touch()
    (folder / "bad.py").write_text("1 / 0\n")
    (folder / "needy.py").write_text("import my_absent.part\n")
    monkeypatch.syspath_prepend(tmp_path)
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
