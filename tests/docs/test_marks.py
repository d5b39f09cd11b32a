"""The pages "Differences from DI-engine" and "Guarantees" are made of marks of tests."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import differences  # noqa: E402
import guarantees  # noqa: E402
import marks  # noqa: E402


def test_each_section_has_rows_and_no_row_is_there_twice():
    rows = differences.by_section()
    assert [section for section, found in rows.items() if not found] == []
    seen = [original for found in rows.values() for original, _, _ in found]
    assert sorted(seen) == sorted(set(seen))


def test_no_cell_breaks_its_row():
    cells = [cell for found in differences.by_section().values() for row in found for cell in row]
    assert [cell for cell in cells if "|" in cell or "\n" in cell or cell != cell.strip()] == []


@pytest.mark.parametrize(
    "path, section",
    [
        ("worker/collector/test_rollout.py", "Collectors"),
        ("worker/collector/test_interaction_serial_evaluator.py", "Evaluators"),
        ("worker/collector/comm/test_comm_collector.py", "Parallel training"),
        ("entry/test_serial_entry.py", "Configuration and `serial_pipeline`"),
        ("test_packaging.py", "Configuration and `serial_pipeline`"),
    ],
)
def test_the_section_follows_from_the_file(path, section):
    assert differences.section_of(path) == section


@pytest.mark.parametrize("mark", ['("one text")', '("one", "")', '("one", name)', '("one", "two", section="x")'])
def test_a_mark_that_is_no_pair_of_texts_is_refused(tmp_path, mark):
    file = tmp_path / "test_it.py"
    file.write_text(f"import pytest\n\n@pytest.mark.differs{mark}\ndef test_it(): ...\n")
    with pytest.raises(ValueError, match="test_it.py:3: .*takes (two )?texts"):
        list(differences.rows_of(file))


def test_each_guarantee_says_what_it_is_and_what_not_and_has_tests():
    for name, guarantee in guarantees.GUARANTEES.items():
        assert guarantee.promise.endswith(".") and guarantee.not_promised.endswith("."), name
    assert {name for name, tests in guarantees.tests_by_guarantee().items() if not 3 <= len(tests) <= 20} == set()


@pytest.mark.parametrize("mark", ["()", '("data", "")', "(name)", '("data", section="x")'])
def test_a_mark_that_is_no_text_is_refused(tmp_path, mark):
    file = tmp_path / "test_it.py"
    file.write_text(f"import pytest\n\n@pytest.mark.guarantees{mark}\ndef test_it(): ...\n")
    with pytest.raises(ValueError, match="test_it.py:3: .*takes texts"):
        list(marks.marks_of(file, "guarantees"))
