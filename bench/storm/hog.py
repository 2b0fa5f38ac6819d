"""What becomes of completion times when one task of a real Storm is slowed down?

Paper 003, figures 9 and 10, on a real Storm of two workers: windowed URL count and continuous
queries as in the section on split ratios, six tasks behind a `DynamicBolt`, a record takes 5 ms of
one of them (4.5 waiting, 0.5 of CPU). The child of the first task is stopped and continued in turn
(SIGSTOP, SIGCONT), so that it runs a fifth of the time. `pyroute control` listens to the counters
that every bolt tells (`pyroute.hook`) and publishes the ratio in the ZooKeeper that Storm itself
uses; the `DynamicBolt` follows. Times are those of the spout, from sending to ack: the mean over
the records that were acked in one second. Storm fails a record after 30 s; it is not sent again. A
request is acked when it is counted.
"""

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import Scale
from bench.report import Goal, Section
from bench.spark.page import Spread, at_least, at_most
from bench.storm import cluster, split

TITLE = "A task that is slowed down, with and without control"
TASKS, RATE, COST = 6, 600.0, (0.0045, 0.0005)
SLOW = 5.0
TIMEOUT = 30
ARMS: dict[str, tuple[str, ...]] = {
    "none": (),
    "the paper's, 30 s": ("--policy", "ban", "--period", "30"),
    "proportional, 1 s": ("--policy", "proportional"),
    "water-filling, 1 s": ("--policy", "water-filling"),
}
OURS = ("proportional, 1 s", "water-filling, 1 s")
EVERY = 10  # seconds of a row of the table over time


@dataclass(frozen=True)
class Times:
    """Seconds of a run."""

    before: float = 20.0
    hog: float = 70.0
    after: float = 40.0

    @property
    def all(self) -> float:
        return self.before + self.hog + self.after


def outside(storm: cluster.Cluster, first: str, inside: int) -> int:
    """The number that a child has here, of the one that it has in its namespace."""
    for pid in storm.children(first):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:") and int(line.split()[-1]) == inside:
                return pid
    raise cluster.StormError(f"child: expected process {inside}, got none")


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    """Stopped and continued in turn."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.02 * (SLOW - 1))
            os.kill(pid, signal.SIGCONT)
            over.wait(0.02)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def control(storm: cluster.Cluster, out: Path, *words: str) -> Iterator[None]:
    """`pyroute control` beside Storm; a line of JSON a period in a file."""
    command = [sys.executable, "-m", "pyroute", "control", *words, "--json"]
    with out.open("w") as lines:
        process = storm.hosts[0].start(*command, stdout=lines)
        try:
            yield
        finally:
            for pid in (process.pid, *cluster.below(process.pid)):
                if cluster.command_of(pid)[:1] == [sys.executable]:
                    os.kill(pid, signal.SIGTERM)
            process.wait(60)


def pids(folder: Path, first: str) -> list[tuple[int, int]]:
    """Process and Storm's id of each task, in order; fewer until all are there."""
    out = []
    for task in range(TASKS):
        path = folder / f"{first}-{task}.pid"
        words = path.read_text().split() if path.exists() else []
        if len(words) == 2:
            out.append((int(words[0]), int(words[1])))
    return out


def progress(folder: Path) -> tuple[bool, int, int]:
    """Whether all is done, sent, failed."""
    _, state, sent, failed = (folder / "spout-0").read_text().split()
    return state == "done", int(sent), int(failed)


def seconds_of(folder: Path, start: float) -> list[list[float]]:
    """When since the start, how many were acked and the mean of their times in ms, by second."""
    out = []
    for line in (folder / "spout-0.times").read_text().splitlines():
        at, count, *_, mean = map(int, line.split())
        if at / 1000 > start:
            out.append([round(at / 1000 - start, 2), count, mean / 1000])
    return out


