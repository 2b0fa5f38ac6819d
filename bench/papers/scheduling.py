"""Figures 4 to 12 of paper 004, and its arms on real service times."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

import pyroute as pr
from bench.papers.page import Figure, Panel, mean_range
from bench.papers.streams import data
from bench.peers import Scale
from bench.report import Goal, at_most
from bench.timing import Ratio as TimeRatio
from bench.timing import contender, interleave
from pyroute.arena import Cluster, Replay, Trace, replay
from pyroute.policies import ALL, Policy

FOLDER = "rivetti"
SHUFFLE, POSG, POOLED, FULL = "shuffle", "POSG", "pooled", "full knowledge"
AWARE, TWO = "load-aware shuffle", "power of two choices"
QUIET = "pooled, quiet"  # answers only with reports
ARMS = (SHUFFLE, POSG, POOLED, QUIET, AWARE, TWO, FULL)
REFRESH = 1000.0  # ms between two looks of load-aware shuffle, as Storm
SHORT, LONG = 32_768, 150_000
TASKS = 5


@dataclass
class Runs:
    """One arm over the streams of a point."""

    means: list[float] = field(default_factory=list)
    p99s: list[float] = field(default_factory=list)
    messages: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    entered: list[int] = field(default_factory=list)

    def add(self, played: Replay) -> None:
        result = played.result
        self.means.append(result.mean)
        self.p99s.append(result.p99)
        self.messages.append(result.messages)
        self.sizes.append(result.message_bytes)
        loop = getattr(played.policy, "loop", None)
        if loop is not None:
            self.entered.append(loop.entered[3])


Point = dict[str, Runs]


def made(arm: str, options: dict[str, Any]) -> Policy:
    if arm == QUIET:
        return ALL[POOLED](prompt=False, **options.get(POOLED, {}))
    return ALL[arm](**options.get(arm, {}))


def point(
    traces: Iterable[Trace],
    cluster: Cluster,
    arms: Sequence[str] = ARMS,
    options: dict[str, Any] | None = None,
    seed: int = 0,
) -> Point:
    """Every arm on the same streams."""
    out: Point = {arm: Runs() for arm in arms}
    for number, trace in enumerate(traces):
        policies = [made(arm, options or {}) for arm in arms]
        for arm, played in zip(
            arms, replay(trace, policies, cluster, seed=seed + number), strict=True
        ):
            out[arm].add(played)
    return out


def streams(
    scale: Scale, records: int, percent: float = 100, tasks: int = TASKS, **options: Any
) -> Iterable[Trace]:
    """The paper's 100 streams: other associations, other orders, every time."""
    number = scale.pick(100, 4)
    for seed in range(number):
        values, costs = pr.workloads.timed_items(
            records, seed=1_000_003 * (scale.seed + 1) + seed, **options
        )
        yield Trace.of(values, costs).provisioned(percent, tasks)


def speed_ups(found: Point, arm: str) -> list[float]:
    return [a / b for a, b in zip(found[SHUFFLE].means, found[arm].means, strict=True)]


def gap(found: Point, arm: str) -> float:
    """How much of what full knowledge gains is gained."""
    shuffle, full = np.mean(found[SHUFFLE].means), np.mean(found[FULL].means)
    if full >= shuffle:
        return 1.0
    return float((shuffle - np.mean(found[arm].means)) / (shuffle - full))


def tabulate(section: Figure, name: str, points: dict[Any, Point]) -> None:
    table = section.table(
        name, "arm", "L, ms", "S_L", "of the gain", "p99, ms", "messages", "their bytes", "RUN at"
    )
    for x, found in points.items():
        for arm, runs in found.items():
            entered = [record for record in runs.entered if record >= 0]
            table.add(
                f"{x}",
                arm,
                mean_range(runs.means, ".1f"),
                mean_range(speed_ups(found, arm), ".2f"),
                f"{gap(found, arm):.2f}" if FULL in found else "-",
                mean_range(runs.p99s, ".0f"),
                f"{np.mean(runs.messages):,.0f}",
                f"{np.mean(runs.sizes):,.0f}",
                f"{np.median(entered):,.0f}" if entered else "-",
            )


def lines(
    points: dict[Any, Point], value: Callable[[Point, str], float], arms: Sequence[str]
) -> dict[str, tuple[list[Any], list[float]]]:
    return {arm: (list(points), [value(found, arm) for found in points.values()]) for arm in arms}


