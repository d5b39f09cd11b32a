"""Writes the pages that are made of something else: `python docs/generate.py`.

    python docs/generate.py            # config and API reference, from the classes; benchmarks, from kept results
    python docs/generate.py --check    # says what is not up to date, and exits with 1
    python docs/generate.py --measure  # runs the benchmarks first, which takes a quiet machine and a quarter of an hour

A config key's meaning is the comment above it in the source, its type and range come from the rule that checks it.
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
import tokenize
from collections.abc import Iterator, Mapping
from typing import Any

DOCS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

# Heading, the registry, where its entries stand in a config.
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
# Meanings of keys that many classes have, by the end of their path.
GLOSSARY = {
    "cuda": "Compute on a GPU, where there is one.",
    "on_policy": "Whether what a round collects is learned from at once, without a replay buffer.",
    "priority": "Sample by priority.",
    "priority_IS_weight": "Correct for sampling by priority with importance weights; needs `priority`.",
    "discount_factor": "Gamma.",
    "nstep": "Length of the n-step return.",
    "gae_lambda": "Lambda of generalized advantage estimation.",
    "transition_with_policy_data": "Whether samples hold what the policy returned when it acted.",
    "multi_agent": "Several agents share a critic.",
    "noisy_net": "Explore by noisy layers, which the model must have.",
    "batch_size": "Samples in a batch.",
    "update_per_collect": "Batches learned from after each round of collecting.",
    "epoch_per_collect": "Passes over what a round has collected.",
    "learning_rate": "Of the optimizer.",
    "learning_rate_actor": "Of the optimizer of the actor.",
    "learning_rate_policy": "Of the optimizer of the actor.",
    "learning_rate_critic": "Of the optimizer of the critic.",
    "learning_rate_q": "Of the optimizer of the critic.",
    "learning_rate_alpha": "Of the optimizer of the temperature.",
    "learning_rate_quantile": "Of the optimizer of the fraction proposal network.",
    "weight_decay": "Of the optimizer.",
    "momentum": "Of the optimizer.",
    "eps": "Of Adam: added to the denominator.",
    "entropy_weight": "Weight of the entropy in the loss.",
    "value_weight": "Weight of the critic's loss.",
    "value_norm": "Scale the critic's values by running statistics of the returns.",
    "clip_ratio": "How far the ratio of new to old probabilities counts (PPO's epsilon).",
    "grad_clip_type": "How gradients are clipped; None for not at all.",
    "grad_clip_value": "At which value gradients are clipped.",
    "clip_value": "At which value gradients are clipped.",
    "min_q_weight": "Weight of the conservative term.",
    "actor_update_freq": "Updates of the critic for each one of the actor.",
    "target_entropy": "What the temperature is adapted to.",
    "noise": "Whether the target's action is smoothed by noise.",
    "noise_sigma": "Standard deviation of the noise.",
    "unroll_len": "Steps in a sample.",
    "n_sample": "Samples that a round collects.",
    "get_train_sample": "Whether the collector makes samples of what it has collected.",
    "collect_print_freq": "Rounds between two reports in the log.",
    "deepcopy_obs": "Kept for compatibility: observations are always copied once.",
    "transform_obs": "Kept for compatibility.",
    "eval_freq": "Iterations between two evaluations.",
    "replay_buffer_size": "The most samples that are kept.",
    "other.eps.start": "Epsilon at the start.",
    "other.eps.end": "Epsilon at the end.",
    "other.eps.decay": "Env steps over which epsilon falls (the time constant, with `exp`).",
    "max_use": "How often a sample may be drawn.",
    "max_staleness": "Iterations after which a sample is not drawn any more.",
    "alpha": "Exponent of the priorities.",
    "beta": "Exponent of the importance weights at the start.",
    "anneal_step": "Draws until `beta` has become 1.",
    "storage": "Where the columns lie: `memory` or `memmap`.",
    "storage_path": "The folder of the files, with `memmap`.",
    "share_frames": "Store frames that stacked observations share once.",
    "deepcopy": "Copy samples when they are drawn.",
    "enable_track_used_data": "Report samples that leave.",
    "periodic_thruput_seconds": "Seconds between two reports of the throughput.",
    "periodic_thruput.seconds": "Seconds between two reports of the throughput.",
    "episode_num": "Episodes that each env plays.",
    "max_retry": "How often a step or reset that failed is tried.",
    "retry_type": "What is tried again: `reset` begins the episode anew, `renew` makes the env anew.",
    "retry_waiting_time": "Seconds between two tries.",
    "step_timeout": "Seconds that a step may take; None for no limit.",
    "reset_timeout": "Seconds that a reset may take.",
    "connect_timeout": "Seconds that an env may take to start.",
    "step_wait_timeout": "Seconds to wait for more envs once enough have answered.",
    "wait_num": "How many envs must answer in a round.",
    "auto_reset": "Whether an env is reset when its episode ends.",
    "reset_inplace": "Reset envs one after the other.",
    "shared_memory": "Carry observations in shared memory.",
    "copy_on_get": "Copy observations out of shared memory.",
    "context": "How processes start.",
    "train_iterations": "After so many iterations the learner is through.",
    "hook.load_ckpt_before_run": "The checkpoint to begin with.",
    "hook.log_show_after_iter": "Iterations between two tables in the log.",
    "hook.save_ckpt_after_iter": "Iterations between two checkpoints.",
    "hook.save_ckpt_after_run": "Whether there is a checkpoint at the end.",
    "dataloader.num_workers": "Threads that load samples, in parallel training.",
    "log_policy": "Whether the policy is described in the log.",
    "only_monitor_rank0": "Whether rank 0 alone logs.",
    "eval_interval": "Seconds from the start of one evaluation to that of the next.",
    "collector_task_space": "Collecting tasks at a time.",
    "learner_task_space": "Learning tasks at a time.",
    "model.twin_critic": "Two critics, of which the smaller value counts.",
    "model.action_space": "The kind of actions.",
    "encoder_hidden_size_list": "Widths of the layers of the encoder.",
    "actor_head_hidden_size": "Width of the actor's head.",
    "critic_head_hidden_size": "Width of the critic's head.",
    "actor_head_layer_num": "Layers of the actor's head.",
    "critic_head_layer_num": "Layers of the critic's head.",
    "v_min": "Lowest value of the support.",
    "v_max": "Highest value of the support.",
    "n_atom": "Atoms of the support.",
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
    """The page with a table for each registered class."""
    from ding.utils.registry_factory import registries

    for package in ("ding.envs", "ding.policy", "ding.worker", "ding.data"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    parts = [
        "# Config reference\n\nEvery key that a class reads, with its default. A policy has also the keys of the class "
        "it is based on.\nWhat a key may hold stands in the column *allowed*; a dash means that it is not checked.\n"
    ]
    for title, registry, where in SECTIONS:
        parts.append(f"## {title}\n\nSection `{where}`.\n")
        seen: set[type] = set()
        for alias in sorted(registries[registry]):
            cls = registries[registry].get(alias)
            if alias.endswith("_command") or cls in seen or not cls.__module__.startswith("ding."):
                continue
            seen.add(cls)
            parts.append(_class_table(alias, cls))
    return "\n".join(parts).rstrip("\n") + "\n"


def _class_table(alias: str, cls: type) -> str:
    defaults = cls.__dict__.get("config") or {}
    base = next((b for b in cls.__mro__[1:] if b.__dict__.get("config")), None)
    summary = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    lines = [f"### `{alias}`\n", f"{cls.__name__}: {summary}\n"]
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
        elif key not in ("cfg_type", "type"):
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
    """The rules of the class, of those it is based on, and of their modules, by dotted key."""
    rules: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        for name, value in vars(module).items() if base.__module__.startswith("ding.") else ():
            if name.endswith("_RULES") and isinstance(value, Mapping):
                rules.update(value)
        for name in ("config_rules", "setting_rules"):
            rules.update(base.__dict__.get(name) or {})
    return rules


def _comments(cls: type) -> dict[str, str]:
    """By dotted key the comment above it, in the dict that the class has as `config`."""
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
    """A page for each group of packages: the public names of these and of their modules, by mkdocstrings."""
    pages = {}
    for title, packages in PACKAGES.items():
        lines = [f"# {title}", ""]
        for package in packages:
            for name in sorted(_exported(importlib.import_module(package))):
                lines += [f"::: {name}", ""]
        pages[f"reference/api/{title.lower().replace(' ', '_')}.md"] = "\n".join(lines).rstrip("\n") + "\n"
    return pages


def _exported(package: Any) -> Iterator[str]:
    """Classes and functions that a package exports, by where they are defined."""
    for name in getattr(package, "__all__", ()):
        value = getattr(package, name)
        if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("ding."):
            yield f"{value.__module__}.{value.__qualname__}"


BENCHMARKS = ("buffer", "collect", "serial", "sac", "imports", "managers", "parallel", "scale")


def measure() -> None:
    """Run the benchmarks, and keep what they print in `docs/benchmarks`."""
    folder = DOCS / "benchmarks"
    folder.mkdir(exist_ok=True)
    for name in BENCHMARKS:
        command = [sys.executable, "-m", f"tests.benchmarks.{name}"]
        output = subprocess.run(command, cwd=DOCS.parent, stdout=subprocess.PIPE, text=True, check=False).stdout
        lines = [line for line in output.splitlines() if line.startswith("{")]
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
    """Speed, from what `measure` has kept."""
    folder = DOCS / "benchmarks"
    about = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    packages = ", ".join(f"{name} {version}" for name, version in about.items() if name not in ("processor", "cores"))
    lines = [
        "# Benchmarks",
        "",
        f"Measured on {about['cores']} cores of an {about['processor']}, with {packages}; one thread of torch.",
        "Each figure stands against its baseline in the same run: another library on the same work, a bare loop that",
        "does only the maths, or a limit.",
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
    """`images/curve.svg`: the learning curve of DQN, from the results of `tests.benchmarks.learning`."""
    import matplotlib

    from ding.entry.curves import draw, summarize

    kept = (DOCS / "learning" / "dqn.jsonl").read_text(encoding="utf-8").splitlines()
    results = [json.loads(line) for line in kept]
    runs = [([x for x, _, _ in result["curve"]], [y for _, _, y in result["curve"]]) for result in results]
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # with the salt: equal results, equal bytes
    with matplotlib.rc_context({"svg.hashsalt": "curve"}):
        draw([summarize("DQN on CartPole-v1", runs)], DOCS / "images" / "curve.svg")


def pages() -> dict[str, str]:
    """All generated pages by their path in the docs."""
    return {"reference/config.md": config_reference(), "benchmarks.md": benchmarks_page(), **api_pages()}


def main() -> int:
    if "--measure" in sys.argv:
        measure()
    if "--check" not in sys.argv:
        draw_first_picture()
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"{name} {'is not up to date' if '--check' in sys.argv else 'is written'}\n")
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
