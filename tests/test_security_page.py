"""The tables of SECURITY.md are held against the suite: each statement names a test, and the test exists."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]


def tables():
    """The rows of each table "statement | test", by the heading of its section."""
    found, heading, rows = {}, "", None
    for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not cells:
            rows = None
        elif [cell.lower() for cell in cells] == ["statement", "test"]:
            rows = found.setdefault(heading, [])
        elif rows is not None and set("".join(cells)) - set("-: "):
            rows.append(cells)
    return found


def test_each_section_with_statements_has_some():
    assert {"Writers of a shared folder", "Where servers listen", "TLS"} <= tables().keys()
    assert [heading for heading, rows in tables().items() if len(rows) < 5] == []


def test_each_statement_names_a_test_that_exists():
    bad = []
    for heading, rows in tables().items():
        for row in rows:
            path, mark, name = row[-1].strip("`").partition("::")
            file = ROOT / path
            known = re.findall(r"^ *(?:async )?def (\w+)\(", file.read_text("utf-8"), re.M) if file.is_file() else []
            if len(row) != 2 or not row[0].endswith(".") or not (name.startswith("test_") and name in known):
                bad.append((heading, row))
    assert bad == []


def test_no_statement_is_there_twice():
    statements = [row[0] for rows in tables().values() for row in rows]
    assert len(statements) == len(set(statements))
