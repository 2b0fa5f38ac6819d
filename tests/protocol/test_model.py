"""Every interleaving of small topologies: no state is wrong, and each leads to a good end."""

import pytest

from effort import effort

from .model import Small, search

SMALL = {
    "two by two": Small(),
    "doubled messages": Small(doubles=True),
    "two keys": Small(keys=2, records=((0, 1), (0, 1))),
    "there and back": Small(tasks=(1, 2), back=True, doubles=True, records=((0, 0, 0),)),
    "there and back, two by two": Small(back=True, doubles=True, crashes=0),
    "aborts": Small(aborts=True),
    "aborts after a crash": Small(aborts=True, redo=False),
    "pause and resume": Small(pause=True),
    "chain": Small(tasks=(1, 2, 2), records=((0, 0),)),
    "chain, pause and resume": Small(tasks=(1, 2, 2), records=((0,),), pause=True),
}
# Minutes each.
LARGE = {
    "there and back, crashed": Small(back=True, doubles=True),
    "two crashes": Small(crashes=2, aborts=True),
    "chain of two": Small(tasks=(2, 2, 2), records=((0,), (0,))),
}


EVERY = SMALL | (LARGE if effort(1) >= 10 else {})


@pytest.mark.parametrize("name", EVERY)
def test_all_interleavings(name):
    found = search(EVERY[name], most=20_000_000)
    assert found.states > 1000
    assert found.good