def mean_of(found: Point, arm: str) -> float:
    return float(np.mean(found[arm].means))


def mean_speed_up(found: Point, arm: str) -> float:
    return float(np.mean(speed_ups(found, arm)))


def made_figure(title: str, question: str) -> Figure:
    return Figure(title, question, folder=FOLDER)


def about(scale: Scale, records: int = SHORT) -> str:
    return (
        f"n = 4,096 items, Zipf-1.0, times 1 to 64 ms, 5 tasks, 100 % provisioning, {records:,}"
        f" records, {scale.pick(100, 4)} streams, N = 1,024 and epsilon = 0.05 for POSG, N = 64"
        " and epsilon = 0.001 for pooled, unless a column says otherwise; 'quiet' gets answers with"
        " reports only. Cells: mean (least to"
        " greatest) over the streams; S_L is the mean of the ratios to round robin (shuffle);"
        " 'of the gain' is (L_shuffle - L) / (L_shuffle - L_full knowledge)."
    )


# -- figures 4 to 9


def figure_4(scale: Scale) -> Figure:
    section = made_figure("Figure 4: frequency distributions", "How skewed must a stream be?")
    section.say(about(scale))
    skews = {"uniform": 0.0, "zipf0.5": 0.5, "zipf1": 1.0, "zipf1.5": 1.5, "zipf2": 2.0}
    skews |= {"zipf2.5": 2.5, "zipf3": 3.0}
    points = {
        name: point(streams(scale, SHORT, skew=skew), Cluster(TASKS, refresh=REFRESH))
        for name, skew in skews.items()
    }
    tabulate(section, "distribution", points)
    by_skew = {skews[name]: found for name, found in points.items()}
    section.plot("fig4", Panel("L", "Zipf exponent", "ms", lines(by_skew, mean_of, ARMS)))
    mild = [100 * (mean_speed_up(points[name], POSG) - 1) for name in ("uniform", "zipf0.5")]
    section.claim(
        "uniform and Zipf-0.5: the gain of POSG is 6 % (3 to 12 here)",
        f"{mild[0]:.1f} %, {mild[1]:.1f} %",
        all(3 <= each <= 12 for each in mild),
    )
    one = 100 * (mean_speed_up(points["zipf1"], POSG) - 1)
    section.claim("Zipf-1.0: 25 % (at least 20 here)", f"{one:.1f} %", one >= 20)
    worst, best = max(points["zipf1.5"][POSG].means), min(points["zipf1.5"][SHUFFLE].means)
    section.claim(
        "Zipf-1.5: the greatest L of POSG is below the least of round robin",
        f"{worst:.0f} against {best:.0f} ms",
        worst < best,
    )
    ratio = mean_of(points["zipf2.5"], POSG) / mean_of(points["zipf2.5"], FULL)
    section.claim(
        "Zipf-2.5: POSG is as full knowledge (within 5 %)", f"{ratio:.2f}x", ratio <= 1.05
    )
    above = [mean_speed_up(found, POSG) for found in points.values()]
    section.claim(
        "POSG is always better than round robin", f"least {min(above):.2f}", min(above) > 1
    )
    return section


PERCENTS = (95, 98, 100, 102, 105, 107, 109, 112, 115)


@cache
def by_provisioning(scale_key: tuple[bool, int], records: int) -> dict[int, Point]:
    scale = Scale(*scale_key)
    percents = PERCENTS if not scale.quick else (100, 102, 105, 115)
    return {
        percent: point(streams(scale, records, percent), Cluster(TASKS, refresh=REFRESH))
        for percent in percents
    }


