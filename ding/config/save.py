"""Writing of configurations, and the folder of an experiment that holds them, with the git state."""

from __future__ import annotations

import contextlib
import copy
import errno
import itertools
import keyword
import logging
import math
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from easydict import EasyDict

from ding.utils.config_helper import ConfigError
from ding.utils.file_helper import atomic_write, beside
from ding.utils.log_helper import shown
from ding.utils.msgpack_helper import pack
from ding.utils.pytorch_ddp_dist_helper import broadcast_object_list, get_rank, get_world_size
from ding.utils.references import (
    IMPORT_PATHS,
    REFERENCE,
    folders_of,
    is_reference,
    items_of,
    plain,
    reference_to,
    saved_form,
)

GIT_TIMEOUT_S = 1.0


def claim_experiment(exp_name: str, renew: bool = True) -> str:
    """Create the folder `exp_name` (relative to the current directory) and return its final name.

    If the folder exists and `renew` is true, a time stamp is appended, and a counter if necessary: two runs never get
    the same name, even if they start at the same time. If `renew` is false, an existing folder is used. Rank 0 chooses
    the name and sends it to the other ranks.

    Raises:
        OSError: on every rank, if the folder cannot be created or written to.
    """
    answer: list[object] = [None]
    if get_rank() == 0:
        try:
            answer[0] = _claim(exp_name, renew)
        except OSError as e:
            reason = f"cannot create the experiment folder {os.path.abspath(exp_name)!r}: {e.strerror or e}"
            answer[0] = type(e)(e.errno, f"{reason}; choose another exp_name or working directory")
    if get_world_size() > 1:
        broadcast_object_list(answer, 0)
    if isinstance(answer[0], OSError):
        raise answer[0]
    return str(answer[0])


def _claim(exp_name: str, renew: bool) -> str:
    stamp = time.strftime("%y%m%d_%H%M%S")
    suffixes = itertools.chain((stamp,), (f"{stamp}_{count}" for count in itertools.count(1)))
    candidates = itertools.chain((exp_name,), (beside(exp_name, suffix) for suffix in suffixes))
    for name in candidates if renew else (exp_name,):
        try:
            os.makedirs(name, exist_ok=False)
        except FileExistsError:
            continue
        return name
    if not os.path.isdir(exp_name):
        raise NotADirectoryError(errno.ENOTDIR, "it exists and is not a folder")
    if not os.access(exp_name, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "it exists and is read-only")
    return exp_name


class StartFolder:
    """Context manager that deletes the folder of an experiment on an exception, unless `keep` was called.

    Folders that existed before, and parents with other contents, are not deleted.

    Args:
        exp_name: the folder in the config.

    Attributes:
        taken: the final name of the folder; None before it is created.
    """

    def __init__(self, exp_name: str) -> None:
        path = Path(str(exp_name)).absolute()  # compilation refuses values that are not names
        self._known = {folder for folder in (path, *path.parents) if folder.exists()}
        self._is_kept = False
        self.taken: str | None = None

    def keep(self) -> None:
        """Keep the folder even after an exception."""
        self._is_kept = True

    def __enter__(self) -> StartFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None or self._is_kept or self.taken is None or get_rank() != 0:
            return
        path = Path(self.taken).absolute()
        if path in self._known:
            return
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):  # another run has written to a parent
            for parent in path.parents:
                if parent in self._known:
                    break
                parent.rmdir()


def save_project_state(exp_name: str) -> None:
    """Write the git state of the current directory to `<exp_name>/git_log.txt` and `git_diff.txt`.

    The log holds `git describe` and the last five commits with their statistics. Nothing is written outside a git
    working tree. If git fails or takes longer than GIT_TIMEOUT_S, a warning is logged instead.
    """
    if not _in_working_tree(Path.cwd()):
        return
    deadline = time.monotonic() + GIT_TIMEOUT_S
    try:
        describe = _git(deadline, "describe", "--always", "--tags")
        log = _git(deadline, "log", "--stat", "-n", "5")
        diff = _git(deadline, "diff", "--no-ext-diff")
    except (OSError, subprocess.SubprocessError) as e:
        logging.getLogger("ding").warning("the git state is not saved in %s: %s", exp_name, e)
        return
    Path(exp_name, "git_log.txt").write_bytes(describe + b"\n" + log)
    Path(exp_name, "git_diff.txt").write_bytes(diff)


