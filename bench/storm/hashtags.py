"""What does a reconfiguration by locality give on real pairs, while they flow over a slow link?

Paper 001, figures 13 and 14: state and hashtag of congress_hashtags, shuffled, so that the pairs
are stable. As in the section on two hosts, each source sends the records of the states of its own
host, the first stage counts by state and the second by hashtag. Half way `pr.colocate`, planned on
the first half of the rows, is published to the config store that the groupings watch, and the
sources take over the states that are their host's now; the rows that flow are of the second half.
Counts of groupings can be merged, so that no state moves: what moving costs is another section.
"""

import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import pyroute as pr
from bench.papers.weekly import load
from bench.peers import Scale
from bench.report import Section
from bench.spark.page import Spread
from bench.storm import cluster, hosts
from bench.storm import topology as t
from pyroute.control import ConfigStore

TITLE = "Hashtags by state: a reconfiguration half way"
LINKS = {"20mbit": "20 Mbit/s", "100mbit": "100 Mbit/s"}
PADDINGS = (0, 4_000, 12_000)
CAPACITY = 200_000
STEP = 3.0
ABSENT = "Not measured: congress_hashtags.parquet was not found; PYROUTE_DATA names its folder."


def pairs_of(seed: int) -> tuple[list[str], list[str]] | None:
    """States and hashtags, in an order of no meaning."""
    stream = load("congress_hashtags", "state", "hashtag")
    if stream is None:
        return None
    order = np.random.default_rng(seed).permutation(len(stream.ins))
    states = [stream.in_names[i] for i in stream.ins[order].tolist()]
    tags = [stream.out_names[i].replace("\t", " ") for i in stream.outs[order].tolist()]
    return states, tags


class Plan:
    """Routers before and after, and the pairs that flow."""

    def __init__(self, states: list[str], tags: list[str]) -> None:
        half = len(states) // 2
        self.states, self.tags = states[half:], tags[half:]
        self.before = pr.Router(pr.Ring(2, salt=1)), pr.Router(pr.Ring(2, salt=2))
        seen = pr.PairSpaceSaving(CAPACITY)
        seen.observe(states[:half], tags[:half])
        plan = pr.colocate(seen, 2, routers=self.before)
        self.after = plan.in_router, plan.out_router

    def locality(self, made: tuple[pr.Router, pr.Router]) -> float:
        """Share of the pairs that flow and stay on one host."""
        return float((made[0].route(self.states) == made[1].route(self.tags)).mean())

    def write(self, folder: Path, prefix: str, made: tuple[pr.Router, pr.Router]) -> None:
        """The records of each source, and then the routers."""
        hosts.write_pairs(folder, prefix, made[0], self.states, self.tags)
        with ConfigStore.open(f"dir:{folder / 'store'}") as store:
            for name, router in zip(("in", "out"), made, strict=True):
                store.put(name, router.to_bytes(values=False), None)


def description(folder: Path, padding: int) -> dict[str, Any]:
    store = f"dir:{folder / 'store'}"
    by_in = t.routed("source", store, "in", fields=["in"])
    by_out = t.routed("first", store, "out", fields=["out"])
    return hosts.stages(folder, by_in, by_out, 2, padding)


def watch(storm: cluster.Cluster, folder: Path, seconds: float) -> list[list[float]]:
    """A row for each STEP: when, records of the second stage, local ones, bytes on the link."""
    rows = []
    for _ in range(round(seconds / STEP)):
        count, local = hosts.read(folder) or (0, 0)
        rows.append([time.monotonic(), count, local, storm.link_bytes()])
        time.sleep(STEP)
    count, local = hosts.read(folder) or (0, 0)
    return [*rows, [time.monotonic(), count, local, storm.link_bytes()]]


def rates(rows: list[list[float]]) -> list[list[float]]:
    """Records per second, local share and bytes per record between every two rows."""
    out = []
    for before, after in itertools.pairwise(rows):
        seconds, count, local, sent = (b - a for a, b in zip(before, after, strict=True))
        out.append([count / seconds, local / max(count, 1), sent / max(count, 1)])
    return out


def run(
    storm: cluster.Cluster, folder: Path, plan: Plan, setting: tuple[str, int, bool], half: float
) -> dict[str, Any]:
    """One run; `setting`: the link, the padding, whether it is reconfigured half way."""
    link, padding, changes = setting
    folder.mkdir()
    storm.limit(link)
    plan.write(folder, "pairs", plan.before)
    storm.submit(description(folder, padding))
    cluster.wait_for("records", lambda: hosts.read(folder))
    time.sleep(STEP)
    before = rates(watch(storm, folder, half))
    if changes:
        plan.write(folder, "next", plan.after)
    during = rates(watch(storm, folder, STEP))
    after = rates(watch(storm, folder, half))
    storm.kill_topology(folder.name)
    cluster.wait_for("the end of its workers", lambda: not storm.workers())
    found = {"link": link, "padding": padding, "changes": changes, "before": before,
             "during": during, "after": after}  # fmt: skip
    print(f"{link}, {padding} B, {'reconfigured' if changes else 'left'}: {level(found, 'before')},"
          f" then {level(found, 'after')}", flush=True)  # fmt: skip
    return found


