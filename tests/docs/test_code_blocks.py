"""Every block of code in the docs runs, page by page, in a folder of its own."""

import importlib.util
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from ding.config.utils import set_system_cfg
from ding.entry import cli_modes
from ding.entry.cli import MODULES, cli
from ding.worker.transport.transport import choose_transport

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
LANGUAGES = {"python", "bash", "text", "mermaid", "yaml", "json"}

# What a page's blocks take for granted: files in its folder, and names in its Python blocks.
EXAMPLE = "from ding.example.{} import *"
CONFIG = (ROOT / "ding" / "example" / "cartpole_dqn.py").read_text(encoding="utf-8")
TRAINED = "ding train cartpole.py --train-iter 400 --exp-name my_exp"
FILES = {
    "guides/config.md": {"cartpole.py": CONFIG},
    "guides/evaluation.md": {"cartpole.py": CONFIG},
    "guides/speed.md": {"config.py": CONFIG},
}
BEFORE = {"guides/evaluation.md": TRAINED}
NAMES = {
    "parallel.md": "from ding.example.cartpole_dqn_parallel import create_config, main_config, system_config",
    "ranks.md": (
        "import os; os.environ.update(RANK='0', WORLD_SIZE='1')\n"
        "from ding.example.cartpole_dqn_ddp import create_config, main_config"
    ),
    "status_page.md": (  # of a run on another machine
        "import io, os, urllib.request; os.environ['DING_TOKEN'] = 'secret' * 8\n"
        "urllib.request.urlopen = lambda request, context: io.BytesIO(b'{}')"
    ),
}
# Blocks that install, or need other machines.
ELSEWHERE = re.compile(
    r"pip install|git clone|kubectl|helm |srun |sbatch|ssh |ray start|ray stop|torchrun|\bDING_TOKEN|apt-get|docker|"
    r"ding -m dist|tests.benchmarks|tests.soak"
)
# Blocks that need a package which the tests do without.
OPTIONAL = {
    "envpool": re.compile("env_pool"),
    "optuna": re.compile(r"\btune\b"),
    "ale_py": re.compile("ALE/"),
    "onnxruntime": re.compile("onnx"),
}
DRIVER = """
import json, os, subprocess, sys
blocks, names = json.load(open(sys.argv[1])), {"__name__": "__main__"}
sys.path.insert(0, os.getcwd())
for language, title, code in blocks:
    if title:
        with open(title, "w") as f:
            f.write(code)
    if language == "bash":
        subprocess.run(["bash", "-euo", "pipefail", "-c", code], check=True)
    elif not title:
        exec(compile(code, "block", "exec"), names)
"""


def blocks(page):
    """`(language, title, code)` of each block; those that begin with four spaces in a list are not looked for."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)([^\n]*)\n(.*?)^```$", text, re.S | re.M)
    return [(lang, (re.search(r'title="([^"]+)"', more) or [None, None])[1], code) for lang, more, code in found]


@pytest.mark.parametrize("page", PAGES)
def test_each_block_says_its_language_and_is_whole(page):
    for language, title, code in blocks(page):
        assert language in LANGUAGES, f"{page}: a block of {language!r}:\n{code}"
        if language == "python":
            compile(code, f"{page} {title or ''}", "exec")


def outputs(code):
    """What a block says that its lines print, in comments that are data or one word."""
    comments = re.findall(r"^print\(.*\)  # (.+)$", code, re.M)
    return [comment for comment in comments if comment[0] in "[{" or re.fullmatch(r"\w+", comment)]


def runnable(page):
    missing = [uses for package, uses in OPTIONAL.items() if importlib.util.find_spec(package) is None]
    return [
        block
        for block in blocks(page)
        if block[0] in ("python", "bash")
        and not any(uses.search(block[2]) for uses in missing)
        and not (block[0] == "bash" and ELSEWHERE.search(block[2]))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)])
def test_the_blocks_of_a_page_run_one_after_the_other(page, tmp_path):
    todo = [("bash", None, BEFORE[page])] if page in BEFORE else []
    todo += [("python", None, NAMES[page])] if page in NAMES else []
    (tmp_path / "blocks.json").write_text(json.dumps(todo + runnable(page)))
    for name, content in FILES.get(page, {}).items():
        (tmp_path / name).write_text(content)
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "SDL_VIDEODRIVER": "dummy"}
    result = subprocess.run(
        [sys.executable, "-c", DRIVER, "blocks.json"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]
    expected = [output for language, _, code in runnable(page) if language == "python" for output in outputs(code)]
    assert [output for output in expected if output not in result.stdout.splitlines()] == []


# The commands of the page about several machines are commands that `ding` takes.


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
