"""What one schedule is about: a topology, records, plans and faults, all drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from functools import lru_cache

from pyroute.protocol import Topology

SHAPES: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...], tuple[str, ...]]] = {
    "pair": (("s", "a"), (("s", "a"),), ("s",)),
    "chain": (("s", "a", "b"), (("s", "a"), ("a", "b")), ("s",)),
    # a stateless operator between two keyed ones: the in-key travels through it
    "through": (("s", "b", "c", "d"), (("s", "b"), ("b", "c"), ("c", "d")), ("s", "c")),
    "diamond": (
        ("s", "a", "b", "c"),
        (("s", "a"), ("s", "b"), ("a", "c"), ("b", "c")),
        ("s",),
    ),
    "two sources": (("s", "t", "a", "b"), (("s", "a"), ("t", "b"), ("a", "b")), ("s", "t")),
    "shortcut": (("s", "a", "b"), (("s", "a"), ("s", "b"), ("a", "b")), ("s",)),
}


@dataclass(frozen=True)
class Settings:
    """The simplest schedule by default; `shrunk` goes there."""

    shape: str = "pair"
    tasks: tuple[int, ...] = (1, 2)
    """Tasks of each operator of the shape."""
    keys: int = 2
    """Keys of each keyed operator."""
    records: int = 4
    """Records of each source task."""
    epochs: int = 1
    ring: bool = False
    """Whether plans change the ring too."""
    pause: bool = False
    """Whether some epochs are of the pause/resume variant."""
    collect: bool = False
    """Whether statistics are collected before a plan."""
    aborts: float = 0.0
    """Chance, at every step before the decision, that the owner aborts."""
    doubles: float = 0.0
    """Chance that a message between machines comes twice, the second time much later."""
    losses: float = 0.0
    """Chance that a message of, or to, the manager is lost."""
    crashes: int = 0
    """Crashes of tasks."""
    manager_crashes: int = 0
    zombies: bool = False
    """Whether a manager thought dead goes on."""
    outside: int = 0
    """Producers outside of the topology that never hear of a new router."""
    capacity: int = 1000
    """Records that an instance takes while they wait."""
    bound: int = 0
    """Records that a channel takes before its sender has to wait; 0: any number."""
    raw: bool = False
    """Whether the network between tasks loses, doubles and reorders frames."""
    slow: float = 0.0
    """Share of the channels that are slow."""
    lag: float = 0.0
    """Chance that a message between tasks waits once more before it is taken."""

    @property
    def topology(self) -> Topology:
        return _topology(self.shape, self.tasks)

    def __str__(self) -> str:
        simple = Settings()
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(simple, field.name)
        ]
        return f"Settings({', '.join(changed)})"


@lru_cache(maxsize=4096)
def _topology(shape: str, tasks: tuple[int, ...]) -> Topology:
    operators, edges, stateless = SHAPES[shape]
    numbers = {name: range(n) for name, n in zip(operators, tasks, strict=True)}
    return Topology(numbers, edges, stateless=stateless)


def draw(seed: int) -> Settings:
    """The settings of a seed."""
    rng = random.Random(seed * 2 + 1)
    chance = rng.random
    shape = rng.choice(list(SHAPES))
    operators, _, stateless = SHAPES[shape]
    tasks = tuple(rng.randint(1, 2) if o in stateless else rng.choice((2, 2, 3)) for o in operators)
    return Settings(
        shape=shape,
        tasks=tasks,
        keys=rng.randint(1, 4),
        records=rng.randint(2, 7),
        epochs=rng.choice((1, 1, 1, 2, 3)),
        ring=chance() < 0.3,
        pause=chance() < 0.3,
        collect=chance() < 0.2,
        aborts=0.02 if chance() < 0.15 else 0.0,
        doubles=rng.choice((0.0, 0.1, 0.3)),
        losses=rng.choice((0.0, 0.0, 0.1)),
        crashes=rng.choice((0, 1, 1, 2)),
        manager_crashes=rng.choice((0, 0, 1, 2)),
        zombies=chance() < 0.3,
        outside=rng.choice((0, 0, 1)),
        capacity=rng.choice((1000, 1000, 2, 1, 0)),
        bound=rng.choice((0, 0, 1, 3)),
        raw=chance() < 0.15,
        slow=rng.choice((0.0, 0.3)),
        lag=rng.choice((0.0, 0.6, 0.8)),
    )


def shrunk(settings: Settings) -> list[Settings]:
    """Simpler settings, the simplest first."""
    simple = Settings()
    out = []
    if settings.shape != simple.shape:
        out.append(replace(settings, shape=simple.shape, tasks=simple.tasks))
        if settings.shape != "chain":
            out.append(replace(settings, shape="chain", tasks=(1, 2, 2)))
    for field in fields(settings):
        now, then = getattr(settings, field.name), getattr(simple, field.name)
        if field.name in ("shape", "tasks") or now == then:
            continue
        out.append(replace(settings, **{field.name: then}))
        if isinstance(now, int) and not isinstance(now, bool) and now > then + 1:
            out.append(replace(settings, **{field.name: now - 1}))
    least = tuple(
        1 if name in SHAPES[settings.shape][2] else 2 for name in SHAPES[settings.shape][0]
    )
    if settings.tasks != least:
        out.append(replace(settings, tasks=least))
    return out
