"""The commands of the page about several machines are commands that `ding` takes."""

import pathlib
import re
import shlex

import pytest

from ding.config.utils import set_system_cfg
from ding.entry import cli_modes
from ding.entry.cli import MODULES, cli
from ding.worker.transport.transport import choose_transport

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "many_machines.md").read_text(encoding="utf-8")
BLOCKS = "\n".join(re.findall(r"```bash\n(.*?)```", PAGE, re.S))
COMMANDS = re.findall(r"(?:^|\s)ding (-m dist.*)", BLOCKS)
ON_RAY = re.findall(r"(?:^|\s)ding (-m parallel.*)", BLOCKS)


@pytest.mark.parametrize("command", COMMANDS + ON_RAY)
def test_a_command_of_the_page_is_understood(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("cartpole.py", "cartpole.py.pkl"):
        (tmp_path / name).touch()
    started = []
    monkeypatch.setattr(cli_modes, "run", lambda action, options: started.append(action))
    words = shlex.split(command.replace("/shared/run", str(tmp_path)).replace("/shared", str(tmp_path)))
    cli.main(words, prog_name="ding", standalone_mode=False)
    [action] = started
    assert action in words or f"--{action}" in words


def test_the_page_shows_every_role():
    shown = {module for command in COMMANDS for module in re.findall(r"-M (\w+)", command)}
    assert shown == set(MODULES)


def test_the_system_config_of_the_page_is_one():
    [shown] = re.findall(r"```python\n(system_config = dict\(\n    transport=.*?\n\))\n```", PAGE, re.S)
    names = {}
    exec(shown, names)
    system = {**names["system_config"], "path_data": "data", "path_policy": "policy"}
    assert choose_transport(system).name == "ray"
    assert set_system_cfg({"main": {"policy": {}}, "system": system}).ray.learner.num_gpus == 1