def run(
    storm: cluster.Cluster, folder: Path, kind: str, arm: str, text: str, times: Times
) -> dict[str, Any]:
    """One arm of one topology."""
    folder.mkdir()
    (folder / "lines").write_text(text)
    store = f"zk://127.0.0.1:{storm.zookeeper_port}/{folder.name.replace(' ', '')}"
    first, _ = split.TOPOLOGIES[kind]
    (port,) = cluster.free_ports(1)
    conf = {
        "pyroute.hook": port,
        "topology.message.timeout.secs": TIMEOUT,
        "topology.max.spout.pending": 20_000,
    }
    options: dict[str, Any] = {"tasks": TASKS, "rate": RATE, "cost": COST, "again": False}
    storm.submit(split.description(folder, kind, store, conf=conf, **options))
    cluster.wait_for("records", lambda: sum(split.taken(folder, first, TASKS)) > 1000)
    cluster.wait_for("all tasks", lambda: len(pids(folder, first)) == TASKS)
    found = pids(folder, first)
    words = [kind, f"split->{first}", "--config", store, "--hook", str(port), *ARMS[arm]]
    for _, task in found:
        words += ["--worker", f"{first}/{task}"]
    counts: list[list[float]] = []

    def watch(seconds: float) -> None:
        until = time.time() + seconds
        while time.time() < until:
            failed = progress(folder)[2]
            first_taken = split.taken(folder, first, TASKS)[0]
            counts.append([round(time.time() - start, 2), failed, first_taken])
            time.sleep(0.25)

    said = folder / "status"
    with contextlib.ExitStack() as stack:
        if ARMS[arm]:
            stack.enter_context(control(storm, said, *words))
            cluster.wait_for("control", lambda: said.read_text().count("\n") >= 1)
        wait_until_steady(folder)
        start = time.time()
        watch(times.before)
        with slowed(outside(storm, first, found[0][0])):
            watch(times.hog)
        watch(times.after)
    (folder / "stop").touch()
    cluster.wait_for("all acked or failed", lambda: progress(folder)[0])
    _, sent, failed = progress(folder)
    # Also what was failed is done in the end; tasks write twice a second what they have taken.
    cluster.wait_for("the last counts", lambda: sum(split.taken(folder, first, TASKS)) >= sent)
    lines = said.read_text().splitlines() if said.exists() else []
    statuses = [json.loads(line) for line in lines]
    ratios = [
        [round(each["time"] - start, 2), *each["ratio"].values()]
        for each in statuses
        if each["changed"] and each["time"] > start
    ]
    out = {"kind": kind, "arm": arm, "sent": sent, "failed": failed, "counts": counts[::4],
           "seconds": seconds_of(folder, start), "ratios": ratios,
           "taken": sum(split.taken(folder, first, TASKS))}  # fmt: skip
    storm.kill_topology(kind)
    cluster.wait_for("the end of its workers", lambda: not storm.workers())
    print(f"{kind}, {arm}: peak {peak(out, times):,.0f} ms, {failed} failed", flush=True)
    return out


def wait_until_steady(folder: Path) -> None:
    """Until what piled up while the topology started is done."""

    def steady() -> bool:
        last = seconds_of(folder, 0.0)[-5:]
        return len(last) == 5 and all(count and mean < 100 for _, count, mean in last)

    cluster.wait_for("a steady stream", steady)


def measure(scale: Scale) -> dict[str, Any]:
    times = Times(8.0, 12.0, 10.0) if scale.quick else Times()
    found, absent = [], []
    with (
        tempfile.TemporaryDirectory(prefix="pyroute-hog-") as name,
        cluster.Cluster(slots=2) as storm,
        cluster.logged(storm),
    ):
        for kind in split.TOPOLOGIES:
            text = split.lines(kind)
            if text is None:
                absent.append(kind)
                continue
            for turn in range(scale.turns or 1):
                for number, arm in enumerate(ARMS):
                    folder = Path(name) / f"{kind}-{turn}-{number}"
                    found.append({"turn": turn, **run(storm, folder, kind, arm, text, times)})
    return {"runs": found, "missing": absent, "times": [times.before, times.hog, times.after]}


# What it means ---------------------------------------------------------------------------------


def usual(each: dict[str, Any], times: Times) -> float:
    """Median over the seconds before, in ms."""
    return Spread([ms for at, count, ms in each["seconds"] if count and at < times.before]).median


def peak(each: dict[str, Any], times: Times) -> float:
    """The worst second from the start of the hog on, in ms."""
    return float(max(ms for at, n, ms in each["seconds"] if n and at >= times.before))


def failing(each: dict[str, Any]) -> float:
    """Most records that failed in some ten seconds, a second."""
    counts = each["counts"]
    most = 0.0
    for at, failed, _ in counts:
        later = [one for when, one, _ in counts if at <= when <= at + 10.0]
        most = max(most, (later[-1] - failed) / 10.0)
    return most


