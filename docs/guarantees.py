"""The page of guarantees, made of the texts below and of the marks `guarantees` of the tests that hold them."""

from __future__ import annotations

import functools
import textwrap
from typing import NamedTuple

from marks import ROOT, marks_of

HEAD = """# Guarantees

This page says what you can and cannot rely on. A behaviour that breaks one of these promises is a bug. Below each
promise are its tests. [Differences](differences.md) lists what DI-engine does differently.
"""


HEADER = ("| test |", "|---|")


class Guarantee(NamedTuple):
    """A line of the page: what is promised, and what is not."""

    title: str
    promise: str
    not_promised: str


GUARANTEES = {
    "interfaces": Guarantee(
        "DI-engine's interfaces",
        "The documented names, signatures, config keys, return values, log tags and file names of DI-engine 0.5 stay. "
        "Scripts, configs, envs, policies and libraries that use them run unchanged.",
        "names that begin with an underscore; the defects of DI-engine.",
    ),
    "data": Guarantee(
        "Data",
        "A sample is what the env and the policy returned, even if an env reuses its arrays. NaN and infinities raise "
        "an error that names the env, the step and the key, before anything trains on them or counts them as a "
        "result. A time limit is not a terminal state. An abnormal step voids its episode. Finished samples and "
        "episodes survive an exception. No sample is pushed twice or lost.",
        "that wrong but finite numbers are noticed.",
    ),
    "one-owner": Guarantee(
        "Env managers have one owner",
        "During a call of a collector or evaluator, its env manager belongs to it: a reset or step by other code "
        "raises an error. Between two calls, other code may reset or step the envs; the next call then begins new "
        "fragments.",
        "the error, for env managers of other packages and those that override `step` or `ready_obs`.",
    ),
    "overrides": Guarantee(
        "What you override is called",
        "If your class overrides a documented method of an env manager, env, policy, model or buffer, your method is "
        "called as documented, even where the package itself has a faster way.",
        "that a method is called if you assign it to an object after you have passed the object on.",
    ),
    "randomness": Guarantee(
        "Randomness has owners",
        "Exploration, sampling, shuffling and the seeds of envs draw from separate generators, which are derived from "
        "the seed of the run and saved with their owners. They do not change if other code seeds or uses the "
        "generators of numpy, torch and `random`, or if another training runs in a thread.",
        "this for layers of torch that draw from its global generator, such as `nn.LSTM` with dropout.",
    ),
    "equal-bits": Guarantee(
        "Equal seeds, equal bits",
        "On a CPU, with the env managers `base` and `subprocess`, two serial runs with equal configs, seeds, versions "
        "and numbers of threads give the same bits.",
        "equal bits on a GPU, in parallel runs, or with env managers that handle envs in the order in which they "
        "answer.",
    ),
    "resume": Guarantee(
        "Resuming",
        "Kill a serial run at any moment and resume it: it ends with the same bits if everything in it declares its "
        "state, as the classes of this package and envs with `get_state` and `set_state` do. A warning names anything "
        "that does not; such an env begins a new episode. A parallel run resumes from its last saved state. See "
        "[Resuming a run](resume.md).",
        "the same bits in parallel runs.",
    ),
    "signals": Guarantee(
        "Signals",
        "On the first SIGINT or SIGTERM, a run finishes the current round, saves its state, and ends with the exit "
        "status 130. The second one ends it at once. Env processes ignore both signals.",
        "that a round is short.",
    ),
    "workers": Guarantee(
        "Workers",
        "In a parallel run, a worker that dies is restarted, at most three times in ten minutes; a worker that hangs "
        "is killed and restarted. An exception in a worker or an env process reaches the caller with its traceback. "
        "No process outlives the one that started it. See [Training in parallel](parallel.md).",
        "that samples of a lost worker are kept if it has not sent them.",
    ),
    "files": Guarantee(
        "Files",
        "A file appears complete or not at all. Data from a file or a socket runs no code, unless you trust it "
        "(`trust_pickle`, `trusted`). An error names a damaged file.",
        "limits on the memory or time that reading takes if somebody has crafted the file for that. Configs are Python "
        "programs: run only those that you trust.",
    ),
    "strangers": Guarantee(
        "Strangers",
        "By default, servers listen on this machine only. On other addresses they need a token, which appears in no "
        "log, and use TLS. A client without the token gets 401, or an error about a malformed request; it makes a "
        "server use at most 64 MiB more memory, and does not keep workers waiting.",
        "protection from anybody who has or guesses the token, from other processes of the same user, and from other "
        "users of the machine who take over the port of a worker that has ended.",
    ),
    "logs": Guarantee(
        "Logs never end a run",
        "If a metric sink, a text log, the progress line or the `repr` of an object fails, for instance because the "
        "disk is full, one line says so, and the run continues without it.",
        "that logs are complete after that.",
    ),
}


def page() -> str:
    """Returns the page."""
    tests, parts = tests_by_guarantee(), [HEAD]
    for name, guarantee in GUARANTEES.items():
        promise = textwrap.fill(guarantee.promise, 120)
        rest = textwrap.fill(f"**Not promised:** {guarantee.not_promised}", 120)
        rows = [f"| `{test}` |" for test in tests[name]]
        parts.append("\n".join([f"## {guarantee.title}", "", promise, "", rest, "", *HEADER, *rows, ""]))
    return "\n".join(parts)


@functools.cache
def tests_by_guarantee() -> dict[str, list[str]]:
    """Returns the tests of each guarantee, in the order of the files.

    Raises:
        ValueError: a mark names a guarantee that there is not.
    """
    found: dict[str, list[str]] = {name: [] for name in GUARANTEES}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for names, test, line in marks_of(path, "guarantees"):
            for name in names:
                if name not in GUARANTEES:
                    raise ValueError(f"{path}:{line}: there is no guarantee {name!r}")
                found[name].append(f"{path.relative_to(ROOT).as_posix()}::{test}")
    return found
