"""Methods that are declared to adapt one on batches: the declaration holds for the very function."""

import functools

import pytest

from ding.utils.batch_methods import adapts_batch, batch_method, batch_method_name


class Doubling:
    @adapts_batch("of_batch")
    def of_envs(self, items):
        return dict(zip(items, self.of_batch(list(items.values())), strict=True))

    def of_batch(self, items):
        return [2 * item for item in items]


def test_the_method_on_batches_is_that_of_the_object():
    class Tripling(Doubling):
        def of_batch(self, items):
            return [3 * item for item in items]

    assert batch_method(Doubling().of_envs)([1]) == [2]
    assert batch_method(Tripling().of_envs)([1]) == [3]
    assert batch_method_name(Tripling.of_envs) == "of_batch"


@pytest.mark.guarantees("overrides")
def test_a_method_that_overrides_or_wraps_it_is_none_of_them():
    class Overriding(Doubling):
        def of_envs(self, items):
            return super().of_envs(items)

    @functools.wraps(Doubling.of_envs)
    def wrapped(self, items):
        return Doubling.of_envs(self, items)

    class Wrapping(Doubling):
        of_envs = wrapped

    for method in (Overriding().of_envs, Wrapping().of_envs, functools.partial(Doubling().of_envs), len):
        assert batch_method(method) is None
    assert batch_method_name(Overriding.of_envs) is batch_method_name(wrapped) is None
