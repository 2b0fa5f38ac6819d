"""Reports for the tests of the page."""

import numpy as np

import pyroute as pr
from pyroute import report

BIG = 2**60 + 1
HOSTILE = [
    "</script><script>document.title='broken'</script>",
    "<img src=x onerror=\"document.title='broken'\">",
    "\x00\u202eback",
    "'\"`${1}",
    "",
]


def clicks(random, shift, records=60_000, users=4000):
    """Users by Zipf, the hottest of them not too hot to be placed, and one with a large number."""
    keys = ((random.zipf(1.35, records) % users) + shift) % users
    keys = np.where(keys == 1, random.integers(1, 40, records), keys)
    return np.where(keys == 2, BIG, keys)


def full(tasks=12, intervals=24):
    """A report with every part."""
    random = np.random.default_rng(0)
    router, stats, gate = pr.Router(tasks), pr.KeyStats(window=3, smoothing=0.3), pr.Gate()
    history, first, moved, expected = [], None, (0, 0), None
    for interval in range(intervals):
        keys = clicks(random, 0 if interval < intervals // 2 else 700)
        loads = np.bincount(router.route(keys), minlength=tasks).astype(float)
        stats.observe(keys, state_sizes=np.full(len(keys), 120))
        plan = pr.rebalance(stats.close_interval(), router, max_imbalance=0.03)
        first = first or plan
        decision = gate.decide(plan, now=interval)
        history.append(
            report.Interval(
                f"10:{interval:02d}",
                dict(enumerate(loads.tolist())),
                *moved,
                expected_imbalance=expected,
                applied=decision.apply,
                reason=decision.reason,
            )
        )
        moved = (0, 0)
        if decision.apply:
            router = router.apply(plan)
            moved, expected = (plan.migration_cost, len(plan.migrations)), plan.imbalance
    sketch = pr.SpaceSaving(300)
    sketch.observe(clicks(random, 0))
    return report.build(
        "Clicks by user",
        subtitle="clicks.parquet, key user_id, 12 tasks",
        plan=first,
        top=sketch.top(),
        total=sketch.total,
        intervals=history,
        unit="records",
        locality=[
            report.Locality("state -> hashtag", 0.31, 0.62, 0.51, 0.9),
            report.Locality("user -> page", 0.08, 0.44, 0.37, 0.7),
        ],
    )


def hostile():
    """A report whose every text wants to be more than text."""
    snapshot = pr.Snapshot(HOSTILE, [500.0, 400.0, 300.0, 200.0, 100.0])
    plan = pr.rebalance(snapshot, pr.Router(3), max_imbalance=0)
    return report.build(
        HOSTILE[0],
        subtitle=HOSTILE[1],
        plan=plan,
        warnings=[HOSTILE[0], ("key ", report.KeyName(HOSTILE[1]))],
        events=[report.Event(HOSTILE[0], HOSTILE[1], HOSTILE[0])],
        facts=[report.Fact(HOSTILE[0], HOSTILE[1], HOSTILE[0])],
        locality=[report.Locality(HOSTILE[0], 0.1, 0.2, None, None, HOSTILE[1])],
    )