def figure_5(scale: Scale) -> Figure:
    section = made_figure("Figure 5: provisioning", "How much room may tasks have?")
    section.say(about(scale))
    sizes = {SHORT: "m = 32,768", LONG: "m = 150,000"}
    for records, name in sizes.items():
        points = by_provisioning((scale.quick, scale.seed), records)
        section.say(f"{name}:")
        tabulate(section, "provisioning, %", points)
        section.plot(
            f"fig5_{records}",
            Panel(name, "provisioning, %", "S_L", lines(points, mean_speed_up, ARMS)),
        )
        in_range = [mean_speed_up(points[p], POSG) for p in points if 100 <= p <= 109]
        section.claim(
            f"{name}: S_L of POSG is at least 1.15 from 100 to 109 %",
            f"least {min(in_range):.2f}",
            min(in_range) >= 1.15,
        )
        peak = mean_speed_up(points[102], POSG)
        section.claim(f"{name}: 1.26 at 102 %", f"{peak:.2f}", peak >= 1.26)
        late = mean_speed_up(points[115], POSG)
        section.claim(f"{name}: 1.07 at 115 %", f"{late:.2f}", late >= 1.07)
        judged = [p for p in (100, 102, 105, 115) if p in points]
        least = min((mean_speed_up(points[p], POSG), p) for p in judged)
        section.goals.append(
            Goal(
                f"POSG never loses to round robin in the mean, {name}",
                "S_L >= 1 at 100, 102, 105, 115 %",
                f"least {least[0]:.2f} at {least[1]} %",
                least[0] >= 1,
            )
        )
        shares = {p: gap(points[p], POOLED) for p in (100, 102, 105)}
        section.goals.append(
            Goal(
                f"pooled has two thirds of what full knowledge gains, {name}",
                ">= 0.667 at 100, 102, 105 %",
                ", ".join(f"{share:.3f}" for share in shares.values()),
                min(shares.values()) >= 2 / 3,
            )
        )
        if records == LONG:
            reached = mean_speed_up(points[100], POSG)
            section.goals.append(
                Goal(
                    "POSG reaches the paper's speed-up on long streams",
                    "S_L >= 1.19 at 100 %",
                    f"{reached:.2f}",
                    reached >= 1.19,
                )
            )
    return section


def sweep_figure(
    number: int,
    title: str,
    question: str,
    name: str,
    values: Sequence[Any],
    run: Callable[[Any], Point],
    scale: Scale,
    *,
    log_x: bool = False,
) -> tuple[Figure, dict[Any, Point]]:
    section = made_figure(f"Figure {number}: {title}", question)
    section.say(about(scale))
    points = {value: run(value) for value in values}
    tabulate(section, name, points)
    section.plot(
        f"fig{number}",
        Panel("L", name, "ms", lines(points, mean_of, ARMS), log_x),
        Panel("S_L", name, "S_L", lines(points, mean_speed_up, ARMS), log_x),
    )
    return section, points


def figure_6(scale: Scale) -> Figure:
    values = (16, 32, 64, 128, 256, 512, 1024) if not scale.quick else (16, 64, 1024)
    section, points = sweep_figure(
        6,
        "greatest execution time",
        "Does the range of times matter?",
        "w_max, ms",
        values,
        lambda most: point(
            streams(scale, SHORT, most=float(most), times=min(most, 64)),
            Cluster(TASKS, refresh=REFRESH),
        ),
        scale,
        log_x=True,
    )
    average = float(np.mean([mean_speed_up(found, POSG) for found in points.values()]))
    section.claim("mean S_L of POSG over w_max is 1.19", f"{average:.2f}", average >= 1.19)
    return section


def figure_7(scale: Scale) -> Figure:
    values = (2, 4, 8, 16, 32, 64) if not scale.quick else (2, 16, 64)
    section, points = sweep_figure(
        7,
        "number of execution times",
        "Does it matter how many different times there are?",
        "w_n",
        values,
        lambda number: point(streams(scale, SHORT, times=number), Cluster(TASKS, refresh=REFRESH)),
        scale,
        log_x=True,
    )
    average = float(np.mean([mean_speed_up(found, POSG) for found in points.values()]))
    section.claim("mean S_L of POSG over w_n is 1.19", f"{average:.2f}", average >= 1.19)
    late = [mean_of(points[n], POSG) for n in values if n >= 16]
    section.claim(
        "L changes little from w_n = 16 on (within a tenth)",
        f"{min(late):.0f} to {max(late):.0f} ms",
        max(late) <= 1.1 * min(late),
    )
    for shape in (
        {"steps": "geometric"},
        {"association": "geometric"},
        {"association": "binomial"},
    ):
        [(what, which)] = shape.items()
        found = point(streams(scale, SHORT, **shape), Cluster(TASKS, refresh=REFRESH))
        tabulate(section, f"{what}", {which: found})
        section.claim(
            f"{which} {what}: POSG is better than round robin, as with the others",
            f"{mean_speed_up(found, POSG):.2f}",
            mean_speed_up(found, POSG) > 1,
        )
    return section


