"""The site builds without a warning, and what is generated in it is up to date."""

import os
import pathlib
import subprocess
import sys

import pytest

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
