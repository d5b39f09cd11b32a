"""The table "Differences from DI-engine" is held against the suite: each row names a test, and the test exists."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "differences.md"


def rows():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if not row[0].startswith(("DI-engine", "---")) and set(row[0]) != {"-"}]


def names_in(path):
    return set(re.findall(r"^ *def (\w+)\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE))


def test_the_table_has_rows_of_three_cells():
    assert len(rows()) > 50
    assert [row for row in rows() if len(row) != 3 or not all(row)] == []


def test_each_row_names_a_test_that_exists():
    tests = [row[2].strip("`").partition("::") for row in rows()]
    known = {path: names_in(path) for path in {path for path, _, _ in tests}}
    unknown = [(path, name) for path, _, name in tests if not name.startswith("test_") or name not in known[path]]
    assert unknown == []


def test_no_row_is_there_twice():
    seen = [row[0] for row in rows()]
    assert sorted(seen) == sorted(set(seen))
