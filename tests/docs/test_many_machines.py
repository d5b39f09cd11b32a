"""The commands of the page about several machines are commands that `ding` takes."""

import pathlib
import re
import shlex

import pytest

from ding.entry.cli import MODULES, _action, cli

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "many_machines.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"(?:^|\s)ding (-m dist.*)", "\n".join(re.findall(r"```bash\n(.*?)```", PAGE, re.S)))


def options_of(command, folder):
    words = [word.replace("/shared/run", str(folder)) for word in shlex.split(command)]
    return cli.make_context("ding", words).params


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_is_understood(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("cartpole.py", "cartpole.py.pkl"):
        (tmp_path / name).touch()
    _action(options_of(command, tmp_path))


def test_the_page_shows_every_role():
    shown = {module for command in COMMANDS for module in re.findall(r"-M (\w+)", command)}
    assert shown == set(MODULES)


def test_the_page_is_in_the_menu():
    assert "many_machines.md" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
