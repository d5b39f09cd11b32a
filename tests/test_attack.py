"""What strangers can cost a coordinator, and a peer a worker; `tests/attack.py` attacks them."""

import json
import os
import sys

import pytest

from tests import attack


@pytest.mark.guarantees("strangers")
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or not os.path.exists("/proc/self/clear_refs"), reason="reads /proc")
def test_no_attack_takes_much_memory_or_stops_the_workers(capsys, monkeypatch, set_env):
    monkeypatch.setattr(attack, "SECONDS", 2.0)
    set_env(DING_TOKEN="replaced by the attack")
    attack.main([])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == sum(map(len, attack.ATTACKS.values()))
    assert [line for line in lines if line["memory_growth_mb"] > attack.MEMORY_GOAL_MB or not line["tasks"]] == []
