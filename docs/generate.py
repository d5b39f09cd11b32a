"""Writes the generated pages: the config and API reference, and the benchmarks.

    python docs/generate.py            # write the pages from the classes and the stored benchmark results
    python docs/generate.py --check    # list pages that are out of date; the exit status is 1 if there are any
    python docs/generate.py --measure  # run the benchmarks first: a quarter of an hour on an otherwise idle machine

The config reference comes from the table `settings` of each class: defaults, checks and meanings.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import io
import json
import os
import pathlib
import pkgutil
import platform
import subprocess
import sys
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from typing import Any

DOCS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from ding.utils.config_helper import NO_DEFAULT, Setting  # noqa: E402 its folder must be on the path

# Heading, registry, and section of the config.
SECTIONS = (
    ("Policies", "policy", "policy"),
    ("Learner", "learner", "policy.learn.learner"),
    ("Serial collectors", "serial_collector", "policy.collect.collector"),
    ("Parallel collectors", "parallel_collector", "policy.collect.collector"),
    ("Evaluators", "serial_evaluator", "policy.eval.evaluator"),
    ("Replay buffers", "buffer", "policy.other.replay_buffer"),
    ("Env managers", "env_manager", "env.manager"),
    ("Commanders", "commander", "policy.other.commander"),
)
# Meanings of keys that several classes have, by the end of their path.
GLOSSARY = {
    "priority": "Sample by priority.",
    "priority_IS_weight": "Correct prioritized sampling with importance weights; needs `priority`.",
    "collect_print_freq": "Number of collections between two reports in the log.",
    "deepcopy_obs": "Kept for compatibility: observations are always copied once.",
    "transform_obs": "Kept for compatibility.",
    "replay_buffer_size": "Capacity, in samples.",
    "max_use": "How often a sample may be drawn.",
    "storage": "Where the columns are stored: `memory` or `memmap`.",
    "storage_path": "Folder of the files, with `memmap`.",
    "share_frames": "Store frames that stacked observations have in common once.",
    "deepcopy": "Return deep copies of samples.",
    "enable_track_used_data": "Delete the files of samples that leave the buffer.",
    "periodic_thruput_seconds": "Seconds between two throughput reports.",
    "periodic_thruput.seconds": "Seconds between two throughput reports.",
    "episode_num": "Maximum number of episodes of each env.",
    "max_retry": "Number of attempts of a failing step or reset.",
    "retry_type": "What a retry does: `reset` starts the episode again, `renew` creates the env again.",
    "retry_waiting_time": "Seconds between two attempts.",
    "step_timeout": "Time limit of a step in seconds; None for no limit.",
    "reset_timeout": "Time limit of a reset in seconds.",
    "connect_timeout": "Time limit of an env's start in seconds.",
    "step_wait_timeout": "Seconds to wait for more envs once `wait_num` are ready.",
    "wait_num": "Minimum number of envs to wait for in each step.",
    "auto_reset": "Whether an env is reset when its episode ends.",
    "reset_inplace": "Reset envs one after the other.",
    "shared_memory": "Transfer observations through shared memory.",
    "copy_on_get": "Copy observations out of shared memory.",
    "context": "Start method of processes.",
    "train_iterations": "Number of iterations after which the learner stops.",
    "hook.load_ckpt_before_run": "Checkpoint to start from.",
    "hook.log_show_after_iter": "Number of iterations between two tables in the log.",
    "hook.save_ckpt_after_iter": "Number of iterations between two checkpoints.",
    "hook.save_ckpt_after_run": "Whether to save a checkpoint at the end.",
    "dataloader.num_workers": "Number of threads that load samples, in parallel training.",
    "log_policy": "Whether the policy is described in the log.",
    "only_monitor_rank0": "Whether only rank 0 logs.",
    "eval_interval": "Seconds from the start of one evaluation to that of the next.",
    "collector_task_space": "Maximum number of concurrent collector tasks.",
    "learner_task_space": "Maximum number of concurrent learner tasks.",
    "is_multitask_pipeline": "Whether all ranks log, whatever `only_monitor_rank0` is.",
    **dict.fromkeys(
        ("episodic_life", "reward_clip", "stack_num", "gray_scale", "frame_skip"),
        "Option of the Atari envs of EnvPool; None for its default.",
    ),
}
PACKAGES = {
    "Entry": ("ding.entry",),
    "Config": ("ding.config",),
    "Collectors and evaluators": ("ding.worker.collector",),
    "Learner": ("ding.worker.learner",),
    "Replay buffers": ("ding.worker.replay_buffer", "ding.data"),
    "Parallel training": ("ding.worker.coordinator", "ding.worker.adapter", "ding.interaction"),
    "Leagues": ("ding.league",),
    "Envs": ("ding.envs",),
    "Policies": ("ding.policy",),
    "Models": ("ding.model",),
    "Losses and returns": ("ding.rl_utils",),
    "Utilities": ("ding.utils", "ding.torch_utils"),
}


def config_reference() -> str:
    """Returns the page with a table for each registered class."""
    from ding.policy.base_policy import Policy
    from ding.utils.registry_factory import registries

    for package in ("ding.envs", "ding.policy", "ding.worker", "ding.data"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    parts = [
        "# Config reference\n\nEvery key that a class reads. One without a default has an effect only if it is set. A "
        "dash in the column\n*allowed* means that the value is not checked. A class that is based on another one also "
        "has the keys of that one.\n"
    ]
    for title, registry, where in SECTIONS:
        parts.append(f"## {title}\n\nSection `{where}`.\n")
        classes: dict[type, str] = {Policy: "All policies"} if registry == "policy" else {}
        for alias in sorted(registries[registry]):
            cls = registries[registry].get(alias)
            if not alias.endswith("_command") and cls.__module__.startswith("ding."):
                classes.setdefault(cls, f"`{alias}`")
        parts += [_class_table(heading, cls, classes) for cls, heading in classes.items()]
    return "\n".join(parts).rstrip("\n") + "\n"


def _class_table(heading: str, cls: type, classes: Mapping[type, str]) -> str:
    """Returns the table of the keys in which `cls` differs from its nearest base class among `classes`."""
    settings: Mapping[str, Setting] = getattr(cls, "settings", {})
    if not settings:
        return _class_table_of_comments(heading, cls)
    summary = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    lines = [f"### {heading}\n", f"{cls.__name__}: {summary}\n"]
    base: Any = next((b for b in cls.__mro__[1:] if b in classes), None)
    if base is not None:
        lines.append(f"Based on {base.__name__}.\n")
    known: Mapping[str, Setting] = base.settings if base is not None else {}
    own = [path for path in _by_section(settings) if settings[path] != known.get(path) and path != "type"]
    rows = [_row(path, settings[path]) for path in own]
    if rows:
        lines += ["| key | default | allowed | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _by_section(settings: Mapping[str, Setting]) -> list[str]:
    """Returns the paths, those of one section beside each other, and those without a section first."""
    sections = {"": 0}
    for path, setting in settings.items():
        if "." in path or setting.default == {}:
            sections.setdefault(path.split(".")[0], len(sections))
    return sorted(settings, key=lambda path: sections.get(path.split(".")[0], 0))


def _row(path: str, setting: Setting) -> str:
    default = "" if setting.default is NO_DEFAULT else f"`{setting.default!r}`"
    text = "a function" if callable(setting.default) else default
    return f"| `{path}` | {text} | {_allowed(setting.rule)} | {setting.doc} |"


# Up to `api_pages`: the tables of classes without `settings`, from the comments in their dict `config`.
def _class_table_of_comments(heading: str, cls: type) -> str:
    defaults = cls.__dict__.get("config") or {}
    base = next((b for b in cls.__mro__[1:] if b.__dict__.get("config")), None)
    summary = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    lines = [f"### {heading}\n", f"{cls.__name__}: {summary}\n"]
    if base is not None and not base.__name__.startswith("_"):
        lines.append(f"Based on {base.__name__}.\n")
    rows = list(_rows(defaults, _comments(cls), _rules(cls), ""))
    if rows:
        lines += ["| key | default | allowed | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _rows(tree: Mapping[str, Any], comments: Mapping[str, str], rules: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            if path in comments:
                yield f"| `{path}` | | | {comments[path]} |"
            yield from _rows(value, comments, rules, f"{path}.")
        elif key not in ("cfg_type", "type") and (value != {} or path in comments):
            text = "a function" if callable(value) else f"`{value!r}`"
            yield f"| `{path}` | {text} | {_allowed(rules.get(path))} | {comments.get(path) or _glossary(path)} |"


def _glossary(path: str) -> str:
    names = path.split(".")
    return next((GLOSSARY[end] for i in range(len(names)) if (end := ".".join(names[i:])) in GLOSSARY), "")


def _allowed(rule: Any) -> str:
    if rule is None:
        return "-"
    allowed = rule(object())
    return "-" if allowed is None else str(allowed).replace("|", "\\|")


def _rules(cls: type) -> dict[str, Any]:
    """Returns the rules of the class, its base classes and their modules, by dotted key."""
    rules: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        for name, value in vars(module).items() if base.__module__.startswith("ding.") else ():
            if name.endswith("_RULES") and isinstance(value, Mapping):
                rules.update(value)
        rules.update(base.__dict__.get("config_rules") or {})
    return rules


def _comments(cls: type) -> dict[str, str]:
    """Returns the comment above each key of the dict `config` of the class, by dotted key."""
    source = inspect.getsource(sys.modules[cls.__module__])
    node = _config_node(cls, ast.parse(source))
    if isinstance(node, ast.Name):  # a constant, perhaps of another module
        value = getattr(sys.modules[cls.__module__], node.id)
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("ding.") and getattr(module, node.id, None) is value:
                source = inspect.getsource(module)
                found = _assigned(ast.parse(source).body, node.id)
                if found is not None:
                    node = found
                    break
    by_line = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    starts = {line: text.strip() for line, text in enumerate(source.splitlines(), 1)}
    comments: dict[str, str] = {}
    _read_comments(node, by_line, starts, "", comments)
    return comments


def _config_node(cls: type, tree: ast.Module) -> ast.AST | None:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return _assigned(node.body, "config")
    return None


def _assigned(body: list[ast.stmt], name: str) -> ast.AST | None:
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node.value  # type: ignore[attr-defined,no-any-return]
    return None


def _read_comments(
    node: ast.AST | None, by_line: Mapping[int, str], starts: Mapping[int, str], prefix: str, into: dict[str, str]
) -> None:
    if not isinstance(node, ast.Dict):
        return
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant):
            continue
        path, line, text = f"{prefix}{key.value}", key.lineno, []
        while line - 1 in by_line and starts[line - 1].startswith("#"):
            line -= 1
            text.insert(0, by_line[line])
        own = by_line.get(value.end_lineno or 0) if value.lineno == value.end_lineno else None
        if text or own:
            into[path] = (" ".join(text) if text else str(own)).replace("|", "\\|")
        _read_comments(value, by_line, starts, f"{path}.", into)


def api_pages() -> dict[str, str]:
    """Returns a mkdocstrings page for each group of packages, with their public names."""
    pages = {}
    for title, packages in PACKAGES.items():
        lines = [f"# {title}", ""]
        for package in packages:
            for name in sorted(_exported(importlib.import_module(package))):
                lines += [f"::: {name}", ""]
        pages[f"reference/api/{title.lower().replace(' ', '_')}.md"] = "\n".join(lines).rstrip("\n") + "\n"
    return pages


def _exported(package: Any) -> Iterator[str]:
    """Yields the full names of the classes and functions that a package exports; what has two names, once."""
    told = set()
    for name in getattr(package, "__all__", ()):
        value = getattr(package, name)
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("ding."):
            path = f"{value.__module__}.{value.__qualname__}"
            if path not in told:
                yield path
            told.add(path)


BENCHMARKS = ("buffer", "collect", "serial", "sac", "imports", "managers", "parallel", "scale", "scale_data")


def measure() -> None:
    """Run the benchmarks and store their output in `docs/benchmarks`.

    Raises:
        RuntimeError: a benchmark has measured nothing.
    """
    folder = DOCS / "benchmarks"
    folder.mkdir(exist_ok=True)
    for name in BENCHMARKS:
        command = [sys.executable, "-m", f"tests.benchmarks.{name}"]
        output = subprocess.run(command, cwd=DOCS.parent, stdout=subprocess.PIPE, text=True, check=False).stdout
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if not lines:
            raise RuntimeError(f"{' '.join(command)} has measured nothing; its error is above")
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    packages = ("torch", "numpy", "gymnasium", "stable-baselines3", "tianshou", "ray")
    versions = {name: importlib.metadata.version(name) for name in packages if _is_installed(name)}
    about = {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version(), **versions}
    (folder / "machine.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _processor() -> str:
    info = pathlib.Path("/proc/cpuinfo")
    names = [line.partition(": ")[2] for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def benchmarks_page() -> str:
    """Returns the page of benchmarks, from the results that `measure` stored."""
    folder = DOCS / "benchmarks"
    about = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    packages = ", ".join(f"{name} {version}" for name, version in about.items() if name not in ("processor", "cores"))
    where = f"Measured on {about['cores']} cores of an {about['processor']}, with {packages}; one thread of torch."
    lines = [
        "# Benchmarks",
        "",
        *textwrap.wrap(where, 120, break_on_hyphens=False),
        "Each figure is compared with a baseline of the same run: another library on the same work, a bare loop that",
        "only does the maths, or a limit. Goals that this machine misses are listed like the others.",
        "",
    ]
    for name in BENCHMARKS:
        path = folder / f"{name}.jsonl"
        if not path.is_file():
            continue
        lines += [f"## {name}", "", f"`python -m tests.benchmarks.{name}`", ""]
        lines += ["| what | ours | against | ratio | goal |", "|---|---|---|---|---|"]
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "ours" not in row:
                continue
            (against,) = [key for key in row if key not in ("what", "unit", "ours", "ratio", "goal", "met")]
            theirs = "not installed" if row[against] is None else f"{row[against]:g} ({against})"
            ratio = "-" if row["ratio"] is None else f"{row['ratio']:g}"
            lines.append(f"| {row['what']} | {row['ours']:g} {row['unit']} | {theirs} | {ratio} | {row['goal']} |")
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def draw_first_picture() -> None:
    """Draw `images/curve.svg`, the learning curve of DQN, from the results of `tests.benchmarks.learning`."""
    import matplotlib

    from ding.entry.curves import draw, summarize

    kept = (DOCS / "learning" / "dqn.jsonl").read_text(encoding="utf-8").splitlines()
    results = [json.loads(line) for line in kept]
    runs = [([x for x, _, _ in result["curve"]], [y for _, _, y in result["curve"]]) for result in results]
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # with the salt: equal results, equal bytes
    with matplotlib.rc_context({"svg.hashsalt": "curve"}):
        draw([summarize("DQN on CartPole-v1", runs)], DOCS / "images" / "curve.svg")


def pages() -> dict[str, str]:
    """Returns all generated pages by their path in the docs."""
    return {"reference/config.md": config_reference(), "benchmarks.md": benchmarks_page(), **api_pages()}


def main() -> int:
    if "--measure" in sys.argv:
        measure()
    if "--check" not in sys.argv and _is_installed("matplotlib"):
        draw_first_picture()
    elif "--check" not in sys.argv:
        sys.stdout.write("images/curve.svg is not drawn: run `pip install matplotlib` first\n")
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"{name} {'is out of date' if '--check' in sys.argv else 'is written'}\n")
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
