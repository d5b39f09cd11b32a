"""The page of guarantees, made of the texts below and of the marks `guarantees` of the tests that hold them."""

from __future__ import annotations

import functools
import textwrap
from typing import NamedTuple

from marks import ROOT, marks_of

HEAD = """# Guarantees

What you can rely on, and what you cannot. A fault is what breaks a line of this page. The tests of each line have the
mark `guarantees`; [Differences](differences.md) lists where this keeps more than DI-engine did.
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
        "Scripts, configs, envs, policies and libraries that are written for them run unchanged.",
        "names that begin with an underscore, and what DI-engine does wrong.",
    ),
    "data": Guarantee(
        "Data",
        "A sample is what the env and the policy said, also if an env uses its arrays again. NaN and infinities are "
        "named, with the env, the step and the key, before they train or count as a result. A time limit is not a "
        "terminal state. An abnormal step voids its episode. Samples and episodes that are finished survive an "
        "exception. Nothing is pushed twice or lost.",
        "that wrong numbers are noticed which are finite.",
    ),
    "one-owner": Guarantee(
        "Env managers have one owner",
        "An env manager belongs to whoever collects or evaluates with it, until that call returns: a reset or step by "
        "others within the call raises an error. Between two calls anybody may reset or step its envs: the next call "
        "begins new fragments where that has happened.",
        "that this is noticed of an env manager that is not of this package, or overrides `step` or `ready_obs`.",
    ),
    "overrides": Guarantee(
        "What you override is called",
        "A method of an env manager, env, policy, model or buffer that your class overrides is called as documented, "
        "whatever faster way the methods of this package have.",
        "that a method is noticed which is assigned to an object after it was handed over.",
    ),
    "randomness": Guarantee(
        "Randomness has owners",
        "Exploration, sampling, shuffling and the seeds of envs draw from generators of their own, made from the seed "
        "of the run and saved with their owner. Code that seeds or draws from the generators of numpy, torch and "
        "`random`, and another training in a thread, change nothing of them.",
        "this for layers of torch that draw from its global generator, such as `nn.LSTM` with dropout.",
    ),
    "equal-bits": Guarantee(
        "Equal seeds, equal bits",
        "On a CPU, two serial runs with equal configs, seeds, versions and numbers of threads have the same bits, with "
        "the env managers `base` and `subprocess`.",
        "equal bits on a GPU, of parallel runs, or of env managers that serve envs in the order in which they answer.",
    ),
    "resume": Guarantee(
        "Resuming",
        "A serial run that is killed at any moment resumes and ends with the same bits, if everything in it declares "
        "its state: the classes of this package do, and so do envs with `get_state` and `set_state`. What does not is "
        "named, and the episode of such an env begins anew. A parallel run resumes from its last saved state. See "
        "[Resuming a run](resume.md).",
        "the same bits of parallel runs.",
    ),
    "signals": Guarantee(
        "Signals",
        "The first SIGINT or SIGTERM ends a run after the current round, with its state saved and the exit status 130; "
        "the second one ends it at once. Env processes ignore both.",
        "that a round is short.",
    ),
    "workers": Guarantee(
        "Workers",
        "A worker of a parallel run that dies is started again, at most three times in ten minutes; one that hangs is "
        "killed and started again. An exception in a worker or an env process reaches the caller with its traceback. "
        "No process outlives the one that started it.",
        "that samples under way in a lost worker are kept.",
    ),
    "files": Guarantee(
        "Files",
        "A file appears whole or not at all. Nothing that is read from a file or a socket runs code, unless you trust "
        "it (`trust_pickle`, `trusted`). A damaged file is named.",
        "that a file which somebody made on purpose takes little memory or time. Configs are Python programs: run only "
        "those that you trust.",
    ),
    "strangers": Guarantee(
        "Strangers",
        "By default servers listen on this machine only; on other addresses they start only with a token, which is in "
        "no log, and use TLS. Whoever does not have the token gets 401, or an error about a malformed request, takes "
        "at most 64 MiB of memory, and does not keep workers waiting.",
        "protection from those who have the token or guess it, from other processes of the same user, and from other "
        "users of the machine who take the port of a worker that has ended.",
    ),
    "logs": Guarantee(
        "Logs never end a run",
        "A sink of metrics, a text log, the line of progress or the text of an object that fails, also on a full disk, "
        "is told of in one line; then the run goes on without it.",
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
