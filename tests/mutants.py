"""Whether tests notice small faults: random mutants of the package, and how many of them a test kills.

    pip install -c constraints.txt -e ".[test,mutants,tune]"
    python -m tests.mutants --number 300 --seed 0 --jobs 2       # about an hour and a half
    python -m tests.mutants --number 30 --packages ding/data     # a few, of one package
    python -m tests.mutants --coverage .coverage                 # with the map of an earlier run

First the default tests run once and note which of them execute which line. Each mutant then changes one place of a
copy of the project, and up to 600 tests that execute this line run until one fails, those nearest to the module first.
For the few modules that do nothing without Ray or Optuna, their slow tests run, too. A mutant that survives is printed
with its change. Changes of annotations and of `zip(strict=)`, and those that are the same program, do not count. The
exit status is 0 if at least `--goal` of the mutants are killed.
"""

import argparse
import ast
import difflib
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ding/worker", "ding/data", "ding/policy", "ding/entry")
# One exchange of each kind: all 200 of the library would make most mutants ones of arithmetic.
OPERATORS = (
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Div_Mul",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mod_Mul",
    "ReplaceBinaryOperator_Pow_Mul",
    "ReplaceBinaryOperator_BitOr_BitAnd",
    "ReplaceBinaryOperator_BitAnd_BitOr",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceUnaryOperator_Delete_USub",
    "ReplaceUnaryOperator_Delete_Not",
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "NumberReplacer",
    "ZeroIterationForLoop",
)
# The tests of a mutant, nearest first; the many that remain run only if these find nothing.
NEAREST, MOST_TESTS, MOST_SECONDS = 60, 600, 300
# The slow tests of modules that do nothing without Ray or Optuna, by the beginning of their path.
SLOW_TESTS = {
    "ding/entry/tuning.py": ["tests/entry/test_tuning.py"],
    "ding/entry/ray_workers.py": ["tests/entry/test_ray.py"],
    "ding/worker/learner/comm/ray_learner.py": ["tests/entry/test_ray.py", "tests/entry/test_ray_ranks.py"],
    "ding/worker/transport/ray/": ["tests/worker/transport/ray", "tests/entry/test_ray.py"],
}
# What the reference says of defaults, ranges and signatures is compared with the package.
DOCS = "tests/docs/test_site.py"


class Mutant(NamedTuple):
    """A changed module: its path, the line and operator of the change, and the new text."""

    path: str
    line: int
    operator: str
    text: str


def mutants_of(path: str) -> list[tuple[str, int, int]]:
    """Return (operator, occurrence, line) of all mutants of a module."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator

    nodes = list(ast_nodes(get_ast_from_path(ROOT / path)))
    found = []
    for name in OPERATORS:
        operator = get_operator(f"core/{name}")()
        places = [place for node in nodes for place in operator.mutation_positions(node)]
        found += [(name, occurrence, start[0]) for occurrence, (start, _) in enumerate(places)]
    return found


def choose(packages: list[str], number: int, seed: int) -> Iterator[Mutant]:
    """Yield random mutants of packages, each as likely as any other."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    paths = sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    every = [(name, *mutant) for name in names for mutant in mutants_of(name)]
    random.Random(seed).shuffle(every)
    for name, operator, occurrence, line in every:
        before = (ROOT / name).read_text(encoding="utf-8")
        after = mutate_code(before, get_operator(f"core/{operator}")(), occurrence)
        if after is not None and program_of(after) not in (None, program_of(before)):
            yield Mutant(name, line, operator, after)
            number -= 1
            if not number:
                return


class _Bare(ast.NodeTransformer):
    """Removes what does not run, annotations and imports for types alone, and whether `zip` checks lengths."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: Any) -> Any:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "zip":
            node.keywords = []  # lengths that always agree are no difference that a test could see
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> Any:
        return None if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)


def program_of(text: str) -> str | None:
    """Return what a module does, as text that can be compared, or None if it is no Python."""
    try:
        return ast.dump(_Bare().visit(ast.parse(text)))
    except SyntaxError:
        return None


def copy_of_project(folder: Path) -> Path:
    """Copy the files under version control."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    return folder


def pytest(folder: Path, *arguments: str, seconds: float | None = None) -> int:
    """Run pytest in a copy; return its exit status, 1 also where it takes too long."""
    env = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    process = subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return 1
    finally:
        subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
        process.wait()


