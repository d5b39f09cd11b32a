"""README's commands are the ones that are run elsewhere, and its script is what it says."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_the_ci_script_runs_the_test_command():
    command = next(block for block in blocks("bash") if "pytest" in block).strip()
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.sub(r"pip install -q ", "pip install ", ci).count(command) == 1


def test_the_first_script_has_at_most_25_lines_and_compiles():
    script = blocks("python")[0]
    assert len(script.strip().splitlines()) <= 25
    compile(script, "README.md", "exec")


def test_every_file_that_the_readme_links_exists():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
