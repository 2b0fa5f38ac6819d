"""What does it cost a real Storm when a tenth of its keys move, and when something dies meanwhile?

Two workers: a spout, two sources, four tasks with durable counts, a manager. Throughput over the
ten seconds that contain the move against the ten before, and the times of records from spout to
ack; once with as many records as the topology takes (2,000 pending), once with fewer than that.
Then kill -9 of a child, a worker, the manager and ZooKeeper in the middle of a move: how long until
records flow and the move is done. Every count is checked at the end of each.
"""

import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.peers import Scale
from bench.report import Goal, Section
from bench.spark.page import Spread, at_least
from bench.storm import topology as tp
from bench.storm.cluster import Cluster, StormError, logged, wait_for
from bench.storm.documents import Documents
from pyroute.control import ConfigStore
from pyroute.storm.state import read_state

TASKS = 4
NAME = "move"
SESSION = 10.0
"""Seconds of a session of ZooKeeper that a store has by default."""


def description(
    folder: Path, store: str, spout: bool, *, rate: float, keys: int, timeout: int, pending: int
) -> Any:
    """The topology; everything that it keeps is below the folder, or in a store elsewhere.

    With `spout` the manager is one, and reads nothing.
    """
    control = {"streams": {"pyroute": ["kind", "data"]}, "direct_streams": ["pyroute"]}
    module = ["-m", "pyroute.storm"]
    storage = "store" if store.startswith("zk:") else "state"
    heard = () if spout else ("split", "count")
    return tp.topology(
        NAME,
        tp.spout(rate=rate, keys=keys, folder=str(folder / "spout")),
        tp.python(
            "split",
            tp.by("shuffle", "spout"),
            tp.by("direct", "manager", "pyroute"),
            script=[*module, "source", "--key", "key", "--id", "sequence"],
            parallelism=2,
            **{**control, "fields": ["id", "key", "padding"]},
        ),
        tp.python(
            "count",
            tp.by("direct", "split"),
            *(tp.by("direct", name, "pyroute") for name in ("split", "count", "manager")),
            script=[*module, "task"],
            parallelism=TASKS,
            **control,
        ),
        tp.python(
            "manager",
            *(tp.by("direct", name, "pyroute") for name in heard),
            script=[*module, "manager", "--plan-every", "0", "--storage", storage]
            + ["--spout"] * spout,
            kind="source" if spout else "shell",
            **control,
        ),
        conf={
            "topology.workers": 2,
            "topology.acker.executors": 2,
            "topology.max.spout.pending": pending,
            "topology.message.timeout.secs": timeout,
            "topology.disable.loadaware.messaging": True,
            "pyroute.operators": ["split", "count"],
            "pyroute.manager": "manager",
            "pyroute.state": str(folder / "state"),
            "pyroute.store": store,
        },
    )