def level(row: dict[str, Any], part: str) -> list[float]:
    """Mean rate, local share and bytes per record of a part of a run."""
    return [round(float(value), 3) for value in np.mean(row[part], axis=0)]


def settings(scale: Scale) -> list[tuple[tuple[str, int, bool], int]]:
    """Link, padding, whether it is reconfigured, and how often it is run."""
    if scale.quick:
        return [(("20mbit", 4_000, changes), 1) for changes in (True, False)]
    return [
        ((link, padding, changes), scale.often(2, 1) if changes else 1)
        for link in LINKS
        for padding in PADDINGS
        for changes in ((True, False) if link == "20mbit" else (True,))
    ]


def measure(scale: Scale) -> dict[str, Any]:
    if not cluster.Namespace.possible():
        return {"absent": "Not measured: it takes network namespaces."}
    found = pairs_of(scale.seed)
    if found is None:
        return {"absent": ABSENT}
    plan = Plan(*found)
    rows = []
    chosen = settings(scale)
    with (
        tempfile.TemporaryDirectory(prefix="pyroute-hashtags-") as name,
        cluster.Cluster(slots=1, supervisors=2, rate="20mbit") as storm,
        cluster.logged(storm),
    ):
        for turn in range(max(times for _, times in chosen)):
            for number, (setting, times) in enumerate(chosen):
                if turn < times:
                    folder = Path(name) / f"hashtags-{number}-{turn}"
                    half = float(scale.pick(12, 9))
                    rows.append({**run(storm, folder, plan, setting, half), "turn": turn})
    return {
        "rows": rows,
        "records": len(plan.states),
        "locality": [plan.locality(plan.before), plan.locality(plan.after)],
    }


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    before, after = result["locality"]
    section.say(
        f"{result['records']:,} pairs, over and over. On them the rings keep {before:.1%} of the"
        f" records on their host, the plan {after:.1%}. Two hosts are what there is: of figure 14,"
        " throughput over the number of hosts, this is one point."
    )
    table = section.table(
        *("link", "padding", "half way", "records/s before", "after", "after / before"),
        *("local before", "after", "bytes on the link for a record, before", "after"),
    )
    kinds: dict[tuple[str, int, bool], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        kinds.setdefault((row["link"], row["padding"], row["changes"]), []).append(row)
    gains: dict[tuple[str, int], Spread] = {}
    for (link, padding, changes), rows in kinds.items():
        first, last = (
            [Spread([level(row, part)[i] for row in rows]) for i in range(3)]
            for part in ("before", "after")
        )
        gain = last[0].over(first[0])
        if changes:
            gains[link, padding] = gain
        table.add(
            *(LINKS[link], f"{padding:,} B", "reconfigured" if changes else "left as it is"),
            *(first[0].text(",.0f"), last[0].text(",.0f"), gain.text()),
            *(first[1].text(".1%"), last[1].text(".1%")),
            *(first[2].text(",.0f"), last[2].text(",.0f")),
        )
    timeline(section, kinds)
    claims(section, gains)
    return section


def timeline(section: Section, kinds: dict[tuple[str, int, bool], list[dict[str, Any]]]) -> None:
    """Records per second every STEP, mean of the runs; the bar is the reconfiguration."""
    section.say(f"Records per second every {STEP:g} s, mean of the runs:")
    shape = next(iter(kinds.values()))[0]
    steps = [*("before" for _ in shape["before"]), "|", *("after" for _ in shape["after"])]
    table = section.table("link", "padding", "half way", *steps)
    for (link, padding, changes), rows in kinds.items():
        each = [
            np.mean([[step[0] for step in row[part]] for row in rows], axis=0)
            for part in ("before", "during", "after")
        ]
        text = "reconfigured" if changes else "left as it is"
        values = (f"{value:,.0f}" for part in each for value in part)
        table.add(LINKS[link], f"{padding:,} B", text, *values)


def claims(section: Section, gains: dict[tuple[str, int], Spread]) -> None:
    table = section.table("claim of the paper", "measured", "holds")
    for (link, padding), gain in gains.items():
        if padding and link == "20mbit":
            text = f"throughput grows after the reconfiguration ({LINKS[link]}, {padding:,} B)"
            table.add(text, gain.text(), "yes" if min(gain.each) > 1 else "no")
    for link, name in LINKS.items():
        if (link, PADDINGS[0]) in gains and (link, PADDINGS[-1]) in gains:
            small, large = (gains[link, padding] for padding in (PADDINGS[0], PADDINGS[-1]))
            table.add(
                f"the gain grows with the tuples ({name}, {PADDINGS[0]:,} to {PADDINGS[-1]:,} B)",
                f"{small.text()} to {large.text()}",
                "yes" if min(large.each) > max(small.each) else "no",
            )
    most = PADDINGS[-1]
    if all((link, most) in gains for link in LINKS):
        slow, fast = gains["20mbit", most], gains["100mbit", most]
        table.add(
            f"and is greater on the slower link ({most:,} B)",
            f"{slow.text()} and {fast.text()}",
            "yes" if min(slow.each) > max(fast.each) else "no",
        )
