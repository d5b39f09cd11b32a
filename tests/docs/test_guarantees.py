"""The page of guarantees has for each of its lines the tests that hold it."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import guarantees  # noqa: E402
import marks  # noqa: E402


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