class Run:
    """A running topology on a running cluster."""

    def __init__(
        self, cluster: Cluster, folder: Path, store: ConfigStore | Documents, keys: int, seed: int
    ) -> None:
        self.cluster, self.folder, self.store, self.keys = cluster, folder, store, keys
        self.random = random.Random(seed)
        self.asked = 0

    def progress(self) -> tuple[int, bool, int, int]:
        """Lowest sequence that is not acked, whether all is done, emitted, failed."""
        try:
            lowest, state, emitted, failed = (self.folder / "spout" / "spout-0").read_text().split()
        except (OSError, ValueError):
            return 0, False, 0, 0
        return int(lowest), state == "done", int(emitted), int(failed)

    def status(self) -> dict[str, Any]:
        """What the manager says; nothing while the store is away."""
        try:
            found = self.store.get(f"{NAME}/status")
        except ConnectionError:
            return {}
        return {} if found is None else dict(found.value)

    def ask(self, share: float = 0.1) -> int:
        """Ask for some of the keys to move."""
        chosen = self.random.sample(range(self.keys), int(self.keys * share))
        table = [[f"key-{i}", self.random.randrange(TASKS)] for i in chosen]
        self.asked = self.store.put(f"{NAME}/request", {"tables": {"count": table}}, None)
        return len(table)

    def moved(self) -> bool:
        """Whether what was asked for is done."""
        status = self.status()
        return status.get("request", 0) >= self.asked and status.get("phase") == "idle"

    def flows(self, records: int = 200) -> Callable[[], bool]:
        """Whether so many more records were acked since now."""
        before = self.progress()[0]
        return lambda: self.progress()[0] >= before + records

    def finish(self) -> int:
        """End the spout and wait until all is acked; how many records there were."""
        (self.folder / "spout" / "stop").touch()
        wait_for("all records acked", lambda: self.progress()[1])
        return self.progress()[0]

    def check(self, records: int) -> None:
        """Every count is exact; `StormError` otherwise."""
        total: Counter[str] = Counter()
        for number in range(TASKS):
            for key, state in read_state(self.folder / "state" / "count" / str(number)).items():
                if state is not None and key in total:
                    raise StormError(f"{key}: expected it in one task, got two")
                total[key] = state or 0
        wanted = Counter(f"key-{tp.key(i, self.keys)}" for i in range(records))
        wrong = {k: (n, total[k]) for k, n in wanted.items() if total[k] != n}
        if wrong or sum(total.values()) != records:
            some = list(wrong.items())[:5]
            raise StormError(f"counts: expected {records}, got {sum(total.values())}; {some}")

    def times(self) -> list[list[float]]:
        """A row per second: when, records acked, p50, p99, most, in milliseconds."""
        rows = []
        with contextlib.suppress(OSError):
            for line in (self.folder / "spout" / "spout-0.times").read_text().splitlines():
                at, count, *parts = map(int, line.split())
                rows.append([at / 1000, count, *(part / 1000 for part in parts)])
        return rows

    def steady(self) -> bool:
        """Whether what piled up while the topology started is done."""
        last = self.times()[-3:]
        return len(last) == 3 and all(row[1] and row[3] < 1000 for row in last)

    def victims(self) -> dict[str, Callable[[], None]]:
        """What can be killed, by name."""
        cluster = self.cluster

        def child(word: str) -> Callable[[], None]:
            return lambda: cluster.kill(sorted(cluster.children(word))[0])

        def worker() -> None:
            cluster.kill(self.random.choice(sorted(cluster.workers())))

        def zookeeper(seconds: float) -> Callable[[], None]:
            def kill() -> None:
                cluster.kill_daemon("zookeeper")
                time.sleep(seconds)
                cluster.start_zookeeper()

            return kill

        found = {
            "a task's child": child("task"),
            "a worker": worker,
            "the manager": child("manager"),
            "ZooKeeper": zookeeper(1.0),
        }
        if isinstance(self.store, Documents):

            def both() -> None:
                child("manager")()
                zookeeper(1.0)()

            found["the manager and ZooKeeper"] = both
            found["ZooKeeper, for longer than a session"] = zookeeper(SESSION + 2.0)
        return found