def figure_8(scale: Scale) -> Figure:
    values = tuple(range(1, 11)) if not scale.quick else (1, 2, 3, 10)
    section, points = sweep_figure(
        8,
        "number of tasks",
        "Does it scale?",
        "k",
        values,
        lambda tasks: point(streams(scale, SHORT, tasks=tasks), Cluster(tasks, refresh=REFRESH)),
        scale,
    )
    one = mean_speed_up(points[1], POSG)
    section.claim("k = 1: no speed-up and no loss", f"{one:.3f}", abs(one - 1) < 1e-9)
    step = 100 * (mean_speed_up(points[3], POSG) / mean_speed_up(points[2], POSG) - 1)
    section.claim(
        "from 2 to 3 tasks it grows by 4 % (1 to 8 here)", f"{step:.1f} %", 1 <= step <= 8
    )
    if 9 in points:
        last = 100 * (mean_speed_up(points[10], POSG) / mean_speed_up(points[9], POSG) - 1)
        section.claim("from 9 to 10 by 1 % (-1 to 3 here)", f"{last:.1f} %", -1 <= last <= 3)
    return section


def figure_9(scale: Scale) -> Figure:
    values = (0.001, 0.005, 0.01, 0.05, 0.09, 0.5, 1.0) if not scale.quick else (0.01, 0.05, 1.0)
    section, points = sweep_figure(
        9,
        "precision",
        "What does a larger sketch give?",
        "epsilon",
        values,
        lambda epsilon: point(
            streams(scale, SHORT),
            Cluster(TASKS, refresh=REFRESH),
            options={POSG: {"epsilon": epsilon}, POOLED: {"epsilon": epsilon}},
        ),
        scale,
        log_x=True,
    )
    ten = mean_speed_up(points[0.05 if scale.quick else 0.01], POSG)
    small = mean_speed_up(points[0.01 if scale.quick else 0.001], POSG)
    section.claim(
        "a tenth of epsilon gives 30 % more (at least 20 here)",
        f"{100 * (small / ten - 1):.0f} %",
        small / ten >= 1.2,
    )
    least = min(min(speed_ups(found, POSG)) for e, found in points.items() if e <= 0.09)
    section.claim("epsilon <= 0.09: S_L of every stream is above 1", f"{least:.2f}", least > 1)
    return section


# -- figures 10 to 12

BEFORE, AFTER = (1.05, 1.025, 1.0, 0.975, 0.95), (0.90, 0.95, 1.0, 1.05, 1.10)
WINDOW = 2000


def recovery(windows: Any, usual: Any, change: int) -> int | None:
    """Records after the change until the mean of a window is within 10 % of the usual one for good.

    `usual` are the windows of the same stream where tasks had their new speeds from the beginning:
    what the stream itself does to a window is in both. None where the last window is not within.
    """
    at = change // WINDOW
    late = np.flatnonzero(np.asarray(windows[at:]) > 1.1 * np.asarray(usual[at:]))
    after = at + (int(late[-1]) + 1 if len(late) else 0)
    return (after + 1) * WINDOW - change if after < len(windows) else None


def recovered(back: Sequence[int | None]) -> str:
    found = [each for each in back if each is not None]
    if not found:
        return "never"
    never = f", never in {len(back) - len(found)}" if len(found) < len(back) else ""
    return f"{np.median(found):,.0f} ({min(found):,}..{max(found):,}){never}"


