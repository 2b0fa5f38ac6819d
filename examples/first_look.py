"""A first look: observe a skewed stream, name its hot keys, and route around them.

The stream drifts: halfway through, other keys become hot.
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


def show(title: str, load: np.ndarray) -> None:
    print(f"\n{title}: max/mean {load.max() / load.mean():.3f}")
    for task, records in enumerate(load):
        print(f"  task {task}  {'#' * round(40 * records / load.max()):40}  {records:>9,}")


def relieve(router: pr.Router, hot: pr.TopKeys, load: np.ndarray) -> pr.Router:
    """Take the hot keys off their tasks, then give each, heaviest first, the least loaded one."""
    load, table = load.copy(), {}
    np.subtract.at(load, router.route(hot.values), hot.counts)
    for value, count in zip(hot.values, hot.counts.tolist(), strict=True):
        table[value] = task = int(load.argmin())
        load[task] += count
    return pr.Router(router.home, table=table, version=router.version + 1)


def main() -> None:
    rng = np.random.default_rng(7)
    router = pr.Router(TASKS)
    print(f"{RECORDS:,} records, {KEYS:,} keys, {TASKS} tasks; SIMD path: {pr.simd()}")
    for part, offset in (("before the drift", 0), ("after the drift", KEYS // 2)):
        users = stream(rng, offset)
        started = time.perf_counter()
        sketch = pr.SpaceSaving(200)
        sketch.observe(users)
        seconds = time.perf_counter() - started
        hot = sketch.top(5)
        print(f"\n== {part}: observed at {RECORDS / seconds / 1e6:.0f} M records/s; hottest keys:")
        for value, count, error in zip(*hot, strict=True):
            print(f"  {value:12} {count:>8,} records, at most {error:,} too many")
        show(f"as routed by version {router.version}", loads(router, users))
        router = relieve(router, sketch.top(), loads(router, users))
        show(
            f"with a table of {len(router.table)} keys, version {router.version}",
            loads(router, users),
        )
    print(f"\n{router!r}")


if __name__ == "__main__":
    main()
