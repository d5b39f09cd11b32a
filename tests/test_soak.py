"""The soak command, for a few seconds: it counts what it is to count."""

import pytest

from tests.soak import Soak


@pytest.mark.slow
def test_a_minute_of_ten_seconds_has_its_row_and_its_verdict(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    soak = Soak(1, 10.0, "local")
    assert soak.run() == 0
    output = capsys.readouterr().out
    assert "samples doubled: 0; tasks lost: 0; missing: []; shared: +0\ngood" in output
    row = next(line for line in output.splitlines() if line.strip().startswith("1 |")).split(" | ")
    samples, updates, restarts = int(row[2]), int(row[3]), int(row[5])
    assert samples > 0 and updates > 0 and restarts == 0
