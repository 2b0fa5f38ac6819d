"""Every way to choose a task, behind one interface, for `pyroute.arena` or by itself.

>>> import pyroute as pr
>>> policy = pr.policies.make("shuffle")
>>> policy.begin(pr.policies.Setting(tasks=3))
>>> policy.route(pr.policies.records(["a", "b", "a", "c"]))
array([0, 1, 2, 0], dtype=int32)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyroute.keys import keys
from pyroute.policies.any_task import (
    Dynamic,
    FullKnowledge,
    JoinShortestQueue,
    LeastDelay,
    LoadAware,
    LocalOrShuffle,
    Pooled,
    Posg,
    Shuffle,
    TwoChoices,
)
from pyroute.policies.base import Compiled, Done, Policy, Records, Setting
from pyroute.policies.keyed import (
    ConsistentGrouping,
    DChoices,
    Dkg,
    Hash,
    Kip,
    Locality,
    MinMig,
    MinTable,
    Mixed,
    MixedBF,
    PartialKeyGrouping,
    Readj,
    WChoices,
)

__all__ = [
    "ALL",
    "Compiled",
    "ConsistentGrouping",
    "DChoices",
    "Dkg",
    "Done",
    "Dynamic",
    "FullKnowledge",
    "Hash",
    "JoinShortestQueue",
    "Kip",
    "LeastDelay",
    "LoadAware",
    "LocalOrShuffle",
    "Locality",
    "MinMig",
    "MinTable",
    "Mixed",
    "MixedBF",
    "PartialKeyGrouping",
    "Policy",
    "Pooled",
    "Posg",
    "Readj",
    "Records",
    "Setting",
    "Shuffle",
    "TwoChoices",
    "WChoices",
    "make",
    "records",
]

ALL: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        Hash,
        PartialKeyGrouping,
        DChoices,
        WChoices,
        Dkg,
        Readj,
        MinTable,
        MinMig,
        Mixed,
        MixedBF,
        Kip,
        ConsistentGrouping,
        Locality,
        Shuffle,
        LocalOrShuffle,
        Dynamic,
        Posg,
        Pooled,
        LoadAware,
        JoinShortestQueue,
        TwoChoices,
        LeastDelay,
        FullKnowledge,
    )
}
"""By name."""


def make(policy: str | Policy | type[Policy], **options: Any) -> Policy:
    """A policy by its name, with its options; a policy is given back as it is."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, type) and issubclass(policy, Policy):
        return policy(**options)
    if policy not in ALL:
        raise ValueError(f"policy: expected one of {', '.join(ALL)}, got {policy}")
    return ALL[policy](**options)


def records(values: Any, now: Any = 0.0, lengths: Any = None, tasks: int = 1) -> Records:
    """A batch of values for `Policy.route`, where no arena makes one."""
    ids = keys(values).ids
    times = np.broadcast_to(np.asarray(now, np.float64), ids.shape)
    known = np.zeros(tasks, np.int64) if lengths is None else np.asarray(lengths, np.int64)
    return Records(ids, times, known)
