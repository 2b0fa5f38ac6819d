"""Do two keyed operators with the tables of one plan keep the second exchange off the network?

Hosts with a worker each. The first operator waits for nothing: it counts the records of its key
and makes each of them larger, as an operator does that looks something up; the second one adds up
what it gets. Both arms run the same functions, and only the routers differ: Spark's own hash, or
the two routers of `pr.colocate`, planned on records that come before the ones that are measured.
Spark runs a task on a host that holds at least a fifth of its input, so that partitions of equal
number meet where no other host holds as much: on two hosts that takes a higher locality than on
six.
"""

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import pyroute as pr
import spark_udf as su
from bench.peers import Scale
from bench.report import Section
from bench.spark import generate, harness
from bench.spark.harness import Arm, progress
from bench.spark.hosts import Hosts, can_link, hosts, linked_hosts
from bench.spark.page import Raw, Spread, at_most, wall

TITLE = "colocated: two keyed operators, one plan, several hosts"
FILES = 4
SIX, ALONE = "six hosts", "no link"
TASKS = {SIX: 6, ALONE: 4, "unlimited": 4, "50mbit": 4, "20mbit": 4}  # where, and partitions
LARGER, COUNTED = "out string, payload binary", "out string, n bigint, bytes bigint"
WEEK = 7 * 86_400


def larger(size: int) -> Callable[[pa.Table], pa.Table]:
    """The first operator: a payload for each record, which no codec makes smaller."""

    def one_key(table: pa.Table) -> pa.Table:
        key = table.column("in")[0].as_py()
        block = hashlib.shake_128(f"{key} {table.num_rows}".encode()).digest(size * table.num_rows)
        at = pa.array(np.arange(table.num_rows + 1, dtype=np.int32) * size).buffers()[1]
        payload = pa.BinaryArray.from_buffers(
            pa.binary(), table.num_rows, [None, at, pa.py_buffer(block)]
        )
        return pa.table({"out": table.column("out"), "payload": payload})

    return one_key


def added_up(table: pa.Table) -> pa.Table:
    """The second operator: how many records, and bytes, its key got."""
    total = pc.sum(pc.binary_length(table.column("payload"))).as_py()
    row = {"out": table.column("out")[:1], "n": [table.num_rows], "bytes": [total]}
    return pa.table(row, schema=pa.schema([("out", "string"), ("n", "int64"), ("bytes", "int64")]))


def arms(read: Callable[[], Any], plan: pr.ColocationPlan, size: int) -> list[Arm]:
    func = larger(size)

    def by(first: pr.Router, second: pr.Router) -> Any:
        passed = su.apply_by_key(read(), first, "in", func=func, schema=LARGER)
        out = su.apply_by_key(passed, second, "out", func=added_up, schema=COUNTED)
        return out.toArrow()

    by_hash = hashed(len(plan.in_router.tasks))
    return [
        Arm("hash", lambda: by(by_hash, by_hash)),
        Arm("colocated", lambda: by(plan.in_router, plan.out_router)),
    ]


def hashed(tasks: int) -> pr.Router:
    return pr.Router(pr.SparkHash(tasks, "string"))


# -- records: those that a plan is made on, and those that come after


def synthetic(rows: int, local: float, seed: int) -> tuple[pa.Table, pa.Table]:
    """Pairs of which a share follows a fixed partner, as in paper 001, section 4.2."""
    random = np.random.default_rng(seed)
    keys = 400
    ins = random.integers(0, keys, 2 * rows)
    outs = np.where(random.random(2 * rows) < local, ins, random.integers(0, keys, 2 * rows))
    names = {"in": np.char.add("a", ins.astype(str)), "out": np.char.add("b", outs.astype(str))}
    table = pa.table({name: pa.array(values.tolist()) for name, values in names.items()})
    return table.slice(0, rows), table.slice(rows)


