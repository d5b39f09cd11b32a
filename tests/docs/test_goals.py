"""The page about goals shows what was measured."""

from pathlib import Path

from tests.benchmarks.goals import results, table


def test_the_page_has_the_table_of_the_stored_results():
    page = Path(__file__).parents[2] / "docs" / "guides" / "goals.md"
    assert table(results()) in page.read_text(encoding="utf-8")
