"""Parts matched to servers: against every permutation."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyroute import _core

pytestmark = pytest.mark.kernel


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, 2**58) | st.integers(0, 4), min_size=n, max_size=n),
            min_size=n,
            max_size=n,
        )
    )
)
def test_optimal(kept):
    n = len(kept)
    chosen = _core.best_matching(np.array(kept, np.int64).ravel(), n).tolist()
    assert sorted(chosen) == list(range(n))
    best = max(sum(kept[i][p[i]] for i in range(n)) for p in permutations(range(n)))
    assert sum(kept[i][chosen[i]] for i in range(n)) == best


def test_many_parts():
    random = np.random.default_rng(1)
    order = random.permutation(200)
    kept = random.integers(0, 50, (200, 200))
    kept[np.arange(200), order] += 100
    assert _core.best_matching(kept.ravel(), 200).tolist() == order.tolist()


def test_square():
    with pytest.raises(ValueError, match="kept: expected a square"):
        _core.best_matching(np.ones(5, np.int64), 2)