def congress(path: Any, weeks: int) -> tuple[pa.Table, pa.Table]:
    """States and hashtags: some weeks, and the week after them."""
    table = pq.read_table(path, columns=["ts", "state", "hashtag"]).sort_by("ts")
    table = table.rename_columns({"state": "in", "hashtag": "out"})
    week = pc.divide(pc.subtract(table.column("ts"), table.column("ts")[0]), WEEK)
    past = pc.and_(pc.less(week, weeks), pc.greater_equal(week, weeks - 4))
    return table.filter(past).drop(["ts"]), table.filter(pc.equal(week, weeks)).drop(["ts"])


def cases(scale: Scale) -> dict[str, tuple[pa.Table, pa.Table]]:
    rows = scale.pick(30_000, 3_000)
    found = {
        f"synthetic, {local:.0%} local": synthetic(rows, local, scale.seed)
        for local in scale.pick((1.0, 0.8, 0.6), (0.8,))
    }
    path = harness.data("congress_hashtags")
    if path is not None:
        found["congress, state and hashtag"] = congress(path, 30)
    return found


def in_files(name: str, table: pa.Table, seed: int) -> str:
    step = -(-table.num_rows // FILES)
    parts = [table.slice(i * step, step) for i in range(FILES)]
    label = "".join(c if c.isalnum() else "-" for c in name)
    return generate.made(f"colocated-{label}-{table.num_rows}-{seed}", lambda: iter(parts))


# -- measuring


def measure(scale: Scale) -> Raw:
    size = scale.pick(1024, 256)
    out: Raw = {"size": size, "cases": {}, "rates": {}}
    found = cases(scale)
    paths = {name: in_files(name, now, scale.seed) for name, (_, now) in found.items()}
    plans: dict[int, dict[str, Any]] = {}
    for tasks in sorted(set(TASKS.values())):
        plans[tasks] = {}
        for name, (past, now) in found.items():
            started = time.perf_counter()
            pairs = pr.PairSpaceSaving(100_000)
            pairs.observe(past.column("in"), past.column("out"))
            plan = pr.colocate(pairs, tasks)
            seconds = time.perf_counter() - started
            plans[tasks][name] = plan
            out["cases"][f"{name}, {tasks} partitions"] = {
                "rows": now.num_rows,
                "seconds": seconds,
                "planned": plan.locality,
                **placed(plan, now),
            }
    for where, tasks in TASKS.items():
        if where not in (SIX, ALONE) and not can_link():
            continue
        made = {name: (plan, paths[name]) for name, plan in plans[tasks].items()}
        with _hosts_of(where) as running:
            out["rates"][where] = on_hosts(running, scale, made, size, where)
    return out


def _hosts_of(where: str) -> Any:
    if where in (SIX, ALONE):
        return hosts(6 if where == SIX else 2)
    return linked_hosts(None if where == "unlimited" else where)


def placed(plan: pr.ColocationPlan, now: pa.Table) -> Raw:
    """Which share of the records stays in a partition of equal number, and the greatest loads."""
    ins, outs = now.column("in"), now.column("out")
    tasks = len(plan.in_router.tasks)
    both = {"hash": (hashed(tasks),) * 2, "colocated": (plan.in_router, plan.out_router)}
    found: Raw = {}
    for arm, routers in both.items():
        first, second = routers[0].route(ins), routers[1].route(outs)
        loads = [np.bincount(of, minlength=tasks) for of in (first, second)]
        found[arm] = {
            "local": float((first == second).mean()),
            "loads": [float(load.max() / load.mean()) for load in loads],
        }
    return found


def on_hosts(running: Hosts, scale: Scale, made: Raw, size: int, where: str) -> Raw:
    options = {"spark.sql.shuffle.partitions": str(TASKS.get(where, FILES)), **running.options()}
    spark = harness.session(running.master, options)
    try:
        return {
            name: compare(
                spark,
                running,
                arms(lambda path=path: spark.read.parquet(path), plan, size),
                scale.pick(5, 2),
                f"{where}, {name}",
            )
            for name, (plan, path) in made.items()
        }
    finally:
        spark.stop()


def compare(spark: Any, running: Hosts, ways: list[Arm], repetitions: int, say: str) -> Raw:
    """Wall time, bytes over the link, and what each exchange read from here and from there."""
    names = ("wall", "link", "remote", "local", "first_remote")
    found: Raw = {arm.name: {name: [] for name in names} for arm in ways}
    answer: Any = None
    for turn in range(-1, harness.REPETITIONS or repetitions):
        for arm in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
            group = f"{say} {arm.name} {turn}"
            spark.sparkContext.setJobGroup(group, arm.name)
            before = running.link_bytes()
            sample = harness.timed(spark, arm)
            answer = harness.same(answer, sample.answer, arm.name)
            if turn < 0:
                continue
            first, second = exchanges(spark, group)
            figures = {
                "wall": round(sample.wall, 3),
                "link": running.link_bytes() - before,
                "remote": second["shuffleRemoteBytesRead"],
                "local": second["shuffleLocalBytesRead"],
                "first_remote": first["shuffleRemoteBytesRead"],
            }
            for name, figure in figures.items():
                found[arm.name][name].append(figure)
            progress(f"{group}: {figures}")
    return found


def exchanges(spark: Any, group: str) -> tuple[Any, Any]:
    """The two stages that read from an exchange, in their order."""
    readers = [s for s in harness.stages(spark, group) if s["shuffleReadRecords"] > 0]
    first, second = sorted(readers, key=lambda stage: stage["stageId"])
    return first, second


# -- the page


def show(raw: Raw) -> Section:
    section = Section(TITLE, __doc__.split("\n")[0])
    section.say(
        f"A standalone master and workers of one core, {raw['size']:,} bytes added to each record"
        " by the first operator. 'Six hosts': as many addresses of the loopback, 6 partitions for"
        " each operator (6 'servers' for the plan), on the cores of one machine, so that its times"
        " say nothing. All others are two hosts and 4 partitions. 'No link': two addresses of the"
        " loopback; otherwise the second worker is in a network namespace of its own, behind a link"
        " of that rate in each direction. Remote: what the second exchange read from other workers,"
        " as Spark counts it. Link: all bytes that crossed it, the first exchange, Spark's own"
        " calls and headers included. Plans are made from earlier records (synthetic: as many as"
        " are measured; congress: the four weeks before); their time is not in the wall time and"
        " stands below. All answers are equal, asserted in every run."
    )
    section.say(
        "Spark prefers every host that holds a fifth or more of a task's input, and takes any of"
        " these. Where locality is low several do, the more so where hosts are few or one of them"
        " ran several tasks of the first operator: then what is planned comes true by chance."
    )
    table = section.table(
        *("case", "rows", "plan s", "local, planned", "local, hash", "local, then"),
        *("max/mean in, out: hash", "planned"),
    )
    for name, case in raw["cases"].items():
        table.add(
            *(name, case["rows"], case["seconds"], case["planned"]),
            *(case[arm]["local"] for arm in ("hash", "colocated")),
            *(
                " / ".join(f"{load:.2f}" for load in case[arm]["loads"])
                for arm in ("hash", "colocated")
            ),
        )
    table = section.table(
        *("case", "where", "hash s", "colocated s", "ratio"),
        *("remote, hash MB", "colocated MB", "link, hash MB", "colocated MB"),
    )
    for where, cases_of in raw["rates"].items():
        shares = []
        for name, found in cases_of.items():
            ratio = wall(found, "colocated").over(wall(found, "hash"))
            bytes_of = [
                Spread(found[arm][figure]).times(1e-6).text(".1f")
                for figure in ("remote", "link")
                for arm in ("hash", "colocated")
            ]
            times = [wall(found, arm).text() for arm in ("hash", "colocated")]
            table.add(name, where, *times, ratio.text(), *bytes_of)
            shares.append(
                Spread(found["colocated"]["remote"]).over(Spread(found["hash"]["remote"]))
            )
        section.goals.append(
            at_most(
                f"{where}: remote bytes of the second exchange, colocated to hash, worst case",
                1.0,
                max(shares, key=lambda share: share.median),
            )
        )
    return section
