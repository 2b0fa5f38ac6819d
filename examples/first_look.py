"""A first look: observe a skewed stream, name its hot keys, and plan around them.

The stream drifts: halfway through, other keys become hot. A gate decides which plans are worth it.
"""

import time

import numpy as np

import pyroute as pr

TASKS, RECORDS, KEYS = 8, 1_000_000, 20_000


def stream(rng: np.random.Generator, offset: int) -> np.ndarray:
    """Users in Zipf's proportions, the hottest first; `offset` rotates who they are."""
    weights = np.arange(1, KEYS + 1) ** -0.85
    ranks = rng.choice(KEYS, RECORDS, p=weights / weights.sum())
    return np.char.add("user", ((ranks + offset) % KEYS).astype("U6"))


def loads(router: pr.Router, users: np.ndarray) -> np.ndarray:
    return np.bincount(router.route(users), minlength=TASKS)


def main() -> None:
    rng = np.random.default_rng(7)
    router, stats, gate = pr.Router(TASKS), pr.KeyStats(window=3, smoothing=0.3), pr.Gate()
    print(f"{RECORDS:,} records, {KEYS:,} keys, {TASKS} tasks; SIMD path: {pr.simd()}")
    for interval, offset in enumerate((0, 0, KEYS // 2, KEYS // 2)):
        users = stream(rng, offset)
        sketch = pr.SpaceSaving(200)
        started = time.perf_counter()
        sketch.observe(users)
        seconds = time.perf_counter() - started
        load = loads(router, users)
        drift = "other keys are hot now" if interval == 2 else f"routed by version {router.version}"
        print(f"\n== interval {interval}: {drift}, max/mean {load.max() / load.mean():.3f}")
        print(f"hottest keys, observed at {RECORDS / seconds / 1e6:.0f} M records/s:")
        for value, count, error in zip(*sketch.top(3), strict=True):
            print(f"  {value:12} {count:>8,} records, at most {error:,} too many")

        stats.observe(users, state_sizes=np.full(RECORDS, 100))
        plan = pr.rebalance(stats.close_interval(), router, max_imbalance=0.02)
        decision = gate.decide(plan, now=interval)
        print(plan.summary())
        print(f"gate: {'apply' if decision.apply else 'leave'} ({decision.reason})")
        if decision.apply:
            router = router.apply(plan)
            for value in sketch.top(1).values:
                print(plan.explain(value))
    print(f"\n{router!r}")


if __name__ == "__main__":
    main()
