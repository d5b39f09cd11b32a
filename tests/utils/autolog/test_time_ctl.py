import time

import numpy as np
import pytest

from ding.utils.autolog import BaseTime, NaturalTime, TickTime, TimeProxy
from ding.utils.lock_helper import LockContextType


def test_tick_time_moves_by_steps_only():
    clock = TickTime()
    assert isinstance(clock, BaseTime)
    assert (clock.time(), clock.step(), clock.step(3), clock.step(np.int64(2)), clock.time()) == (0, 1, 4, 6, 6)
    assert TickTime(7).time() == 7


@pytest.mark.parametrize(("delta", "error"), [(0, ValueError), (-1, ValueError), (1.0, TypeError), ("1", TypeError)])
def test_tick_time_refuses_other_steps(delta, error):
    clock = TickTime()
    with pytest.raises(error):
        clock.step(delta)
    assert clock.time() == 0


def test_natural_time_never_goes_back(monkeypatch):
    told = iter([10.0, 11.0, 5.0, 12.0])
    monkeypatch.setattr(time, "time", lambda: next(told))
    clock = NaturalTime()
    assert [clock.time() for _ in range(3)] == [11.0, 11.0, 12.0]


def test_a_frozen_proxy_stands_still_until_it_is_unfrozen():
    clock = TickTime()
    proxy = TimeProxy(clock)
    assert not proxy.is_frozen
    proxy.freeze()
    clock.step()
    assert proxy.is_frozen
    assert (proxy.time(), proxy.current_time()) == (0, 1)
    proxy.unfreeze()
    assert (proxy.is_frozen, proxy.time()) == (False, 1)
    assert TimeProxy(clock, frozen=True).is_frozen


@pytest.mark.parametrize("lock_type", list(LockContextType))
def test_unfreezing_what_is_not_frozen_is_an_error(lock_type):
    proxy = TimeProxy(TickTime(), frozen=True, lock_type=lock_type)
    proxy.unfreeze()
    with pytest.raises(RuntimeError, match="not frozen"):
        proxy.unfreeze()
