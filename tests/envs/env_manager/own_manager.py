"""The env manager of the guide, which tests take from there."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "env_manager.md"


def own_manager_class():
    """The class of the block `walks.py`, without its entry in the registry."""
    code = re.search(r'```python title="walks.py"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    names = {"__name__": "walks"}
    exec(compile(code.replace('@ENV_MANAGER_REGISTRY.register("walks")\n', ""), str(PAGE), "exec"), names)
    return names["Walks"]
