"""Takes from Python on Linux what macOS or Windows lack; a process has it that finds this folder in PYTHONPATH.

Gone are `fork` and what needs it, the start methods `fork` and `forkserver`, signals of Unix, descriptors of processes,
`prctl`, `fcntl` and its like, and, to Python code, `/proc` and `/dev/shm`. What stays differs between Linux and these
systems, too: this is no substitute for them.
"""

import ctypes
import multiprocessing.context
import multiprocessing.heap
import os
import signal
import sys

SIGNALS = ("SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGALRM", "SIGCHLD", "SIGQUIT")
FUNCTIONS = {
    signal: ("setitimer", "alarm", "pthread_sigmask", "pthread_kill", "pidfd_send_signal", "sigwait"),
    os: ("fork", "forkpty", "pidfd_open", "killpg", "setsid", "getpgid", "mkfifo",
         "sched_getaffinity", "sched_setaffinity", "wait3", "wait4"),
}  # fmt: skip
MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "pty"}
FOLDERS = ("/proc", "/dev/shm")
# They have code for each system of their own.
EXEMPT = ("/psutil/", "/torch/", "/numpy/", "/multiprocessing/", "/ray/")


def is_exempt():
    """Whether a library of `EXEMPT` asks."""
    frame = sys._getframe().f_back
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in EXEMPT):
            return True
        frame = frame.f_back
    return False


class Absent:
    """Finds no module of `MODULES`."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in MODULES and not is_exempt():
            raise ModuleNotFoundError(f"No module named {name!r} on this platform", name=name)


def forbid(event, args):
    """Let Python code open or list nothing in `FOLDERS`, nor this package open a folder, which Windows cannot."""
    if event not in ("open", "os.listdir", "os.scandir") or not isinstance(args[0], (str, bytes, os.PathLike)):
        return
    path = os.fsdecode(os.fspath(args[0]))
    if path.startswith(FOLDERS):
        if is_exempt():
            return
        raise FileNotFoundError(2, "No such file or directory on this platform", path)
    caller = sys._getframe().f_back  # None for the interpreter itself
    is_ours = caller is not None and "/ding/" in caller.f_code.co_filename
    if is_ours and event == "open" and args[1] is None and os.path.isdir(path):
        raise PermissionError(13, "Permission denied on this platform", path)


def bare():
    for module, names in {**FUNCTIONS, signal: (*SIGNALS, *FUNCTIONS[signal])}.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Absent)
    contexts = multiprocessing.context._concrete_contexts
    for name in ("fork", "forkserver"):
        contexts.pop(name, None)
    multiprocessing.context._default_context._default_context = contexts["spawn"]
    multiprocessing.get_all_start_methods = lambda: ["spawn"]
    multiprocessing.heap.Arena._dir_candidates = []

    find = ctypes.CDLL.__getattr__

    def lacking(self, name):
        if name == "prctl":
            raise AttributeError("function 'prctl' not found on this platform")
        return find(self, name)

    ctypes.CDLL.__getattr__ = lacking
    sys.addaudithook(forbid)


bare()
