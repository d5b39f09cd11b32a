"""A folder of the newest states of a run: zip files that appear whole, have checksums and hold no code.

A run holds its folder's lock, and compares its config with that of a state before it resumes from it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import re
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from easydict import EasyDict

from ding.utils.config_helper import ConfigError
from ding.utils.file_helper import atomic_write, sweep_temporary
from ding.utils.lock_helper import hold_file
from ding.utils.log_helper import shown
from ding.utils.msgpack_helper import is_tensor, pack, unpack
from ding.utils.references import REFERENCE, SCALARS, items_of, saved_form

# Another version for each change of the states of the parts of a run.
_FORMAT = b"ding-run-state 8"
_NAME = re.compile(r"state_(\d+)\.(zip|msgpack)")  # the second one of earlier versions
# Arrays of at least this size are entries of their own, which are written without a copy. To write 1 GB of them takes
# about 3 s, 1 % of the time between two states.
_LARGE_BYTES = 1 << 16
_PLACE = "__array__"  # key of the number of a large array in a state
_NODES = frozenset((dict, EasyDict, list, tuple))
_REMEDY = "remove it to resume from the previous state, or remove the folder to start again"


class StateError(ValueError):
    """A file contains no state from which a run can resume."""


class Saved(NamedTuple):
    """A state in a folder.

    Attributes:
        path: path of its file.
        about: the description that was passed to `write`.
        size_bytes: size of the file.
    """

    path: str
    about: dict[str, Any]
    size_bytes: int


class StateFolder:
    """The newest states of one run, in files `state_<n>.zip`. Not thread-safe; for a single writer.

    Files are written atomically. An archive has the entries `about` and `state`, in msgpack, and one for the bytes of
    each array and tensor of at least 64 KiB, all with checksums. No code in a file is executed.

    Args:
        path: the folder, created by the first `write`.
        keep: number of states to keep.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as path:
        ...     folder = StateFolder(path, keep=2)
        ...     _ = [folder.write({"step": i, "data": np.zeros(100_000)}, {"iter": i}) for i in range(3)]
        ...     state, about = folder.read()
        ...     state["step"], about, [saved.about["iter"] for saved in folder.states()]
        (2, {'iter': 2}, [1, 2])
    """

    def __init__(self, path: str | os.PathLike[str], keep: int = 2) -> None:
        self.path, self._keep = os.fspath(path), keep

    def write(self, state: Mapping[str, Any], about: Mapping[str, Any]) -> int:
        """Write a state of plain values, arrays and tensors, and remove states beyond the `keep` newest.

        Args:
            state: the state.
            about: a description of the state, of plain values; see `states`.

        Returns:
            The number of written bytes.

        Raises:
            TypeError, ValueError: the state cannot be packed; see `pack`.
            OSError: the file cannot be written. Earlier states are kept, and what was written of this one is removed.
        """
        number = max((number for number, _ in self._files()), default=0) + 1
        path = os.path.join(self.path, f"state_{number:06d}.zip")
        arrays: dict[int, tuple[int, Any]] = {}
        with atomic_write(path) as file, zipfile.ZipFile(file, "w") as archive:
            archive.comment = _FORMAT
            archive.writestr("about", pack(dict(about)))
            archive.writestr("state", pack(_without_arrays(state, arrays)))
            for place, array in arrays.values():
                with archive.open(str(place), "w", force_zip64=True) as entry:
                    entry.write(_bytes_of(array).data)
        for _, old in self._files()[: -self._keep]:
            Path(old).unlink(missing_ok=True)
        sweep_temporary(self.path)
        return os.path.getsize(path)

    def read(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the newest undamaged state and its description, or None if the folder has no state.

        A damaged state is skipped with a warning.

        Raises:
            StateError: all states are damaged or of another version.
        """
        failure: StateError | None = None
        for _, path in reversed(self._files()):
            try:
                with _opened(path) as archive:
                    return _with_arrays(unpack(archive.read("state")), archive, {}), unpack(archive.read("about"))
            except StateError as e:
                failure = e
                logging.getLogger("ding").warning("%s; trying the previous state", e)
        if failure is not None:
            raise StateError(f"no state in {self.path} can be read; the last reason: {failure}; {_REMEDY}")
        return None

    def clear(self) -> None:
        """Remove all states."""
        for _, path in self._files():
            Path(path).unlink(missing_ok=True)

    def states(self) -> Iterator[Saved]:
        """Yield the states whose descriptions are undamaged, newest last; nothing else in the files is read."""
        for _, path in self._files():
            with contextlib.suppress(StateError), _opened(path) as archive:
                yield Saved(path, unpack(archive.read("about")), os.path.getsize(path))

    def _files(self) -> list[tuple[int, str]]:
        """Return the numbers and paths of the files of states, newest last."""
        names = os.listdir(self.path) if os.path.isdir(self.path) else []
        found = [(int(match[1]), os.path.join(self.path, match[0])) for match in map(_NAME.fullmatch, names) if match]
        return sorted(found)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[zipfile.ZipFile]:
    """Open the file of a state; what damage makes the block raise becomes a StateError."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.comment != _FORMAT:
                raise StateError(
                    f"{path} is of the version {archive.comment!r}, but this package reads {_FORMAT!r}; go on with the "
                    "package that wrote it, or start anew in another folder"
                )
            yield archive
    except StateError:
        raise
    except Exception as e:  # damage looks like anything, and the file may be replaced by a newer one meanwhile
        raise StateError(f"{path} is damaged, or not a state of this version ({e!r})") from e


def _without_arrays(node: Any, arrays: dict[int, tuple[int, Any]]) -> Any:
    """Return `node` with numbers instead of its large arrays and tensors, which are added to `arrays` by id."""
    if is_tensor(node):
        is_large = str(node.layout) == "torch.strided" and node.numel() * node.element_size() >= _LARGE_BYTES
    elif isinstance(node, np.ndarray):
        is_large = node.nbytes >= _LARGE_BYTES and node.dtype.kind in "biufc"
    elif isinstance(node, Mapping):
        return {key: _without_arrays(value, arrays) for key, value in node.items()}
    else:
        return type(node)(_without_arrays(item, arrays) for item in node) if type(node) in (list, tuple) else node
    if not is_large:
        return node
    place, _ = arrays.setdefault(id(node), (len(arrays), node))
    dtype = str(node.dtype) if is_tensor(node) else node.dtype.str
    return {_PLACE: place, "dtype": dtype, "shape": list(node.shape)}


def _bytes_of(array: Any) -> np.ndarray:
    """Return the bytes of an array or tensor, without a copy if it is contiguous in CPU memory."""
    if is_tensor(array):
        import torch

        dense = array.detach().cpu().resolve_conj().resolve_neg().contiguous()
        return dense.reshape(-1).view(torch.uint8).numpy()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _with_arrays(node: Any, archive: zipfile.ZipFile, arrays: dict[int, Any]) -> Any:
    """Return `node` with arrays instead of references; an array with several references is one object again."""
    if type(node) not in _NODES:
        return node
    if not isinstance(node, dict):
        return type(node)([_with_arrays(value, archive, arrays) for value in node])
    if _PLACE not in node:
        return {key: _with_arrays(value, archive, arrays) for key, value in node.items()}
    place = node[_PLACE]
    if place not in arrays:
        arrays[place] = _array_of(bytearray(archive.read(str(place))), node["dtype"]).reshape(node["shape"])
    return arrays[place]


def _array_of(content: bytearray, dtype: str) -> Any:
    if not dtype.startswith("torch."):
        return np.frombuffer(content, dtype)
    import torch

    return torch.frombuffer(content, dtype=getattr(torch, dtype.removeprefix("torch.")))


FOLDER = "run_state"
# Keys whose values may differ when a run resumes: budgets, folders, the number of workers, and how it resumes.
_FREE = (
    "exp_name",
    "run_state",
    "env.stop_value",
    "policy.eval.evaluator.stop_value",
    "policy.eval.evaluator.patience",
    "policy.learn.learner.keep_checkpoints",
    "policy.learn.train_epoch",
    "policy.learn.resume_training",
    "policy.learn.learner.train_iterations",
    "policy.learn.learner.hook.load_ckpt_before_run",
    "policy.collect.collector.collector_num",
    "policy.learn.learner.learner_num",
    "policy.other.commander.collector_task_space",
    "policy.other.commander.path_policy",
)
_FREE_SECTIONS = ("run_state.", "logger.")


def hold_run(exp_name: str) -> IO[bytes] | None:
    """Lock the folder of a run, so that no other process trains there until the result is closed; see `hold_file`.

    Raises:
        StateError: another process holds the lock.
    """
    try:
        return hold_file(os.path.join(exp_name, FOLDER, "lock"))
    except BlockingIOError as e:
        raise StateError(f"another process uses {exp_name} ({e}); end it first, or choose another exp_name") from e


def describe_state(inexact: Sequence[str], **about: Any) -> dict[str, Any]:
    """Return the description of a state that is saved now, for `StateFolder.write`.

    Args:
        inexact: the reason why the run does not resume exactly from it; empty if it does.
        about: `kind` ('serial' or 'parallel'), `exp_name`, `config` (see `flat_config`), `reason` (why it is saved),
            `train_iter`, `env_step` and `last_return` (None if there was no evaluation).
    """
    import torch

    return {
        **about,
        "time": time.time(),
        "is_exact": not inexact,
        "inexact": list(inexact),
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__), "numpy": np.__version__},
    }


def read_run_state(path: str, kind: str, config: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the newest state in the folder `path`, or None if there is none.

    Args:
        kind: 'serial' or 'parallel', see `describe_state`.
        config: the config of the run that resumes, see `flat_config`.

    Raises:
        StateError: no state is readable, or the state is of a run of the other kind.
        ConfigError: the config of the state differs.
    """
    found = StateFolder(path).read()
    if found is None:
        return None
    state, about = found
    saved_kind = about.get("kind", "serial")
    if saved_kind != kind:
        raise StateError(
            f"the state in {path} is that of a {saved_kind} run, which no {kind} run resumes; choose another exp_name"
        )
    check_same_config(about["config"], config, path)
    return state