def even_after(each: dict[str, Any], times: Times) -> float:
    """Seconds from the end of the hog until all shares are, and stay, within 5 % of even."""
    last, over = 0.0, times.before + times.hog
    ends = [at for at, *_ in each["ratios"][1:]]
    for (_, *shares), until in zip(each["ratios"], [*ends, times.all], strict=False):
        away = max(abs(share * TASKS - 1) for share in shares) > 0.05
        if away and until > over:
            last = until - over
    return last


def most_changes(each: dict[str, Any]) -> int:
    """In any minute."""
    when = [at for at, *_ in each["ratios"]]
    return max((sum(at <= one < at + 60 for one in when) for at in when), default=0)


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    times = Times(*result["times"])
    section.say(
        f"{times.before:g} s as they are, {times.hog:g} s of the hog, {times.after:g} s after it;"
        f" {TASKS} tasks, {RATE:,.0f} records/s. Even again: until all shares are within 5 % of"
        " even, after the end of the hog."
    )
    for kind in result["missing"]:
        section.say(f"Not measured: {kind}; PYROUTE_DATA names the folder of its data.")
    for kind in split.TOPOLOGIES:
        arms = {arm: [e for e in result["runs"] if (e["kind"], e["arm"]) == (kind, arm)]
                for arm in ARMS}  # fmt: skip
        if not all(arms.values()):
            continue
        section.say(f"**{kind}**:")
        table = section.table(
            *("control", "usual ms", "peak ms", "none's peak over it", "failed", "most failed/s"),
            *("even again after s", "changes of the ratio", "most in a minute"),
        )
        peaks = {arm: Spread([peak(e, times) for e in runs]) for arm, runs in arms.items()}
        for arm, runs in arms.items():
            table.add(
                arm,
                Spread([usual(e, times) for e in runs]).text(".1f"),
                peaks[arm].text(",.0f"),
                peaks["none"].over(peaks[arm]).text(".1f"),
                Spread([e["failed"] for e in runs]).text(",.0f"),
                Spread([failing(e) for e in runs]).text(".1f"),
                Spread([even_after(e, times) for e in runs]).text(".1f"),
                Spread([len(e["ratios"]) for e in runs]).text(".0f"),
                Spread([most_changes(e) for e in runs]).text(".0f"),
            )
        over_time(section, arms, times)
        judge(section, kind, arms, peaks, times)
    return section


def over_time(section: Section, arms: dict[str, list[dict[str, Any]]], times: Times) -> None:
    """Completion times, and failed records a second, of the first runs."""
    section.say("Mean completion time in ms, and in brackets records failed, by time:")
    table = section.table("seconds", *arms)
    for at in range(0, int(times.all), EVERY):
        cells = []
        for runs in arms.values():
            rows = [row for row in runs[0]["seconds"] if at <= row[0] < at + EVERY]
            count = sum(row[1] for row in rows)
            mean = sum(row[1] * row[2] for row in rows) / count if count else 0.0
            failed = [one for when, one, _ in runs[0]["counts"] if at <= when < at + EVERY]
            lost = failed[-1] - failed[0] if failed else 0
            cells.append(f"{mean:,.0f} ({lost:.0f})")
        hog = times.before <= at < times.before + times.hog
        table.add(f"{at} to {at + EVERY}{' (hog)' if hog else ''}", *cells)


def judge(
    section: Section,
    kind: str,
    arms: dict[str, list[dict[str, Any]]],
    peaks: dict[str, Spread],
    times: Times,
) -> None:
    for arm in OURS:
        name = f"{kind}: peak with no control over that of {arm}"
        section.goals.append(at_least(name, 20, peaks["none"].over(peaks[arm])))
        runs = arms[arm]
        section.goals += [
            at_most(f"{kind}: control periods until even again, {arm}", 30,
                    Spread([even_after(e, times) for e in runs])),
            at_most(f"{kind}: changes in any minute, {arm}", 10,
                    Spread([most_changes(e) for e in runs])),
        ]  # fmt: skip
        lost = sum(e["failed"] for e in runs)
        section.goals.append(Goal(f"{kind}: records failed, {arm}", "0", f"{lost}", lost == 0))