class LineTests:
    """Which tests execute a line.

    Args:
        data: a file of coverage with a context for each test.
    """

    def __init__(self, data: Path) -> None:
        from coverage import CoverageData

        self._data = CoverageData(str(data))
        self._data.read()
        measured = self._data.measured_files()
        self._files = {path.split("/ding/", 1)[1]: path for path in measured if "/ding/" in path}

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests to run, nearest first."""
        path = self._files.get(mutant.path.removeprefix("ding/"))
        lines = self._data.contexts_by_lineno(path) if path else {}
        tests = _names(lines.get(mutant.line, ()))
        at_import = not tests
        if at_import:  # or in processes alone: whoever executes the module
            tests = _names(context for contexts in lines.values() for context in contexts)
        nearest = sorted(tests, key=lambda test: (_distance(test, mutant.path), test))[:MOST_TESTS]
        return [*nearest[:NEAREST], *[DOCS] * at_import, *nearest[NEAREST:]]


def _names(contexts: Iterable[str]) -> set[str]:
    return {context.split("|")[0] for context in contexts if context}


def _distance(test: str, path: str) -> tuple[bool, int]:
    there, here = Path(test.split("::")[0]), Path(path)
    common = os.path.commonpath([Path("/", *there.parts[1:-1]), Path("/", *here.parts[1:-1])])
    return here.stem not in there.stem, -len(Path(common).parts)


_write_times = itertools.count(1)


def write(path: Path, text: str) -> None:
    """Write a module with a time of its own: by time and length Python tells whether a compiled file is of it."""
    path.write_text(text, encoding="utf-8")
    time = next(_write_times)
    os.utime(path, (time, time))


def run(mutants: list[Mutant], tests: LineTests, folders: list[Path]) -> list[bool]:
    """Return for each mutant whether it was killed; print those that were not."""
    free: SimpleQueue[Path] = SimpleQueue()
    for folder in folders:
        free.put(folder)

    def is_killed(mutant: Mutant) -> bool:
        chosen = tests.of(mutant)
        folder = free.get()
        before = (ROOT / mutant.path).read_text(encoding="utf-8")
        write(folder / mutant.path, mutant.text)
        try:
            slow = [["-m", "slow", *tests] for path, tests in SLOW_TESTS.items() if mutant.path.startswith(path)]
            parts = filter(None, (chosen[:NEAREST], chosen[NEAREST:], *slow))
            killed = any(pytest(folder, "-x", *part, seconds=MOST_SECONDS) != 0 for part in parts)
        finally:
            write(folder / mutant.path, before)
            free.put(folder)
        if not killed:
            change = difflib.unified_diff(before.splitlines(), mutant.text.splitlines(), n=0, lineterm="")
            lines = [line for line in change if not line.startswith(("---", "+++", "@@"))]
            print(f"{mutant.path}:{mutant.line} survives {len(chosen)} tests", *lines, sep="\n  ", flush=True)
        return killed

    with ThreadPoolExecutor(len(folders)) as pool:
        return list(pool.map(is_killed, mutants))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=300, help="mutants (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time (default %(default)s)")
    parser.add_argument("--packages", nargs="+", default=PACKAGES, metavar="FOLDER", help="default: %(default)s")
    parser.add_argument(
        "--coverage", type=Path, help="file that an earlier run, or pytest --cov-context=test, has made"
    )
    parser.add_argument("--goal", type=float, default=0.9, help="share that must be killed (default %(default)s)")
    args = parser.parse_args()
    mutants = list(choose(args.packages, args.number, args.seed))
    with tempfile.TemporaryDirectory() as scratch:
        folders = [copy_of_project(Path(scratch, str(job))) for job in range(args.jobs)]
        data = args.coverage
        if data is None:
            data = ROOT / ".coverage"
            pytest(folders[0], "-n", str(args.jobs), "--cov=ding", "--cov-context=test", "--cov-report=")
            shutil.copy(folders[0] / ".coverage", data)
        killed = run(mutants, LineTests(data), folders)
    print(f"{sum(killed)} of {len(killed)} mutants are killed: {sum(killed) / len(killed):.1%}")
    return 0 if sum(killed) >= args.goal * len(killed) else 1


if __name__ == "__main__":
    raise SystemExit(main())