# ---- configs


def plain_tree(cfg: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a config by dotted path; an empty section is a leaf, and so is the saved form of an object.

    Example:
        >>> plain_tree({"policy": {"learn": {"batch_size": 64}, "model": {}}, "seed": 0})
        {'policy.learn.batch_size': 64, 'policy.model': {}, 'seed': 0}
    """
    leaves: dict[str, Any] = {}
    for key, value in cfg.items():
        if isinstance(value, Mapping) and value and REFERENCE not in value:
            leaves.update(plain_tree(value, f"{prefix}{key}."))
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves


def flat_config(cfg: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a compiled config as text by dotted key, except for keys whose values may differ."""
    return {
        key: repr(value) if type(value) in SCALARS else _as_text(value)
        for key, value in plain_tree(cfg).items()
        if key not in _FREE and not key.startswith(_FREE_SECTIONS)
    }


def _as_text(value: Any) -> str:
    value = saved_form(value)
    if isinstance(value, Mapping):
        if value.keys() == {REFERENCE}:
            return repr(value[REFERENCE])
        return f"{{{', '.join(f'{key!r}: {_as_text(item)}' for key, item in items_of(value))}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_as_text, value))}]"
    if isinstance(value, (set, frozenset)):  # their order differs from one process to the next
        return f"{{{', '.join(sorted(map(_as_text, value)))}}}"
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__name__)}"
    text = shown(value)
    return type(value).__qualname__ if " at 0x" in text else text


def check_same_config(saved: Mapping[str, str], own: Mapping[str, str], path: str) -> None:
    """Check that the config of a state is the config of the run.

    Raises:
        ConfigError: they differ; the message names the keys.
    """
    keys = sorted(key for key in saved.keys() | own.keys() if saved.get(key) != own.get(key))
    # A section that was empty in the state, and is filled now, is compared by its entries.
    keys = [key for key in keys if saved.get(key) != "{}" or not any(name.startswith(f"{key}.") for name in own)]
    if keys:
        pairs = ((key, saved.get(key, "missing"), own.get(key, "missing")) for key in keys[:10])
        differences = "; ".join(f"{key}: {then} then, {now} now" for key, then, now in pairs)
        more = f"; and {len(keys) - 10} more" if len(keys) > 10 else ""
        raise ConfigError(
            f"the state in {path} has another config: {differences}{more}; make them equal, or choose another exp_name "
            "to start afresh. Budgets (stop_value, train_iterations, train_epoch, max_env_step, max_train_iter) may "
            "differ"
        )
