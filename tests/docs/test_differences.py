"""The table "Differences from DI-engine" is held against the suite: each row names a test, and the test exists."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "differences.md"


def rows():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if not row[0].startswith(("DI-engine", "---")) and set(row[0]) != {"-"}]


def names_in(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_table_has_rows_of_three_cells():
    assert len(rows()) > 50
    assert [row for row in rows() if len(row) != 3 or not all(row)] == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[2].strip("`").split("::")[-1][:60])
def test_each_row_names_a_test_that_exists(row):
    path, _, name = row[2].strip("`").partition("::")
    assert name.startswith("test_") and name in names_in(path)


def test_no_row_is_there_twice():
    seen = [row[0] for row in rows()]
    assert sorted(seen) == sorted(set(seen))