@contextlib.contextmanager
def running(
    folder: Path,
    *,
    rate: float,
    keys: int = 1000,
    timeout: int = 30,
    pending: int = 2000,
    seed: int = 0,
    zookeeper: bool = False,
    spout: bool = False,
) -> Iterator[Run]:
    """A cluster with the topology, once records flow and the manager is up.

    With `zookeeper` the manager's store and stable storage are in the ZooKeeper of the cluster,
    with `spout` it is no bolt.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spout").mkdir(exist_ok=True)
    with Cluster(slots=2) as cluster, logged(cluster):
        url = f"dir:{folder / 'store'}"
        store: ConfigStore | Documents
        if zookeeper:
            url = f"zk://127.0.0.1:{cluster.zookeeper_port}/pyroute"
            store = Documents(cluster, url)
        else:
            store = ConfigStore.open(url)
        with contextlib.closing(store):
            options: dict[str, Any] = {"rate": rate, "keys": keys, "timeout": timeout}
            cluster.submit(description(folder, url, spout, pending=pending, **options))
            run = Run(cluster, folder, store, keys, seed)
            wait_for("records acked", lambda: run.progress()[0] > 500)
            wait_for("the manager", lambda: run.status().get("phase") == "idle")
            yield run


def move(run: Run, share: float = 0.1) -> dict[str, Any]:
    """Ten steady seconds, then ten that contain a move."""
    rows: list[tuple[float, int]] = []

    def watch(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            rows.append((time.monotonic(), run.progress()[0]))
            time.sleep(0.05)

    def rate(since: float, until: float) -> float:
        inside = [row for row in rows if since <= row[0] <= until]
        return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])

    wait_for("a steady stream", lambda: run.steady())
    failed = run.progress()[3]
    start, wall = time.monotonic(), time.time()
    watch(10.0)
    watch(2.0)
    keys = run.ask(share)
    asked = time.monotonic()
    watch(8.0)
    wait_for("the move", run.moved)
    watch(1.0)
    steady, moving = rate(start, start + 10), rate(asked - 2, asked + 8)
    seconds = run.times()
    before = [row for row in seconds if wall < row[0] <= wall + 10]
    during = [row for row in seconds if wall + 10 < row[0] <= wall + 20]
    found = {
        "keys": keys,
        "steady": steady,
        "moving": moving,
        "seconds": run.status()["seconds"],
        "before": _times(before),
        "during": _times(during),
        "replays": run.progress()[3] - failed,
    }
    print(found, flush=True)
    return found


def _times(rows: list[list[float]]) -> list[float]:
    """p50, and the p99 of the worst second, in milliseconds."""
    if not rows:
        return []
    return [round(statistics.median(row[2] for row in rows)), round(max(row[3] for row in rows))]


def faults(run: Run, times: int = 1) -> list[dict[str, Any]]:
    """Kill each victim during a move; how long until records flow and the move is done."""
    found = []
    for _ in range(times):
        for name, kill in run.victims().items():
            wait_for("children", lambda: len(run.cluster.children("pyroute.storm")) == TASKS + 3)
            wait_for("records", run.flows())
            before = run.progress()[3]
            _into_a_move(run, run.random.random() * 0.3)
            kill()
            killed = time.monotonic()
            print(f"killed {name}", file=sys.stderr, flush=True)
            wait_for(f"records after {name} was killed", run.flows(1000))
            flowing = time.monotonic() - killed
            wait_for(f"the move after {name} was killed", run.moved)
            found.append(
                {
                    "killed": name,
                    "flowing": round(flowing, 1),
                    "moved": round(time.monotonic() - killed, 1),
                    "replays": _since(before, run.progress()[3]),
                }
            )
    return found


def _into_a_move(run: Run, seconds: float) -> None:
    """Ask for a move, and wait for so long; another one, and less long, where it is over then."""
    while True:
        run.ask()
        wait_for("a move", lambda: run.moved() or run.status().get("phase", "idle") != "idle")
        time.sleep(seconds)
        if run.status().get("phase", "idle") != "idle":
            return
        wait_for("the end of a move", run.moved)
        seconds /= 2


def _since(before: int, after: int) -> int:
    """How many more; a spout whose worker was started again counts from 0."""
    return after - before if after >= before else after


# The section ------------------------------------------------------------------------------------

TITLE = "Keys that move under load"
OFFERED = 500.0


def measure(scale: Scale) -> dict[str, Any]:
    moves, out = scale.pick(5, 1), {}
    with tempfile.TemporaryDirectory(prefix="pyroute-move-") as name:
        for kind, rate in (("saturated", 0.0), ("offered", OFFERED)):
            with running(Path(name) / kind, rate=rate, seed=scale.seed) as run:
                rows = [move(run) for _ in range(moves)]
                records = run.finish()
            run.check(records)
            out[kind] = {"moves": rows, "records": records}
        for kind in ("faults", "faults, ZooKeeper"):
            options = {"rate": OFFERED, "timeout": 10, "seed": scale.seed}
            place = Path(name) / kind.replace(", ", "-")
            with running(place, **options, zookeeper="ZooKeeper" in kind) as run:
                killed = faults(run, scale.pick(2, 1))
                records = run.finish()
            run.check(records)
            out[kind] = {"rows": killed, "records": records}
    return out


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    kinds = {"saturated": "all it takes", "offered": f"{OFFERED:.0f} records/s"}
    table = section.table(
        *("load", "records/s, 10 s before", "over the 10 s of the move", "ratio"),
        *("seconds of a move", "p50 / worst p99 ms before", "of the move", "replays"),
    )
    for kind, text in kinds.items():
        rows = result[kind]["moves"]
        steady, moving = (Spread([row[name] for row in rows]) for name in ("steady", "moving"))
        ratio = moving.over(steady)
        table.add(
            text,
            steady.text(",.0f"),
            moving.text(",.0f"),
            ratio.text(".3f"),
            Spread([row["seconds"] for row in rows]).text(".2f"),
            *(_both(rows, when) for when in ("before", "during")),
            sum(row["replays"] for row in rows),
        )
        name = f"throughput over the 10 s of a move, {text}"
        section.goals.append(at_least(name, 0.9, ratio, ".3f"))
    replays = sum(row["replays"] for kind in kinds for row in result[kind]["moves"])
    section.goals.append(Goal("replays of moves without faults", "0", str(replays), replays == 0))
    faulty = {"faults": "", "faults, ZooKeeper": ", the manager's store in ZooKeeper"}
    faulty = {kind: text for kind, text in faulty.items() if kind in result}
    for kind, text in faulty.items():
        table = section.table(f"killed during a move{text}", "records flow after s",
                              "move done after s", "replays")  # fmt: skip
        for row in result[kind]["rows"]:
            replays = row["replays"] if row["replays"] >= 0 else "-"
            table.add(row["killed"], row["flowing"], row["moved"], replays)
    records = [result[kind]["records"] for kind in (*kinds, *faulty)]
    text = ", ".join(f"{count:,}" for count in records)
    section.say(
        f"{text} records, every count exact at the end: a run whose counts are not fails. The"
        " message time-out is 30 s, with faults 10 s; Storm ends a worker whose child is dead."
    )
    return section


def _both(rows: list[dict[str, Any]], when: str) -> str:
    places = [Spread([row[when][place] for row in rows]).median for place in (0, 1)]
    return " / ".join(f"{value:.0f}" for value in places)