def _in_working_tree(folder: Path) -> bool:
    # Checked without git, so that no process is started outside a repository.
    return any((parent / ".git").exists() for parent in (folder, *folder.parents))


def _git(deadline: float, *arguments: str) -> bytes:
    """Return the output of git, including its error messages, such as that of a repository without commits."""
    done = subprocess.run(
        ["git", "--no-pager", "--no-optional-locks", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=max(deadline - time.monotonic(), 0.01),
        check=False,
    )
    return done.stdout


INDENT = "    "
MAX_INLINE = 100  # maximum length of a sequence on one line
_PLAIN = (str, bytes, bool, int, type(None), type(Ellipsis))


def to_source(value: Any, depth: int = 0) -> str:
    """Return an expression that evaluates to the saved form of `value` in a module without imports.

    Literals are exact. Infinities and NaN become `float('inf')` and `float('nan')`, numpy scalars Python numbers,
    mappings `dict`s. Classes, functions and objects become what `saved_form` makes of them; what has no such form, such
    as a lambda or an `nn.Module`, becomes its quoted repr with a comment.

    Args:
        value: the object.
        depth: indentation level of the first line.

    Example:
        >>> to_source((1, float("inf"), "it's"))
        '(1, float(\\'inf\\'), "it\\'s")'
    """
    return _render(saved_form(value), depth)[0]


def is_literal(value: Any) -> bool:
    """Return whether `to_source(value)` evaluates to a saved form of `value`."""
    return next(_unwritten(plain(saved_form(value))), None) is None


def unsaved_values(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a config, by dotted key, that cannot be saved to a file: those that `to_source` quotes."""
    return dict(_unwritten(plain(saved_form(cfg))))


def _unwritten(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        is_call = REFERENCE in value
        for name, item in items_of(value):
            yield from _unwritten(name, key)
            yield from _unwritten(item, key if is_call else f"{key}.{name}" if key else str(name))
    elif type(value) in (list, tuple, set, frozenset):
        for item in value:
            yield from _unwritten(item, key)
    elif type(value) not in (*_PLAIN, float, complex):
        yield key, value


def _render(value: Any, depth: int) -> tuple[str, str]:
    """Return the expression and its comment."""
    kind = type(value)
    if isinstance(value, np.generic):
        return _render(value.item(), depth) if type(value.item()) is not kind else _quoted(value)
    if kind in _PLAIN:
        return repr(value), ""
    if kind is float:
        return _float(value), ""
    if kind is complex:
        return f"complex({_float(value.real)}, {_float(value.imag)})", ""
    if isinstance(value, Mapping):
        return _mapping(value, depth), ""
    if kind in (list, tuple):
        return _sequence(list(value), "[]" if kind is list else "()", depth), ""
    if kind in (set, frozenset):
        items = sorted(value, key=repr)
        return (f"{kind.__name__}({_sequence(items, '[]', depth)})" if items else f"{kind.__name__}()"), ""
    return _quoted(value)


def _float(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"float({str(value)!r})"


def _quoted(value: Any) -> tuple[str, str]:
    kind = "class" if isinstance(value, type) else type(value).__name__
    return repr(shown(value)), f"was a {kind}; insert it here"


def _mapping(value: Mapping[Any, Any], depth: int) -> str:
    if not value:
        return "{}"
    if value.keys() == {REFERENCE}:
        return f"dict({REFERENCE}={value[REFERENCE]!r})"
    if all(map(_is_argument_name, value)):
        opening, closing = "dict(", ")"
        entries = [(f"{key}=", item) for key, item in items_of(value)]
    else:
        opening, closing = "{", "}"
        entries = [(f"{_key(key)}: ", item) for key, item in items_of(value)]
    return _block(opening, closing, entries, depth)


def _key(key: Any) -> str:
    text = _render(reference_to(key) or key, 0)[0]
    return text if "\n" not in text else repr(repr(key))


def _sequence(items: list[Any], brackets: str, depth: int) -> str:
    opening, closing = brackets[0], brackets[1]
    rendered = [_render(item, depth + 1) for item in items]
    comma = "," if brackets == "()" and len(items) == 1 else ""
    inline = opening + ", ".join(text for text, _ in rendered) + comma + closing
    if len(inline) <= MAX_INLINE and "\n" not in inline and not any(comment for _, comment in rendered):
        return inline
    return _block(opening, closing, [("", item) for item in items], depth)


def _block(opening: str, closing: str, entries: list[tuple[str, Any]], depth: int) -> str:
    lines = [opening]
    for head, item in entries:
        text, comment = _render(item, depth + 1)
        lines.append(f"{INDENT * (depth + 1)}{head}{text},{f'  # {comment}' if comment else ''}")
    lines.append(INDENT * depth + closing)
    return "\n".join(lines)


def _is_argument_name(key: Any) -> bool:
    # Python normalises non-ASCII identifiers, which would change such a key.
    return type(key) is str and key.isascii() and key.isidentifier() and not keyword.iskeyword(key)


# Entry of the create config -> section of a compiled config that holds its `type` and `import_names`.
CREATE_SECTIONS = {
    "env": ("env",),
    "env_manager": ("env", "manager"),
    "policy": ("policy",),
    "collector": ("policy", "collect", "collector"),
    "evaluator": ("policy", "eval", "evaluator"),
    "replay_buffer": ("policy", "other", "replay_buffer"),
    "reward_model": ("reward_model",),
    "world_model": ("world_model",),
}
_COMMAND = "_command"
_TYPE_KEYS = ("type", "import_names")


def save_config(cfg: Mapping[str, Any], path: str, type_: str = "py", save_formatted: bool = False) -> None:
    """Write `cfg` to `path` as Python (`save_config_py`) or YAML (`save_config_yaml`).

    With `save_formatted`, a Python config is also written as a runnable pair to `formatted_<name>` in the same folder.

    Raises:
        AssertionError: `type_` is neither 'py' nor 'yaml'.
    """
    if type_ not in ("py", "yaml"):
        raise AssertionError(f"type_ = {type_!r} is not allowed; it must be 'py' or 'yaml'")
    if type_ == "yaml":
        save_config_yaml(cfg, path)
        return
    save_config_py(cfg, path)
    if save_formatted:
        save_config_formatted(cfg, formatted_path(path))


def formatted_path(path: str) -> str:
    """Return the path of the runnable pair of the config file `path`."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"formatted_{name}")


def save_config_py(cfg: Mapping[str, Any], path: str) -> None:
    """Write `exp_config = <cfg>` as Python; `read_config_directly(path)["exp_config"]` returns it as a dict.

    If the config names modules in the user's own folders, a list `import_paths` has these folders.
    """
    _write(path, f"exp_config = {to_source(cfg)}\n{_import_paths(cfg)}")


def _import_paths(cfg: Any) -> str:
    """Return the line with the folders of modules that a config names and that are not installed, or ""."""
    folders = folders_of(set(named_modules(cfg)))
    return f"{IMPORT_PATHS} = {folders!r}\n" if folders else ""


def named_modules(value: Any, key: str = "") -> Iterator[str]:
    """Yield the modules that a config names, and those of its classes, functions and other objects."""
    if isinstance(value, Mapping):
        for name, item in items_of(value):
            yield from named_modules(item, name)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from named_modules(item, key)
    elif isinstance(value, str) and (key == "import_names" or is_reference(value)):
        yield value.partition(":")[0]
    elif (form := saved_form(value)) is not value:
        yield from named_modules(form)


def save_config_yaml(cfg: Mapping[str, Any], path: str) -> None:
    """Write `cfg` as YAML, with tuples, sets and arrays as lists, and objects without a YAML type as their repr."""
    import yaml

    _write(path, yaml.safe_dump(_plain(cfg), sort_keys=False, allow_unicode=True))


def save_packed_config(cfg: Mapping[str, Any], path: str) -> None:
    """Write a compiled config to `path`, for roles that are started one by one.

    Raises:
        TypeError: it holds anything but numbers, strings, containers, arrays and tensors.
    """
    _write(path, pack(EasyDict(cfg)))


def save_config_formatted(
    cfg: Mapping[str, Any], path: str = "formatted_total_config.py", create_cfg: Mapping[str, Any] | None = None
) -> None:
    """Write a compiled config as a runnable file with `main_config` and `create_config`.

    The pair has all sections of `cfg` and compiles to it again. The policy type in the create config has no suffix
    `_command`, because the entries append it.

    Args:
        cfg: the compiled config.
        path: path of the file.
        create_cfg: the create config that `cfg` was compiled with. If None, it is derived from the types in `cfg`.

    Raises:
        ConfigError: `cfg` has no `exp_name` or no `policy`.
    """
    for key in ("exp_name", "policy"):
        if key not in cfg:
            raise ConfigError(f"the config has no key {key!r}; compile it with compile_config first")
    save_pair(*split_config(cfg, create_cfg), path)


def save_pair(main: Mapping[str, Any], create: Mapping[str, Any], path: str) -> None:
    """Write two configs as a runnable file with `main_config` and `create_config`."""
    lines = ["from easydict import EasyDict", ""]
    if not (is_literal(main) and is_literal(create)):
        lines += ["# Values with a comment cannot be written as Python literals.", ""]
    for name, section in (("main_config", main), ("create_config", create)):
        lines += [f"{name} = {to_source(section)}", f"{name} = EasyDict({name})"]
    _write(path, "\n".join(lines) + "\n" + _import_paths([main, create]))


def split_config(
    cfg: Mapping[str, Any], create_cfg: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pair (main, create), as new plain dicts, that compiles to the compiled config `cfg`."""
    main = _as_dict(cfg)
    create = _create_of(main) if create_cfg is None else _as_dict(create_cfg)
    for name, section_path in CREATE_SECTIONS.items():
        # The type of a compiled reward model does not come from the create config, so it is kept.
        if name != "reward_model":
            _strip(_section(main, section_path), create.get(name))
    policy_type = create.get("policy", {}).get("type")
    if isinstance(policy_type, str):
        create["policy"]["type"] = policy_type.removesuffix(_COMMAND)
    return main, create


def _create_of(main: Mapping[str, Any]) -> dict[str, Any]:
    create: dict[str, Any] = {}
    for name, section_path in CREATE_SECTIONS.items():
        section = _section(main, section_path) or {}
        entry = {key: section[key] for key in _TYPE_KEYS if key in section}
        if section.get("multi_buffer", False):
            entry = {
                key: {k: sub[k] for k in _TYPE_KEYS if k in sub}
                for key, sub in section.items()
                if isinstance(sub, dict)
            }
        if entry:
            create[name] = copy.deepcopy(entry)
    return create


def _strip(section: dict[str, Any] | None, entry: Any) -> None:
    """Remove the type keys from a section of the main config that equal those of the create config's `entry`."""
    if section is None or not isinstance(entry, Mapping):
        return
    for key in _TYPE_KEYS:
        if key in section and key in entry and section[key] == entry[key]:
            del section[key]


def _section(tree: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
    for key in path:
        tree = tree.get(key)  # type: ignore[assignment]
        if not isinstance(tree, dict):
            return None
    return tree  # type: ignore[return-value]


def _as_dict(value: Any) -> Any:
    """Return a copy of the mappings, lists and tuples of a tree, with plain dicts and shared leaves."""
    if isinstance(value, Mapping):
        return {key: _as_dict(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_as_dict, value))
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in (sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value)]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if type(value) in (str, bytes, bool, int, float, type(None)):
        return value
    return shown(value)


def _write(path: str, data: str | bytes) -> None:
    """Write `data` to the file `path` atomically."""
    with atomic_write(path, "wb") as f:
        f.write(data.encode("utf-8") if isinstance(data, str) else data)
