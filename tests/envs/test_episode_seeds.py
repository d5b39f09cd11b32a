"""Seeds of blocks of episodes are those of numpy's SeedSequence."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ding.envs.env.episode_seeds import episode_seeds

NUMBERS = st.one_of(st.integers(0, 100), st.integers(2**32 - 10, 2**32 + 10), st.integers(0, 2**70))


@settings(deadline=None, max_examples=50)
@given(seed=NUMBERS, env_index=NUMBERS, first=NUMBERS, count=st.integers(1, 20))
def test_each_seed_is_that_of_a_seed_sequence(seed, env_index, first, count):
    episodes = range(first, first + count)
    expected = [int(np.random.SeedSequence([seed, env_index, k]).generate_state(1)[0]) for k in episodes]
    assert episode_seeds(seed, env_index, first, count) == expected