def time_series(scale: Scale, number: int, percent: float, delay: float, timeout: float) -> Figure:
    prototype = number == 11
    section = made_figure(
        f"Figure {number}: time series{' of the prototype' if prototype else ''}",
        "How fast does each start, and follow a change of the tasks' speeds?",
    )
    records, change = LONG, LONG // 2
    section.say(
        f"{records:,} records at {percent:g} %; times are multiplied by {BEFORE}, from record"
        f" {change:,} on by {AFTER}; windows of {WINDOW:,}; way to a task {delay:g} ms, as old are"
        f" reports and queue lengths; time-out {timeout / 1000:g} s. Recovered: from there on no"
        " window's mean is more than 10 % above that of the same window where tasks had their new"
        " speeds from the beginning."
    )
    cluster = Cluster(
        TASKS,
        speeds={0: BEFORE, change: AFTER},
        delays=delay,
        age=delay,
        refresh=REFRESH,
        timeout=timeout,
    )
    options = {POSG: {"delay": delay}, POOLED: {"delay": delay}}
    table = section.table(
        "arm", "L, ms", "L after the change", "recovered after records", "timed out", "RUN at"
    )
    series: dict[str, list[Any]] = {arm: [] for arm in ARMS}
    usual: dict[str, list[Any]] = {arm: [] for arm in ARMS}
    overall: dict[str, Runs] = {arm: Runs() for arm in ARMS}
    later: dict[str, list[float]] = {arm: [] for arm in ARMS}
    failed: dict[str, list[float]] = {arm: [] for arm in ARMS}
    number_of = scale.pick(100, 3)
    for seed in range(number_of):
        values, costs = pr.workloads.timed_items(records, seed=7_000_003 * (scale.seed + 1) + seed)
        trace = Trace.of(values, costs).provisioned(percent, TASKS)
        policies = [made(arm, options) for arm in ARMS]
        for arm, played in zip(ARMS, replay(trace, policies, cluster, seed=seed), strict=True):
            series[arm].append(played.windows(WINDOW)["mean"])
            overall[arm].add(played)
            later[arm].append(float(played.completion[change:].mean()))
            failed[arm].append(played.result.failed)
        steady = replay(
            trace, [made(arm, options) for arm in ARMS], replace(cluster, speeds=AFTER), seed=seed
        )
        for arm, played in zip(ARMS, steady, strict=True):
            usual[arm].append(played.windows(WINDOW)["mean"])
    back: dict[str, list[int | None]] = {}
    for arm in ARMS:
        pairs = zip(series[arm], usual[arm], strict=True)
        back[arm] = [recovery(each, without, change) for each, without in pairs]
        entered = overall[arm].entered
        table.add(
            arm,
            mean_range(overall[arm].means, ".1f"),
            mean_range(later[arm], ".1f"),
            recovered(back[arm]),
            mean_range(failed[arm], ".0f"),
            f"{np.median(entered):,.0f}" if entered else "-",
        )
    xs = [WINDOW * (n + 1) for n in range(len(series[SHUFFLE][0]))]
    drawn = {arm: (xs, np.mean(series[arm], axis=0).tolist()) for arm in ARMS}
    section.plot(f"fig{number}", Panel("mean completion", "record", "ms", drawn, log_y=True))
    runs = overall[POSG].entered
    paper = 20_978 if prototype else 10_690
    section.claim(
        f"POSG is in RUN at m = {paper:,} (10,240 to twice that here)",
        f"median {np.median(runs):,.0f}",
        bool(10_240 <= np.median(runs) <= 2 * paper),
    )
    after_change = 82_311 - 75_000 if prototype else 84_912 - 75_000
    posg_back = [each for each in back[POSG] if each is not None]
    section.claim(
        f"POSG recovers {after_change:,} records after the change (at most twice that here)",
        f"median {np.median(posg_back):,.0f}" if posg_back else "never",
        bool(posg_back and np.median(posg_back) <= 2 * after_change),
    )
    pooled_back = back[POOLED]
    worst = max((each if each is not None else records) for each in pooled_back)
    section.goals.append(
        Goal(
            f"pooled is within 10 % of the new steady mean, and stays there, figure {number}",
            "<= 5,000 records after the change",
            f"worst of {number_of} streams {worst:,}",
            worst <= 5000,
        )
    )
    return section


def figure_10(scale: Scale) -> Figure:
    return time_series(scale, 10, 102, 0.0, 30_000.0)


def figure_11(scale: Scale) -> Figure:
    return time_series(scale, 11, 102, 1.0, 30_000.0)


