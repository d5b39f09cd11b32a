"""A profiler that writes its results at exit."""

from __future__ import annotations

import atexit
import cProfile
import io
import os
from collections.abc import Callable

from ding.utils.file_helper import atomic_write

_ORDERS = ("cumulative", "tottime")


def register_profiler(
    write_profile: Callable[[cProfile.Profile, str], None], pr: cProfile.Profile, folder_path: str
) -> None:
    """Call `write_profile(pr, folder_path)` when the interpreter exits."""
    atexit.register(write_profile, pr, folder_path)


class Profiler:
    """Profiler of the calling thread from `profile` until `stop`, or until the interpreter exits.

    It writes `profile_<pid>.prof` for `pstats` and its viewers, and two tables, `profile_<pid>_cumulative.txt` and
    `profile_<pid>_tottime.txt`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     profiler = Profiler()
        ...     profiler.profile(folder)
        ...     total = sum(range(10))
        ...     profiler.stop()
        ...     len(os.listdir(folder))
        3
    """

    def __init__(self) -> None:
        self.pr = cProfile.Profile()
        self._folder_path: str | None = None

    def profile(self, folder_path: str = "./tmp") -> None:
        """Start the profiler, which will write its files to the folder `folder_path`, created if missing.

        Raises:
            RuntimeError: the profiler is running.
        """
        if self._folder_path is not None:
            raise RuntimeError(f"the profiler is running for {self._folder_path}; call stop() first")
        os.makedirs(folder_path, exist_ok=True)
        self._folder_path = folder_path
        register_profiler(self.write_profile, self.pr, folder_path)
        self.pr.enable()

    def stop(self) -> None:
        """Stop the profiler and write the files; further calls do nothing."""
        if self._folder_path is None:
            return
        atexit.unregister(self.write_profile)
        folder_path, self._folder_path = self._folder_path, None
        self.write_profile(self.pr, folder_path)

    def write_profile(self, pr: cProfile.Profile, folder_path: str) -> None:
        """Disable `pr` and write its files."""
        import pstats

        pr.disable()
        base = os.path.join(folder_path, f"profile_{os.getpid()}")
        pr.dump_stats(f"{base}.prof")
        for order in _ORDERS:
            table = io.StringIO()
            pstats.Stats(pr, stream=table).sort_stats(order).print_stats()
            with atomic_write(f"{base}_{order}.txt", "w") as file:
                file.write(table.getvalue())
