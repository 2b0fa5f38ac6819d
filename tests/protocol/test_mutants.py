"""A machine that is wrong in one place is caught: by schedules, and some by exhaustive search too.

Fails where a mutant survives, so that the simulator cannot become blind unnoticed.
"""

import pytest

from pyroute.protocol import Instance, Manager

from . import schedules
from .model import BrokenError, Small, search
from .mutants import MUTANTS

MOST = 4000
"""Schedules within which every mutant has to be caught; most are within a hundred."""

SEARCHED = {
    "NoEpochCheck": Small(tasks=(1, 2), back=True, doubles=True, records=((0, 0),)),
    "FlushedEarly": Small(crashes=0),
    "FlushedBackwards": Small(crashes=0, records=((0, 0), (0,))),
    "ActsOnFirstPropagate": Small(crashes=0),
    "StateTwice": Small(tasks=(1, 2), doubles=True, records=((0, 0),)),
    "NothingToMigrate": Small(tasks=(1, 2), records=((),)),
    "ForgetsHeld": Small(crashes=0),
    "ForgetsPropagates": Small(crashes=0),
    "OneAckMissing": Small(tasks=(1, 2), records=((0,),)),
    "EndsEarly": Small(tasks=(1, 2), records=((0,),), back=True),
    "StoresLate": Small(tasks=(1, 2), records=((0,),)),
    "DecidesInMemory": Small(tasks=(1, 2), records=((0,),), redo=False),
    "ForgetsAbort": Small(tasks=(1, 2), records=((0,),), aborts=True),
    "ResumesBackwards": Small(crashes=0, pause=True, records=((0, 0, 0), ())),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_caught(mutant):
    with mutant.alive() as classes:
        for seed in range(MOST):
            if schedules.failure_of(seed, **classes) is not None:
                return
    pytest.fail(f"{mutant.name} survived {MOST} schedules: {mutant.says}")


@pytest.mark.parametrize("name", SEARCHED)
def test_caught_by_search(name):
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == name]
    search(SEARCHED[name])  # whole machines pass
    with mutant.alive() as classes, pytest.raises((BrokenError, RuntimeError, AssertionError)):
        search(SEARCHED[name], **classes)


def test_mutants_differ():
    """Each is wrong by itself: a machine that is not is caught by nothing."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 40
    for mutant in MUTANTS:
        assert mutant.patch or (mutant.instance, mutant.manager) != (Instance, Manager)


if __name__ == "__main__":
    for mutant in MUTANTS:
        with mutant.alive() as classes:
            found = (schedules.failure_of(seed, **classes) for seed in range(MOST))
            caught = next((failure for failure in found if failure is not None), None)
        after = "survived" if caught is None else f"{caught.seed + 1:>5} {caught.error[:60]}"
        print(f"{mutant.name:<22} {after}")
