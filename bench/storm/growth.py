"""How fast is one task more of use, on a real Storm under full load?

Paper 002, figure 15. Storm cannot add a task to a topology that runs: there is one that no router
names, and after some plans the manager is asked to take it in. Mixed and Readj plan for it
(`pr.elastic`, theta_max 0.1 as in the paper) and go on planning every few seconds; 'ring' moves
what the ring gives to the new task, and plans nothing.
"""

import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import pyroute as pr
from bench.papers.streams import data
from bench.peers import Scale
from bench.report import Section
from bench.spark.page import Spread
from bench.storm import cluster, keyed, words
from bench.storm.keyed import Arm
from pyroute.control import ConfigStore

TITLE = "One task more: throughput over time"
ALLOWED = 0.1
ARMS = (Arm("Mixed", ALLOWED), Arm("Readj", ALLOWED), Arm("ring"))
BEFORE, AFTER, STEP = 10, 20, 2
"""Seconds that are shown, and summed up in one figure."""


def run(
    storm: cluster.Cluster, folder: Path, arm: Arm, lines: list[str], seconds: tuple[float, float]
) -> dict[str, Any]:
    """One arm: so long before the request, so long after it is done."""
    verb = "tasks" if arm.allowed else "rings"
    name = f"{folder.name}/split->count"
    with (
        keyed.running(storm, folder, arm, lines, first=keyed.TASKS - 1),
        ConfigStore.open(f"dir:{folder / 'store'}") as store,
    ):
        time.sleep(seconds[0])
        before = pr.Router.from_bytes(store.get(name).value)  # type: ignore[union-attr]
        asked_at = time.time()
        request = store.put(f"{folder.name}/request", {verb: {"count": keyed.TASKS}}, None)

        def done() -> dict[str, Any] | None:
            status = keyed.status_of(folder, folder.name)
            over = status.get("request", 0) >= request and status["phase"] == "idle"
            return status if over else None

        status = cluster.wait_for("the new task", done)
        done_at = time.time()
        after = pr.Router.from_bytes(store.get(name).value)  # type: ignore[union-attr]
        seen = sorted(set(lines[: int(keyed.acked(keyed.read_times(folder)))]))
        time.sleep(seconds[1])
        rows = keyed.read_times(folder)
    plan = status["plans"].get("count", {})
    found = {
        "arm": arm.name,
        "allowed": arm.allowed,
        "seconds": [[row[0] - asked_at, row[1], row[3]] for row in rows],
        "done": done_at - asked_at,
        "moving": status["seconds"],
        "planning": plan.get("seconds", 0.0),
        "keys": len(seen),
        "moved": int((before.route(seen) != after.route(seen)).sum()),
        "versions": after.version - before.version,
    }
    print(f"{arm}: {found['moved']} of {found['keys']} keys, done after {found['done']:.1f} s, "
          f"planning {found['planning']:.3f} s", flush=True)  # fmt: skip
    return found


def measure(scale: Scale) -> dict[str, Any]:
    path = data("congress_words")
    if path is None:
        return {"absent": words.ABSENT}
    lines = words.lines_of(path)
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="pyroute-growth-") as name,
        cluster.Cluster(slots=1) as storm,
        cluster.logged(storm),
    ):
        for turn in range(scale.often(2, 1)):
            for place in range(len(ARMS)):
                number = (place + turn) % len(ARMS)
                folder = Path(name) / f"growth-{number}-{turn}"
                seconds = scale.pick(28, 14), scale.pick(AFTER + 5, 12)
                rows.append({**run(storm, folder, ARMS[number], lines, seconds), "turn": turn})
    return {"rows": rows}


def level(row: dict[str, Any], since: float, until: float) -> float:
    """Records per second in the seconds between."""
    inside = [count for at, count, _ in row["seconds"] if since < at <= until]
    return float(np.mean(inside)) if inside else 0.0


def until_used(row: dict[str, Any]) -> float:
    """Seconds after the request until two in a row were at 95 % of the end each."""
    end = level(row, row["done"] + 5, 1e9)
    seconds = [(at, count) for at, count, _ in row["seconds"] if at > 0]
    for (_, one), (at, two) in itertools.pairwise(seconds):
        if min(one, two) >= 0.95 * end:
            return float(at)
    return float("inf")


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    tasks = keyed.TASKS
    section.say(
        f"{tasks - 1} tasks, then {tasks}, each waits {keyed.WORK:g} ms for a record: one more is"
        f" {1 / (tasks - 1):.0%} more. congress_words, one word in {words.EVERY}. A key is moved"
        " where the router after the request has another task for it, of all that had a count;"
        " every count was exact at the end."
    )
    table = section.table(
        *("arm", "records/s before", "after", "gain", "ms of planning", "seconds of the move"),
        *("seconds until 95 % of the end", "keys moved"),
    )
    arms = {arm: [row for row in result["rows"] if row["arm"] == arm.name] for arm in ARMS}
    used, planning = {}, {}
    for arm, rows in arms.items():
        before = Spread([level(row, -BEFORE, 0) for row in rows])
        after = Spread([level(row, row["done"] + 5, 1e9) for row in rows])
        used[arm.name] = Spread([until_used(row) for row in rows])
        planning[arm.name] = Spread([1000 * row["planning"] for row in rows])
        table.add(
            arm.name,
            before.text(",.0f"),
            after.text(",.0f"),
            after.over(before).text(),
            planning[arm.name].text(".1f") if arm.allowed else "-",
            Spread([row["moving"] for row in rows]).text(),
            used[arm.name].text(".1f"),
            Spread([row["moved"] / row["keys"] for row in rows]).text(".1%"),
        )
    section.say("Records per second around the request, mean of the runs:")
    edges = range(-BEFORE, AFTER, STEP)
    table = section.table("arm", *(f"{edge} s" for edge in edges))
    for arm, rows in arms.items():
        each = [np.mean([level(row, edge, edge + STEP) for row in rows]) for edge in edges]
        table.add(arm.name, *(f"{value:,.0f}" for value in each))
    faster = planning["Readj"].over(planning["Mixed"])
    keyed.claims_of(
        section,
        [
            keyed.at_least("Mixed plans for the new task 10 times as fast as Readj", 10.0, faster),
            (
                "Readj takes at least 5 minutes until the new task is of use (their machine)",
                f"{used['Readj'].text('.1f')} s",
                min(used["Readj"].each) >= 300,
            ),
        ],
    )
    return section
