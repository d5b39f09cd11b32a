"""README's commands are the ones that are run elsewhere, and its script is what it says."""

import json
import logging
import pathlib
import re
import subprocess
import sys

import pytest

from ding.entry.serial_entry import run_serial
from ding.example import cartpole_dqn, cartpole_dqn_per
from ding.utils.default_helper import one_time_warning

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


def test_the_first_script_and_the_examples_warn_of_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    configs = [(module.main_config, module.create_config) for module in (cartpole_dqn, cartpole_dqn_per)]
    monkeypatch.setattr("ding.entry.serial_entry.serial_pipeline", lambda pair, **limits: configs.append(pair))
    exec(blocks("python")[0], {})
    one_time_warning.cache_clear()
    for pair in configs:
        caplog.clear()
        run = run_serial(pair, max_train_iter=1)
        assert run.learner.train_iter == 1 and run.cfg.policy.nstep == 3
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.slow  # other processors may round otherwise: then it is the table that is to be made anew
def test_the_learning_curve_is_the_one_that_the_first_script_gives(tmp_path):
    subprocess.run([sys.executable, "-c", blocks("python")[0]], cwd=tmp_path, check=True, timeout=300)
    lines = (tmp_path / "my_cartpole_dqn" / "eval.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([\d.]+) \|$", README, re.M)
    assert [(int(iteration), int(env_steps), float(mean)) for iteration, env_steps, mean in rows] == [
        (r["train_iter"], r["env_step"], round(sum(r["returns"]) / len(r["returns"]), 1)) for r in records
    ]


def test_every_file_that_the_readme_links_exists():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_table_of_extras_has_each_one_and_messages_name_no_other():
    listed = re.search(r"    extras_require=\{(.*?)\n    \}", (ROOT / "setup.py").read_text(encoding="utf-8"), re.S)
    extras = re.findall(r'^        "(\w+)": \[', listed[1], re.M)
    table = README.partition("| extra | for |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines() if row.startswith("| `")]
    assert sorted(sum(rows, [])) == sorted(extras)
    for path in (ROOT / "ding").rglob("*.py"):
        calls = re.findall(
            r"missing_package\([^,]*, f?\"([^\"]*)\"(?:, \"(\w+)\")?\)", path.read_text(encoding="utf-8")
        )
        for packages, extra in calls:
            assert (extra or packages) in extras, path
