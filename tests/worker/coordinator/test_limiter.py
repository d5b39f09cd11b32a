"""The ratio of drawn to inserted samples."""

import pytest
from easydict import EasyDict
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.utils.config_helper import ConfigError
from ding.worker.coordinator.base_parallel_commander import BaseCommander, NaiveCommander
from ding.worker.coordinator.limiter import SampleLimiter, create_limiter
from tests.worker.coordinator.fakes import main_cfg

OWN = dict(BaseCommander.config)


def policy(batch_size=32, n_sample=16, update_per_collect=4, **more):
    learn = {"batch_size": batch_size, "update_per_collect": update_per_collect}
    return EasyDict(learn=learn, collect={"n_sample": n_sample}, **more)


def test_the_default_ratio_is_that_of_a_serial_run():
    assert create_limiter(policy(), OWN).ratio == 8.0


def test_an_on_policy_learner_draws_each_sample_once():
    assert create_limiter(policy(on_policy=True), OWN).ratio == 1.0


@pytest.mark.parametrize("missing", ["n_sample", "update_per_collect"])
def test_without_a_known_serial_ratio_there_is_no_limit(missing):
    assert create_limiter(policy(**{missing: None}), OWN).ratio is None


@pytest.mark.parametrize(("value", "ratio"), [(2.5, 2.5), (None, None)])
def test_the_config_may_give_the_ratio(value, ratio):
    own = {**OWN, "samples_per_insert": value, "insert_tolerance": 7, "min_samples": 5}
    limiter = create_limiter(policy(), own)
    assert (limiter.ratio, limiter.tolerance, limiter.min_samples) == (ratio, 7, 5)


def test_the_default_tolerance_is_two_chunks_of_each_collector_or_two_batches():
    own = {**OWN, "collector_task_space": 4}
    assert create_limiter(policy(), own).tolerance == 2 * 4 * 64
    assert create_limiter(policy(n_sample=100), own).tolerance == 2 * 4 * 100
    assert create_limiter(policy(batch_size=4096, update_per_collect=1), own).tolerance == 2 * 4 * 64
    assert create_limiter(policy(batch_size=4096), {**own, "samples_per_insert": 1}).tolerance == 2 * 4096


@pytest.mark.parametrize("value", [0, -1, "often", True])
def test_another_ratio_is_refused(value):
    with pytest.raises(ConfigError, match="samples_per_insert"):
        NaiveCommander(main_cfg("naive", samples_per_insert=value))


def test_the_learner_waits_for_the_first_samples():
    limiter = SampleLimiter(4.0, tolerance=8, min_samples=5)
    limiter.insert(4)
    assert not limiter.may_draw
    limiter.insert(1)
    assert limiter.may_draw


def test_collectors_go_on_while_the_buffer_has_no_batch():
    limiter = SampleLimiter(4.0, tolerance=8)
    limiter.insert(1)
    limiter.draw(4)
    limiter.insert(20)
    assert not limiter.may_ask
    limiter.draw(0)
    assert limiter.may_ask
    limiter.draw(4)
    assert not limiter.may_ask


def test_the_counts_are_kept():
    limiter, other = SampleLimiter(4.0, tolerance=8), SampleLimiter(4.0, tolerance=8)
    limiter.insert(3)
    limiter.draw(4)
    limiter.insert(6)
    other.load_state_dict(limiter.state_dict())
    assert (other.inserted, other.drawn, other.may_draw, not other.may_ask) == (9, 4, True, False)
    other.insert(4)
    assert not other.may_ask


@settings(max_examples=50, deadline=None)
@given(
    st.floats(0.05, 20),
    st.integers(1, 64),
    st.integers(1, 64),
    st.integers(1, 128),
    st.lists(st.integers(-2, 9), min_size=20, max_size=200),
)
def test_the_ratio_holds_for_any_number_of_collectors_and_never_do_all_wait(ratio, tolerance, batch_size, chunk, turns):
    """Each turn, one of ten collectors is asked, or answers if it was, or the learner draws a batch."""
    limiter, first = SampleLimiter(ratio, tolerance), None
    for turn in turns:
        assert limiter.may_draw or limiter.may_ask or limiter.asked
        if turn < 0:
            if limiter.may_draw:
                before = len(limiter.asked) * chunk  # asked before the first batch
                first = (limiter.inserted, before) if first is None else first
                limiter.draw(batch_size)
        elif str(turn) in limiter.asked:
            limiter.insert(chunk)
            limiter.asked.discard(str(turn))
        elif limiter.may_ask:
            limiter.asked.add(str(turn))
        if first is not None:
            owed = ratio * (limiter.inserted - first[0])
            slack = max(tolerance + chunk, first[1])
            assert owed - ratio * slack - 1e-6 <= limiter.drawn <= owed + batch_size + 1e-6
