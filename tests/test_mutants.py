"""The mutants command: which changes count, and which tests are to notice one."""

import pytest

from tests import mutants
from tests.mutants import LineTests, Mutant, program_of

PROGRAM = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import io\n\n\ndef f(x: int | None = 1) -> int:\n"


@pytest.mark.parametrize(
    "old, new, is_same",
    [
        ("int | None", "int & None", True),
        ("-> int", "-> str", True),
        ("import io", "import os", True),
        ("= 1", "= 2", False),
        ("return x", "return -x", False),
    ],
)
def test_changes_of_annotations_are_no_mutants(old, new, is_same):
    text = f"{PROGRAM}    return x\n"
    assert (program_of(text) == program_of(text.replace(old, new))) == is_same


def test_a_module_that_is_no_python_is_no_mutant():
    assert program_of("def f(:") is None


def test_tests_that_execute_the_line_are_run_nearest_first(tmp_path):
    coverage = pytest.importorskip("coverage")
    path = "/copy/ding/data/ring.py"
    data = coverage.CoverageData(str(tmp_path / "map"))
    for context, line in [
        ("", 1),
        ("tests/entry/test_serial.py::test_a|run", 5),
        ("tests/data/test_ring.py::test_b|run", 5),
        ("tests/data/test_other.py::test_c|setup", 5),
        ("tests/data/test_ring.py::test_d|run", 6),
    ]:
        data.set_context(context)
        data.add_lines({path: [line]})
    data.write()
    tests = LineTests(tmp_path / "map")
    at = [tests.of(Mutant("ding/data/ring.py", line, "AddNot", "")) for line in (5, 1)]
    nearest = [
        "tests/data/test_ring.py::test_b",
        "tests/data/test_other.py::test_c",
        "tests/entry/test_serial.py::test_a",
    ]
    assert at[0] == nearest
    # It runs when the module is imported.
    assert sorted(at[1]) == sorted([*nearest, "tests/data/test_ring.py::test_d", "tests/docs/test_site.py"])
    assert tests.of(Mutant("ding/data/nobody.py", 1, "AddNot", "")) == ["tests/docs/test_site.py"]


def test_a_mutant_is_killed_by_a_test_that_fails_and_the_copy_is_mended(tmp_path, monkeypatch, capsys):
    root, folder = tmp_path / "root", tmp_path / "copy"
    for place in (root, folder):
        (place / "ding").mkdir(parents=True)
        (place / "ding" / "one.py").write_text("ONE = 1\n")
    (folder / "test_one.py").write_text("from ding.one import ONE\n\n\ndef test_one():\n    assert ONE > 0\n")
    monkeypatch.setattr(mutants, "ROOT", root)

    class Known:
        @staticmethod
        def of(mutant):
            return ["test_one.py::test_one"] if mutant.line else []

    changes = [
        Mutant("ding/one.py", 1, "NumberReplacer", "ONE = 0\n"),
        Mutant("ding/one.py", 1, "NumberReplacer", "ONE = 2\n"),
        Mutant("ding/one.py", 0, "NumberReplacer", "ONE = 0\n"),
    ]
    assert mutants.run(changes, Known(), [folder]) == [True, False, False]
    assert capsys.readouterr().out.splitlines() == [
        "ding/one.py:1 survives 1 tests",
        "  -ONE = 1",
        "  +ONE = 2",
        "ding/one.py:0 survives 0 tests",
        "  -ONE = 1",
        "  +ONE = 0",
    ]
    assert (folder / "ding" / "one.py").read_text() == "ONE = 1\n"
    slow = "import pytest\n\n\n@pytest.mark.slow\ndef test_one():\n    from ding.one import ONE\n    assert ONE == 1\n"
    (folder / "test_slow.py").write_text(slow)
    for path, killed in (("ding/two.py", [False]), ("ding/", [True])):
        monkeypatch.setattr(mutants, "SLOW_TESTS", {path: ["test_slow.py"]})
        assert mutants.run(changes[1:2], Known(), [folder]) == killed