def figure_12(scale: Scale) -> Figure:
    section = made_figure(
        "Figure 12: real items", "What does it give on real tweets, as tasks become more?"
    )
    path = data("congress_hashtags")
    if path is None or scale.peer("pyarrow") is None:
        section.say("Not measured: congress_hashtags.parquet; PYROUTE_DATA names its folder.")
        return section
    limit = scale.pick(500_000, 60_000)
    import pyarrow.parquet as pq

    tags = pq.read_table(path, columns=["hashtag"]).column("hashtag")[:limit]
    ids = pr.keys(tags.combine_chunks()).ids
    classes = np.array([25.0, 5.0, 1.0])
    drawn = pr.Ring({0: 0.2, 1: 0.4, 2: 0.4}, salt=scale.seed).homes(pr.Keys.from_ids(ids))
    costs = classes[drawn]
    section.say(
        f"The first {limit:,} hashtags of congress_hashtags; a hashtag takes 25, 5 or 1 ms, by a"
        " seeded hash, in the ratio 1:2:2; even arrivals at 105 % of what k tasks can do; way to a"
        " task and age of reports and queue lengths 1 ms; time-out 30 s."
    )
    points: dict[int, Point] = {}
    failed: dict[int, dict[str, int]] = {}
    trace = Trace.of(pr.Keys.from_ids(ids), costs)
    options = {POSG: {"delay": 1.0}, POOLED: {"delay": 1.0}}
    for tasks in range(1, 11) if not scale.quick else (1, 2, 10):
        cluster = Cluster(tasks, delays=1.0, age=1.0, refresh=REFRESH, timeout=30_000.0)
        points[tasks], failed[tasks] = {arm: Runs() for arm in ARMS}, {}
        policies = [made(arm, options) for arm in ARMS]
        shown = replay(trace.provisioned(105, tasks), policies, cluster, seed=scale.seed)
        for arm, played in zip(ARMS, shown, strict=True):
            points[tasks][arm].add(played)
            failed[tasks][arm] = played.result.failed
    tabulate(section, "k", points)
    section.plot("fig12", Panel("L", "k", "ms", lines(points, mean_of, ARMS)))
    several = [k for k in points if k > 1]
    average = float(np.mean([mean_speed_up(points[k], POSG) for k in several]))
    section.claim("mean S_L of POSG is 1.37", f"{average:.2f}", average >= 1.37)
    ten = 100 * (1 - mean_of(points[10], POSG) / mean_of(points[10], SHUFFLE))
    section.claim("k = 10: L is 16 % lower", f"{ten:.0f} %", ten >= 16)
    sent = max(points[k][POSG].messages[0] for k in points)
    section.claim("916 messages in 500,000 records", f"at most {sent:,.0f}", sent <= 916)
    late = sum(failed[k][SHUFFLE] for k in points), sum(failed[k][POSG] for k in points)
    section.claim(
        "round robin times out where POSG does not",
        f"{late[0]:,} against {late[1]:,}",
        late[0] > 0 and late[1] == 0,
    )
    return section


# -- real service times


def leaf_spans() -> Any | None:
    """Operations and durations of trainticket_spans that do not contain the next span, in order."""
    path = data("trainticket_spans")
    if path is None:
        return None
    import pyarrow.parquet as pq

    table = pq.read_table(path).sort_by([("ts_us", "ascending")])
    start = table.column("ts_us").to_numpy()
    end = start + table.column("duration_us").to_numpy()
    contains = np.zeros(len(start), bool)
    contains[:-1] = (start[1:] < end[:-1]) & (end[1:] <= end[:-1])
    leaves = ~contains & ~table.column("root").to_numpy()
    return table.filter(leaves).select(["operation", "duration_us"]).combine_chunks()


def spans(scale: Scale) -> Trace | None:
    """Leaf spans of trainticket_spans in ms: those that do not contain the next span."""
    table = leaf_spans() if scale.peer("pyarrow") is not None else None
    if table is None:
        return None
    costs = table.column("duration_us").to_numpy() / 1000.0
    return Trace.of(table.column("operation").combine_chunks(), costs, name="trainticket_spans")


def requests(scale: Scale) -> Trace | None:
    """Requests of azure_llm_requests: item = trace and bucket of context tokens."""
    path = data("azure_llm_requests")
    if path is None or scale.peer("pandas") is None or scale.peer("pyarrow") is None:
        return None
    import pandas as pd

    frame = pd.read_parquet(path)
    bucket = np.floor(np.log2(frame["context_tokens"].to_numpy() + 1.0) * 4).astype(np.int64)
    named = pr.keys(frame["trace"].to_numpy(object).tolist(), bucket)
    work = frame["generated_tokens"].to_numpy(np.float64)
    return Trace.of(named, work, name="azure_llm_requests")


