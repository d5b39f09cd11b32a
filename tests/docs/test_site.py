"""The site builds without a warning, and what is generated in it is up to date."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ding.config.topics import MAIN_SETTINGS
from ding.utils.registry_factory import registries
from tests.benchmarks.goals import results, table

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*command):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]


def test_the_generated_pages_are_up_to_date():
    run("docs/generate.py", "--check")  # python docs/generate.py writes them


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_its_links_lead_somewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    pytest.importorskip("mkdocstrings", reason="needs the extra docs")
    run("-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path))
    assert (tmp_path / "index.html").is_file() and (tmp_path / "reference" / "api" / "entry" / "index.html").is_file()


def test_lines_of_prose_are_at_most_120_columns():
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "reference" not in path.parts]
    long = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in pages
        if path.name != "differences.md"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120 and not line.lstrip().startswith(("|", "!", "Solved:", "all_reduce broke"))
    }
    assert long == set()


def test_the_config_reference_has_each_key_that_is_read_with_its_meaning():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    generate.import_all()
    page = (ROOT / "docs" / "reference" / "config.md").read_text(encoding="utf-8")
    chapters = {part.split("\n")[0]: part for part in page.split("\n## ")}
    titles = {title: registry for title, registry, _ in generate.SECTIONS}
    for title, registry in {**titles, "Models": "model", "Env wrappers": "env_wrapper"}.items():
        entries = {part.split("`")[1]: part for part in chapters[title].split("\n### ")[1:] if part.startswith("`")}
        keys = {alias: set(re.findall(r"^\| `([^`]+)` \|", part, re.M)) for alias, part in entries.items()}
        bases = {alias: re.search(r"^Based on (\w+)\.", part, re.M) for alias, part in entries.items()}
        for alias, cls in ((alias, registries[registry].get(alias)) for alias in entries):
            if hasattr(cls, "settings"):
                wanted = {path for path, one in cls.settings.items() if not one.doc.endswith(generate.IGNORED)}
                inherited = set() if bases[alias] is None else {
                    path for base in cls.__mro__[1:] if base.__name__ == bases[alias][1] for path in base.settings
                }  # fmt: skip
                assert wanted - {"type"} <= keys[alias] | inherited, alias
            else:
                assert keys[alias] == {name for name, _, _ in generate.arguments_of(cls)}, alias
        classes = {registries[registry].get(alias) for alias in registries[registry] if not alias.endswith("_command")}
        named = {registries[registry].get(alias) for alias in entries}
        own = {cls for cls in classes if cls.__module__.startswith("ding.")}
        assert {cls for cls in own if not cls.__module__.startswith("ding.example.")} <= named, title
    assert not re.findall(r"^\|.*\|  +\|$", page, re.M) and "no effect here" not in page
    assert set(MAIN_SETTINGS) == set(re.findall(r"^\| `([^`]+)` \|", chapters["Pipelines"], re.M))


def test_each_package_with_a_table_of_exports_has_a_stub_that_tells_type_checkers_all_of_them():
    stubs = sorted((ROOT / "ding").rglob("__init__.pyi"))
    assert len(stubs) > 20
    for stub in stubs:
        package = importlib.import_module(".".join(stub.parent.relative_to(ROOT).parts))
        told = re.findall(r"^from \S+ import (\w+) as \1$|^(\w+): Any$", stub.read_text(), re.MULTILINE)
        assert sorted(one or other for one, other in told) == sorted(package.__all__), stub


# The page about goals shows what was measured.


def test_the_page_has_the_table_of_the_stored_results():
    page = Path(__file__).parents[2] / "docs" / "guides" / "goals.md"
    assert table(results()) in page.read_text(encoding="utf-8")
