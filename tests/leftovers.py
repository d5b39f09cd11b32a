"""What tests leave in shared memory, told apart from what other processes of the machine have there."""

import multiprocessing
import os
import pathlib

_SHARED = pathlib.Path("/dev/shm")


def name_semaphores() -> None:
    """Begin the names of all semaphores of this process, and of those it forks or spawns, with its id."""
    multiprocessing.current_process()._config["semprefix"] = f"/mp-{os.getpid()}"  # type: ignore[attr-defined]


def in_shared_memory() -> set[str]:
    """The semaphores and arrays in shared memory that are of this process and its children."""
    own = tuple(f"{kind}{os.getpid()}" for kind in ("sem.mp-", "pym-", "torch_"))
    return {path.name for path in _SHARED.glob("*") if path.name.startswith(own)}