def on_trace(scale: Scale, title: str, question: str, trace: Trace | None, unit: str) -> Figure:
    section = made_figure(title, question)
    if trace is None:
        section.say("Not measured: the file was not found; PYROUTE_DATA names its folder.")
        return section
    half = trace[len(trace) // 2 :][: scale.pick(10**9, 60_000)]
    explained = 1 - within(half) / float(half.costs.var())
    section.say(
        f"The second half of {trace.name}: {len(half):,} records of {len(half.distinct)} items,"
        f" mean {half.costs.mean():.2f}, coefficient of variation"
        f" {half.costs.std() / half.costs.mean():.2f}; the item explains {explained:.0%} of the"
        f" variance. Even arrivals. Times in {unit}. Reports are as old as queue lengths."
    )
    table = section.table(
        "k", "provisioning, %", "age", "arm", "mean", "p99", "max/mean load", "messages", "bytes"
    )
    others = (SHUFFLE, AWARE, TWO, "join shortest queue", "least estimated delay")
    arms = (*others, POSG, POOLED, QUIET, FULL)
    wins: list[tuple[str, bool, bool]] = []
    worst: dict[str, tuple[int, int]] = {}
    luck: list[float] = []
    for tasks in (5, 10):
        for percent in (100, 105, 115):
            for age in (0.0, 50.0):
                options = {POSG: {"delay": age}, POOLED: {"delay": age}}
                stream = half.provisioned(percent, tasks)
                cluster = Cluster(tasks, age=age, refresh=REFRESH)
                drawn = {
                    arm: [
                        replay(stream, made(arm, options), cluster, seed=scale.seed + seed)[0]
                        for seed in range(DRAWS if arm in (AWARE, TWO) else 1)
                    ]
                    for arm in arms
                }
                for arm, runs in drawn.items():
                    result = runs[0].result
                    table.add(
                        tasks,
                        percent,
                        f"{age:g}",
                        arm,
                        spread_of(runs, "mean", ".1f"),
                        spread_of(runs, "p99", ".0f"),
                        f"{result.imbalance:.3f}",
                        result.messages,
                        result.message_bytes,
                    )
                luck += [luck_of(drawn[arm]) for arm in (AWARE, TWO)]
                where = f"k={tasks}, {percent} %, {age:g}"
                slowest = np.flatnonzero(drawn[POOLED][0].completion >= drawn[POOLED][0].result.p99)
                worst[where] = int(slowest.min()), int(slowest.max())
                for arm in (SHUFFLE, AWARE, TWO):
                    for what in ("mean", "p99"):
                        ours = getattr(drawn[POOLED][0].result, what)
                        theirs = [getattr(run.result, what) for run in drawn[arm]]
                        wins.append(
                            (
                                f"{what} against {arm}, {where}",
                                ours <= min(theirs),
                                ours <= float(np.median(theirs)),
                            )
                        )
    first, last = min(a for a, _ in worst.values()), max(b for _, b in worst.values())
    section.say(
        f"Arms that draw are shown with the median of {DRAWS} draws, in brackets the least and the"
        " greatest. The slowest 1 % of the records under pooled, which p99 is about, are all"
        f" between records {first:,} and {last:,} of {len(half):,}. Which tasks meet the few"
        " longest records is luck where the item does not tell them from others: two draws of one"
        f" arm differ by {np.median(luck):.0%} in p99, at most {max(luck):.0%}."
    )
    lost = [case for case, won, _ in wins if not won]
    if lost:
        section.say(f"Pooled is not below the best draw in {'; '.join(lost)}.")
    section.goals.append(
        Goal(
            f"pooled beats shuffle, load-aware and two choices on {trace.name}",
            f"mean and p99 at every point, the best of {DRAWS} draws",
            f"{len(wins) - len(lost)} of {len(wins)}; of the medians"
            f" {sum(won for _, _, won in wins)}; of the means"
            f" {sum(won for case, won, _ in wins if case.startswith('mean'))} of {len(wins) // 2}",
            not lost,
        )
    )
    return section


DRAWS = 5


def spread_of(runs: Sequence[Replay], what: str, form: str) -> str:
    """The median over draws, and how far they are apart where there are several."""
    each = [getattr(run.result, what) for run in runs]
    text = f"{np.median(each):{form}}"
    return f"{text} ({min(each):{form}} to {max(each):{form}})" if len(each) > 1 else text


def luck_of(runs: Sequence[Replay]) -> float:
    """How far apart the p99 of draws are, by the median."""
    each = [run.result.p99 for run in runs]
    return float((max(each) - min(each)) / np.median(each))


def within(trace: Trace) -> float:
    """Variance of the costs that the item does not explain."""
    at = trace.positions
    counts = np.bincount(at)
    means = np.bincount(at, trace.costs) / counts
    return float(((trace.costs - means[at]) ** 2).mean())


def real_spans(scale: Scale) -> Figure:
    return on_trace(
        scale,
        "Real service times: trainticket leaf spans",
        "Does content-based scheduling help where the item explains only some of the time?",
        spans(scale),
        "ms",
    )


def real_requests(scale: Scale) -> Figure:
    return on_trace(
        scale,
        "Real service times: LLM requests",
        "And where it explains little?",
        requests(scale),
        "tokens",
    )


# -- costs


def decision_cost(scale: Scale) -> Figure:
    section = made_figure(
        "Cost of a decision", "What does `schedule` take, beside one estimate of the sketch?"
    )
    records = scale.pick(500_000, 100_000)
    values, costs = pr.workloads.timed_items(records, seed=scale.seed)
    keys = pr.Keys.from_ids(np.array(pr.keys(values).ids))
    table = section.table("mode", "tasks", "estimate, ns", "schedule, ns", "ratio")
    ratios: dict[int, list[tuple[str, TimeRatio]]] = {10: [], 64: []}
    for mode, epsilon in (("posg", 0.05), ("pooled", 0.001)):
        for tasks, found in ratios.items():
            sketch = pr.CostSketch(epsilon)
            sketch.observe(keys, costs)
            scheduler = pr.posg.Scheduler(tasks, mode, resync=None if mode == "posg" else 8)
            for task in range(tasks):
                tracker = pr.posg.Tracker(task, 5000, 0.9, mode=mode)
                report = tracker.observe(values[:10_000], costs[:10_000], 0.0)
                assert report is not None
                scheduler.receive(report, 0.0)
            scheduler.schedule(values[:tasks], 0.0)
            clock = [1.0]

            def decide(scheduler: Any = scheduler, clock: list[float] = clock) -> Any:
                clock[0] += 1e6
                return scheduler.schedule(keys, clock[0])

            timed = interleave(
                [
                    contender("estimate", records, lambda s=sketch: s.mean_time(keys)),
                    contender("schedule", records, decide),
                ],
                scale.repetitions,
            )
            ratio = TimeRatio(timed["schedule"], timed["estimate"])
            found.append((mode, ratio))
            table.add(mode, tasks, timed["estimate"], timed["schedule"], ratio)
    for tasks, bound in ((10, 7), (64, 16)):
        section.goals.append(at_most(f"schedule by estimate, k = {tasks}", bound, ratios[tasks]))
    return section


def event_rate(scale: Scale) -> Figure:
    section = made_figure("Event rate", "How fast is a replay, beside a bare heap loop in numba?")
    numba = scale.peer("numba")
    if numba is None:
        return section
    records = scale.pick(500_000, 100_000)
    values, costs = pr.workloads.timed_items(records, seed=scale.seed)
    trace = Trace.of(values, costs).provisioned(105, 10)
    from bench.baselines import heap

    bare = min(heap.seconds(trace.arrivals, trace.costs, 10) for _ in range(5))
    table = section.table("policy", "records per second", "by the bare loop", "ns per decision")
    table.add("bare heap loop", records / bare, "1.00", "-")
    shares = {}
    for name in ALL:
        best = max(
            (replay(trace, name, Cluster(10, refresh=REFRESH))[0].result for _ in range(3)),
            key=lambda result: result.rate,
        )
        shares[name] = best.rate * bare / records
        table.add(name, best.rate, f"{shares[name]:.2f}", best.decision_ns)
    loop = records / bare * max(shares.values())
    section.say(
        f"A record takes {1e9 * bare / records:.0f} ns in the bare loop and {1e9 / loop:.0f} in the"
        " arena's under the cheapest policy. The rest is the policy's own time, plans included: to"
        f" be at 0.3x, it may take {1e9 * bare / records / 0.3 - 1e9 / loop:.0f} ns a record."
    )
    below = sorted((share, name) for name, share in shares.items() if share < 0.3)
    named = ", ".join(f"{name} {share:.2f}x" for share, name in below)
    section.goals.append(
        Goal(
            "event rate of the arena under each policy, by a bare numba heap loop",
            ">= 0.3x",
            f"{len(shares) - len(below)} of {len(shares)}; shuffle {shares[SHUFFLE]:.2f}x"
            + (f"; below: {named}" if below else ""),
            not below,
        )
    )
    return section
