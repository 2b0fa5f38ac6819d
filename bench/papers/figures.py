"""Figures 7 to 12 and 17 to 21 of paper 002, on its generator."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np

import pyroute as pr
from bench.papers import simulate
from bench.papers.page import Figure, Panel, mean_range, milliseconds, percent
from bench.papers.simulate import Outcome, Setting, drive, generated, planner, snapshots
from bench.peers import Scale
from bench.report import Goal

ALLOWED, TABLE, BETA, WINDOWS = 0.08, 3000, 1.5, (1, 5)
ALGORITHMS = {
    "MinTable": "min_table",
    "MinMig": "min_mig",
    "Mixed": "mixed",
    "MixedBF": "mixed_bf",
    "Readj": "readj",
}
Runs = dict[tuple[Any, int, str], Outcome]
Lines = dict[str, tuple[Sequence[float], Sequence[float]]]
Cases = dict[tuple[int, int, int, int], tuple[float, float]]  # by keys, tasks, w, R


def default(scale: Scale, **changes: Any) -> Setting:
    return replace(Setting(intervals=scale.pick(50, 8), seed=scale.seed), **changes)


def options(arm: str, **changes: Any) -> dict[str, Any]:
    """What `rebalance` gets for an arm; MinMig knows no bound on its table."""
    out = {"max_imbalance": ALLOWED, "max_table": TABLE, "beta": BETA, **changes}
    if arm == "MinMig":
        out["max_table"] = None
    return {**out, "algorithm": ALGORITHMS[arm]}


def sweep(
    points: Iterable[tuple[Any, Setting, dict[str, Any]]],
    arms: Sequence[str],
    windows: Sequence[int] = WINDOWS,
    *,
    bound: bool = False,
) -> Runs:
    """Every arm over every point: (x, window, arm) -> what it did."""
    out: Runs = {}
    for x, setting, changes in points:
        for window in windows:
            seen = snapshots(setting, window)
            for arm in arms:
                chosen = options(arm, **changes)
                out[x, window, arm], _ = drive(
                    generated(setting),
                    seen,
                    setting.tasks,
                    planner(**chosen),
                    allowed=chosen["max_imbalance"],
                    bound=bound,
                )
    return out


def points_of(runs: Runs) -> list[Any]:
    return list(dict.fromkeys(x for x, _, _ in runs))


def arms_of(runs: Runs) -> list[str]:
    return list(dict.fromkeys(arm for _, _, arm in runs))


def windows_of(runs: Runs) -> list[int]:
    return list(dict.fromkeys(window for _, window, _ in runs))


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def median(values: Sequence[float]) -> float:
    return float(np.median(values))


def tabulate(section: Figure, name: str, runs: Runs) -> None:
    """One row for every arm of every point."""
    table = section.table(
        name,
        "w",
        "arm",
        "max/mean planned",
        "max/mean next",
        "state moved %",
        "ms of the call",
        "ms of planning",
        "table at the end",
    )
    for (x, window, arm), run in runs.items():
        table.add(
            f"{x:g}" if isinstance(x, float) else f"{x:,}",
            window,
            arm,
            mean_range(run.planned),
            mean_range(run.following),
            percent(run.moved),
            milliseconds(run.seconds),
            milliseconds(run.kernel),
            run.table[-1],
        )


def lines(
    runs: Runs, value: Callable[[Outcome], float], arms: Sequence[str] | None = None
) -> Lines:
    """A line for each arm and window."""
    xs = points_of(runs)
    return {
        f"{arm}, w = {window}": (xs, [value(runs[x, window, arm]) for x in xs])
        for window in windows_of(runs)
        for arm in arms or arms_of(runs)
    }


def panels(runs: Runs, x: str, *, log_x: bool = False) -> list[Panel]:
    """Plan time and migration, as most figures of the paper have them."""
    return [
        Panel("plan time", x, "ms", lines(runs, lambda r: 1000 * median(r.seconds)), log_x, True),
        Panel("migration", x, "% of all state", lines(runs, moved), log_x),
    ]


def moved(run: Outcome) -> float:
    return 100 * mean(run.moved)


def about(scale: Scale, *, keys: int = Setting.keys, intervals: int | None = None) -> str:
    number = scale.pick(50, 8) if intervals is None else intervals
    return (
        f"Generator: z = 0.85, f = 1.0, {keys:,} keys, 15 tasks, {number} intervals, theta_max ="
        f" {ALLOWED}, table {TABLE:,}, beta = {BETA}, unless a column says otherwise."
    )


def ratio_text(few: float, many: float) -> str:
    return f"{few:.2f} against {many:.2f} ({many / few if few else np.inf:.2f}x)"


# -- figure 7


def figure_7(scale: Scale) -> Figure:
    section = Figure("Figure 7: load of tasks under hashing", "How uneven is a ring alone?")
    section.say(about(scale))
    rings = 10
    section.say(
        "Loads are averaged over the intervals, task by task, as the figure has it; 'each interval'"
        f" is the mean of max/min over the intervals; 'without fluctuation' that over {rings} rings"
        " of different salts in the first interval."
    )
    table = section.table(
        "varied",
        "value",
        "max/mean",
        "max/min",
        "max/min of each interval",
        "max/min without fluctuation",
    )
    found: dict[str, dict[int, tuple[float, float, float]]] = {"tasks": {}, "keys": {}}
    curves: dict[str, Lines] = {"tasks": {}, "keys": {}}
    settings = [("tasks", n, default(scale, tasks=n)) for n in (5, 10, 15, 20, 30, 40)]
    sizes = (5_000, 10_000, 100_000, 1_000_000)
    settings += [("keys", n, default(scale, keys=n)) for n in sizes]
    for varied, value, setting in settings:
        stream = generated(setting)
        homes = pr.Ring(setting.tasks).homes(stream.keys)
        loads = np.array([np.bincount(homes, c, setting.tasks) for c in stream.counts])
        average = np.sort(loads.mean(axis=0)) / loads.mean()
        each = mean((loads.max(axis=1) / loads.min(axis=1)).tolist())
        still = []
        for salt in range(rings):
            at = pr.Ring(setting.tasks, salt=salt).homes(stream.keys)
            first = np.bincount(at, stream.counts[0], setting.tasks)
            still.append(float(first.max() / first.min()))
        found[varied][value] = (float(average[-1] / average[0]), each, mean(still))
        ratios = [f"{ratio:.2f}" for ratio in found[varied][value]]
        table.add(varied, f"{value:,}", f"{average[-1]:.2f}", *ratios)
        shares = 100 * np.arange(1, setting.tasks + 1) / setting.tasks
        curves[varied][f"{value:,} {varied}"] = (shares.tolist(), average.tolist())
    section.plot(
        "fig7",
        *(
            Panel(f"load by {varied}", "% of tasks", "load / mean", curves[varied])
            for varied in ("tasks", "keys")
        ),
    )
    by_tasks, by_keys = found["tasks"], found["keys"]

    def listed(of: dict[int, tuple[float, float, float]]) -> str:
        both = ("; without fluctuation ", 2), ("", 0)
        return "".join(
            before + ", ".join(f"{n:,}: {ratios[i]:.2f}" for n, ratios in of.items())
            for before, i in reversed(both)
        )

    section.claim(
        "skewness grows with the number of tasks (from 5 to 40)",
        listed(by_tasks),
        by_tasks[40][0] > by_tasks[15][0] > by_tasks[5][0],
    )
    section.claim(
        "40 tasks: the most loaded has almost 2.5 times the least (within a fifth)",
        f"{by_tasks[40][0]:.2f}",
        2.0 <= by_tasks[40][0] <= 3.0,
    )
    section.claim(
        "more keys, more even (each step; with fluctuation)",
        listed(by_keys),
        all(by_keys[a][0] > by_keys[b][0] for a, b in pairwise(sizes)),
    )
    section.claim(
        "more keys, more even (each step; without fluctuation)",
        "as above",
        all(by_keys[a][2] > by_keys[b][2] for a, b in pairwise(sizes)),
    )
    section.claim(
        "5,000 keys: around 4 times (within a fifth)",
        f"{by_keys[5000][0]:.2f}; each interval {by_keys[5000][1]:.2f}, without fluctuation"
        f" {by_keys[5000][2]:.2f}",
        3.2 <= by_keys[5000][0] <= 4.8,
    )
    return section


# -- figure 8


def figure_8(scale: Scale) -> Figure:
    section = Figure(
        "Figure 8: number of tasks", "What do plans cost and give as the tasks become more?"
    )
    section.say(about(scale))
    numbers = (5, 10, 15, 20, 25, 30, 35, 40) if not scale.quick else (5, 15, 40)
    runs: Runs = {}
    pkg = scale.peer("bench.baselines.pkg")
    skewness = section.table("tasks", "hash max/mean", "PKG max/mean")
    for n in numbers:
        setting = default(scale, tasks=n)
        runs |= sweep([(n, setting, {})], ["MinTable", "MinMig", "Mixed"])
        few = replace(generated(setting), counts=generated(setting).counts[: scale.pick(10, 3)])
        skewness.add(
            f"{n}",
            mean_range(simulate.hash_skewness(generated(setting), n)),
            mean_range(simulate.pkg_skewness(pkg, few, n, scale.seed)) if pkg else "-",
        )
    tabulate(section, "tasks", runs)
    planned = lines(runs, lambda r: mean(r.planned))
    section.plot("fig8", Panel("skewness", "tasks", "max/mean", planned), *panels(runs, "tasks"))

    def cost(n: int, window: int, arm: str) -> float:
        return moved(runs[n, window, arm])

    low = [
        (cost(n, w, "MinTable") / max(cost(n, w, "Mixed"), 1e-9), n, w)
        for n in numbers
        for w in WINDOWS
        if n <= 35
    ]
    section.claim(
        "up to 35 tasks Mixed moves much less than MinTable, w = 1 and 5 (at least 2x)",
        f"least advantage {min(low)[0]:.2f}x at {min(low)[1]} tasks, w = {min(low)[2]}",
        min(low)[0] >= 2,
    )
    ends = [ratio_text(cost(40, w, "Mixed"), cost(40, w, "MinTable")) for w in WINDOWS]
    section.claim(
        "at 40 tasks Mixed moves almost as much as MinTable",
        f"w = 1: {ends[0]}; w = 5: {ends[1]}; tables {max(runs[40, 1, 'Mixed'].table)} of {TABLE}",
        all(cost(40, w, "Mixed") >= 0.8 * cost(40, w, "MinTable") for w in WINDOWS),
    )
    shrinks = [cost(n, 5, "Mixed") < cost(n, 1, "Mixed") for n in numbers]
    section.claim(
        "w = 5 makes migration of Mixed cheaper than w = 1",
        f"at {sum(shrinks)} of {len(shrinks)} points",
        all(shrinks),
    )
    times = [
        median(runs[n, w, "Mixed"].seconds) / median(runs[n, w, "MinTable"].seconds)
        for n in numbers
        for w in WINDOWS
    ]
    section.claim(
        "Mixed takes a little longer to plan than MinTable (1x to 2x)",
        f"{min(times):.2f}x to {max(times):.2f}x",
        min(times) >= 1 and max(times) <= 2,
    )
    higher = [
        mean(runs[n, w, "MinTable"].planned) >= mean(runs[n, w, "Mixed"].planned) - 1e-6
        for n in numbers
        for w in WINDOWS
    ]
    section.claim(
        "cleaning gives MinTable a higher skewness",
        f"at {sum(higher)} of {len(higher)} points",
        all(higher),
    )
    return section


# -- figure 9


def figure_9(scale: Scale) -> Figure:
    section = Figure("Figure 9: theta_max", "What does a stricter balance cost?")
    section.say(about(scale))
    allowances = (0.0, 0.02, 0.05, 0.08, 0.15, 0.2, 0.3, 0.5)
    if scale.quick:
        allowances = (0.02, 0.05, 0.08, 0.15, 0.3)
    setting = default(scale)
    judged = (0.02, 0.05, 0.08, 0.15)
    runs: Runs = {}
    for allowed in allowances:
        point = (allowed, setting, {"max_imbalance": allowed})
        runs |= sweep([point], ["MinTable", "MinMig"])
        runs |= sweep([point], ["Mixed"], bound=allowed in judged)
    tabulate(section, "theta_max", runs)
    section.say(
        "What Mixed moves beside what it had to: 'unavoidable' is the state that has to leave the"
        " tasks over the limit where Mixed left the keys, the cheapest first and the last one in"
        " part. With w = 1 state is proportional to cost, and f = 1.0 puts a whole mean load onto"
        " one task, so that most of what is moved is unavoidable."
    )
    beside = section.table(
        "theta_max", "w", "MinTable %", "Mixed %", "unavoidable %", "Mixed to MinTable"
    )
    for allowed in judged:
        for window in WINDOWS:
            mixed, clean = runs[allowed, window, "Mixed"], runs[allowed, window, "MinTable"]
            beside.add(
                f"{allowed:g}",
                window,
                f"{moved(clean):.2f}",
                f"{moved(mixed):.2f}",
                f"{100 * mean(mixed.least):.2f}",
                f"{moved(mixed) / moved(clean):.3f}",
            )
    section.plot("fig9", *panels(runs, "theta_max"))

    strict, loose = 0.02, allowances[-1]
    section.claim(
        "a larger theta_max plans faster",
        f"Mixed, w = 1: {1000 * median(runs[strict, 1, 'Mixed'].seconds):.2f} ms at {strict},"
        f" {1000 * median(runs[loose, 1, 'Mixed'].seconds):.2f} ms at {loose}",
        median(runs[strict, 1, "Mixed"].seconds) > median(runs[loose, 1, "Mixed"].seconds),
    )
    catches = [
        median(runs[t, w, "Mixed"].seconds) / median(runs[t, w, "MinTable"].seconds)
        for t in allowances
        for w in WINDOWS
        if t >= 0.2
    ]
    section.claim(
        "from theta_max 0.2 on Mixed plans as fast as MinTable (within a tenth)",
        f"{min(catches):.2f}x to {max(catches):.2f}x its time",
        max(catches) <= 1.1,
    )
    falls = [
        moved(runs[strict, w, arm]) > moved(runs[loose, w, arm])
        for w in WINDOWS
        for arm in ("MinTable", "Mixed")
    ]
    section.claim(
        "a stricter balance moves more state",
        f"{sum(falls)} of {len(falls)} (arm, w)",
        all(falls),
    )
    slowest = max(max(runs[strict, w, "Mixed"].seconds) for w in WINDOWS)
    section.claim(
        "a plan within 1 second even at theta_max = 0.02", f"slowest {slowest:.4f} s", slowest < 1
    )
    shrinks = [moved(runs[t, 5, "Mixed"]) < moved(runs[t, 1, "Mixed"]) for t in allowances]
    section.claim(
        "w = 5 makes migration cheaper than w = 1",
        f"Mixed at {sum(shrinks)} of {len(shrinks)} points",
        all(shrinks),
    )

    goal = share_goal(section, scale, runs, judged)
    section.goals.append(goal)
    section.claim(
        "MinTable moves three times what Mixed moves (theta_max .02 to .15, every seed)",
        f"Mixed to MinTable {goal.measured}",
        goal.met,
    )
    section.goals.append(balance_goal(setting, runs, judged))
    return section


def share_goal(section: Figure, scale: Scale, runs: Runs, judged: Sequence[float]) -> Goal:
    """State moved by Mixed to that of MinTable, over seeds: the worst of them counts."""
    seeds = range(scale.seed, scale.seed + scale.pick(5, 2))
    section.say(
        f"Mixed to MinTable for {len(seeds)} seeds of the generator; in brackets the unavoidable to"
        " MinTable."
    )
    table = section.table("theta_max", "w", *(f"seed {seed}" for seed in seeds))
    shares: dict[tuple[float, int, int], tuple[float, float]] = {}
    for seed in seeds:
        found = runs
        if seed != scale.seed:
            found = {}
            setting = default(scale, seed=seed)
            for allowed in judged:
                point = (allowed, setting, {"max_imbalance": allowed})
                found |= sweep([point], ["MinTable"])
                found |= sweep([point], ["Mixed"], bound=True)
        for allowed, window in product(judged, WINDOWS):
            mixed, clean = found[allowed, window, "Mixed"], found[allowed, window, "MinTable"]
            both = (moved(mixed) / moved(clean), 100 * mean(mixed.least) / moved(clean))
            shares[allowed, window, seed] = both
    for allowed, window in product(judged, WINDOWS):
        cells = [shares[allowed, window, seed] for seed in seeds]
        table.add(f"{allowed:g}", window, *(f"{a:.3f} ({b:.3f})" for a, b in cells))
    worst = max(shares, key=lambda at: shares[at][0])
    within = sum(share <= 1 / 3 for share, _ in shares.values())
    return Goal(
        "generator, 15 tasks, table 3000, theta_max .02 to .15, w = 1 and 5: state that Mixed"
        f" moves, to MinTable's, mean of {default(scale).intervals} intervals, worst of"
        f" {len(seeds)} seeds",
        "<= 1/3",
        f"{shares[worst][0]:.3f} at theta_max = {worst[0]}, w = {worst[1]}, seed {worst[2]}, where"
        f" the unavoidable is {shares[worst][1]:.3f}; {within} of {len(shares)} within",
        shares[worst][0] <= 1 / 3,
    )


def balance_goal(setting: Setting, runs: Runs, allowances: Sequence[float]) -> Goal:
    """Within the limit, or within LPT with local search, or the plan says why."""
    plans = over = said = bare = 0
    for allowed in allowances:
        for window in WINDOWS:
            run = runs[allowed, window, "Mixed"]
            plans += len(run.planned)
            for interval in run.over:
                over += 1
                if run.planned[interval] <= reference(setting, window, interval) * (1 + 1e-9):
                    continue
                said += bool(run.reasons[interval])
                bare += not run.reasons[interval]
    return Goal(
        "generator, the same with one seed: greatest load of Mixed",
        "<= max((1 + theta_max) mean, LPT + local search), else the plan names the constraint",
        f"{plans - over} of {plans} within the limit, {over - said - bare} within LPT, {said} say"
        f" why, {bare} do not",
        bare == 0,
    )


def reference(setting: Setting, window: int, interval: int) -> float:
    """Max / mean of LPT with local search, tables aside."""
    plan = pr.rebalance(
        snapshots(setting, window)[interval],
        pr.Router(pr.Ring(setting.tasks)),
        max_imbalance=0.0,
        max_table=None,
        algorithm="simple",
        search_moves=10_000,
    )
    return simulate.max_over_mean(plan.loads_after)


# -- figure 10


def figure_10(scale: Scale) -> Figure:
    section = Figure("Figure 10: number of keys", "How do plans grow with the keys?")
    section.say(about(scale))
    sizes = (5_000, 10_000, 100_000, 1_000_000) if not scale.quick else (5_000, 10_000, 100_000)
    few = 10
    if not scale.quick:
        section.say(f"1,000,000 keys: the first {few} intervals.")
    points = [
        (n, default(scale, keys=n, **({"intervals": few} if n > 100_000 else {})), {})
        for n in sizes
    ]
    runs = sweep(points, ["MinTable", "MinMig", "Mixed"])
    tabulate(section, "keys", runs)
    section.plot("fig10", *panels(runs, "keys", log_x=True))
    times = [
        median(runs[n, w, "Mixed"].seconds) / median(runs[n, w, "MinTable"].seconds)
        for n in sizes
        for w in WINDOWS
    ]
    section.claim(
        "Mixed plans longer than MinTable",
        f"{min(times):.2f}x to {max(times):.2f}x its time",
        min(times) >= 1,
    )
    less = [
        (moved(runs[n, w, "MinTable"]) / max(moved(runs[n, w, "Mixed"]), 1e-9), n, w)
        for n in sizes
        for w in WINDOWS
    ]
    section.claim(
        "Mixed moves less than MinTable",
        f"least advantage {min(less)[0]:.2f}x at {min(less)[1]:,} keys, w = {min(less)[2]}",
        min(less)[0] > 1,
    )
    planned = [mean(runs[n, w, "Mixed"].planned) for n in sizes for w in WINDOWS]
    section.claim(
        "Mixed balances whatever the number of keys (mean max/mean within theta_max)",
        f"{min(planned):.3f} to {max(planned):.3f}",
        max(planned) <= 1 + ALLOWED + 1e-9,
    )
    shrinks = [
        moved(runs[n, 5, arm]) < moved(runs[n, 1, arm])
        for n in sizes
        for arm in ("MinTable", "Mixed")
    ]
    section.claim(
        "w = 5 moves less than w = 1, MinTable and Mixed",
        f"at {sum(shrinks)} of {len(shrinks)} points",
        all(shrinks),
    )
    return section


# -- figure 11


def figure_11(scale: Scale) -> Figure:
    section = Figure(
        "Figure 11: degree of discretization",
        "What do groups of alike keys gain in time, and lose in the estimate of loads?",
    )
    degrees = [2**r for r in range(9)]
    million = [] if scale.quick else [(1_000_000, 15)]
    settings = [(100_000, 15), *million, (5_000, 15), (10_000, 15), (5_000, 40), (100_000, 40)]
    few = scale.pick(6, 3)
    section.say(
        f"Mixed plans for {few} intervals (half of them with 1,000,000 keys) from groups, each from"
        " where Mixed without groups left the keys, theta_max = 0.08, w = 1 and 5. Errors are those"
        " of the worst task in the worst interval: of the current loads (as the groups sum them up)"
        " and of the loads that the plan expects of itself. 'Original' plans from keys."
    )
    table = section.table(
        "keys",
        "tasks",
        "w",
        "R",
        "ms of the call",
        "ms of planning",
        "ms of grouping",
        "error % of current loads",
        "error % of planned loads",
        "max/mean",
        "state moved %",
    )
    errors: Cases = {}
    times: Cases = {}
    for keys, tasks in settings:
        number = few if keys < 1_000_000 else few // 2
        setting = default(scale, keys=keys, tasks=tasks, intervals=number)
        for window in WINDOWS:
            found = by_degree(setting, window, degrees)
            for degree, rows in found.items():
                at = (keys, tasks, window, degree)
                now, then = (max(row[i] for row in rows) for i in (3, 4))
                times[at] = (median([r[0] for r in rows]), median([r[1] for r in rows]))
                if degree:
                    errors[at] = (now, then)
                table.add(
                    f"{keys:,}",
                    tasks,
                    window,
                    degree or "original",
                    milliseconds([r[0] for r in rows]),
                    milliseconds([r[1] for r in rows]),
                    milliseconds([r[2] for r in rows]) if degree else "-",
                    f"{100 * now:.3f}" if degree else "-",
                    f"{100 * then:.3f}" if degree else "-",
                    mean_range([r[5] for r in rows]),
                    percent([r[6] for r in rows]),
                )
    plot_degrees(section, degrees, errors, times)
    judge_degrees(section, errors, times)
    return section


def by_degree(
    setting: Setting, window: int, degrees: Sequence[int]
) -> dict[int, list[tuple[float, ...]]]:
    """Degree (0: keys) -> rows of call, planning, grouping, two errors, max/mean, moved."""
    out: dict[int, list[tuple[float, ...]]] = {0: [], **{degree: [] for degree in degrees}}
    router = pr.Router(pr.Ring(setting.tasks))
    for snapshot in snapshots(setting, window):
        exact, seconds = planner(**options("Mixed"))(snapshot, router)
        skewness = simulate.max_over_mean(exact.loads_after)
        out[0].append((seconds, exact.seconds, 0, 0, 0, skewness, exact.migration_share))
        for degree in degrees:
            # Nothing is over so wide a limit, so nothing moves: the loads as they are, estimated.
            wide = options("Mixed", max_imbalance=1e6, max_table=None)
            still = pr.rebalance(snapshot, router, **wide, degree=degree)
            assert still.migration_cost == 0
            plan, seconds = planner(**options("Mixed"), degree=degree)(snapshot, router)
            out[degree].append(
                (
                    seconds,
                    plan.seconds,
                    plan.group_seconds,
                    worst_error(still.estimated_loads, still.loads_before),
                    worst_error(plan.estimated_loads, plan.loads_after),
                    simulate.max_over_mean(plan.loads_after),
                    plan.migration_share,
                )
            )
        router = router.apply(exact)
    return out


def worst_error(estimated: Any, actual: Any) -> float:
    return float(np.max(np.abs(np.asarray(estimated) - actual) / actual))


def plot_degrees(section: Figure, degrees: Sequence[int], errors: Cases, times: Cases) -> None:
    cases = list(dict.fromkeys(at[:3] for at in errors))
    names = {case: f"{case[0]:,} keys, {case[1]} tasks, w = {case[2]}" for case in cases}
    section.plot(
        "fig11",
        Panel(
            "planning (leftmost: from keys)",
            "R",
            "ms",
            {
                names[case]: (
                    [0.5, *degrees],
                    [1000 * times[(*case, degree)][1] for degree in (0, *degrees)],
                )
                for case in cases
                if case[1] == 15
            },
            log_x=True,
            log_y=True,
        ),
        Panel(
            "error of planned loads, worst task",
            "R",
            "%",
            {
                names[case]: (degrees, [100 * errors[(*case, degree)][1] for degree in degrees])
                for case in cases
            },
            log_x=True,
        ),
    )


def judge_degrees(section: Figure, errors: Cases, times: Cases) -> None:
    at = (100_000, 15, 5)
    keys, first, eight = (times[(*at, degree)][1] for degree in (0, 1, 8))
    section.claim(
        "larger R plans faster (100,000 keys, w = 5)",
        f"R = 1: {1000 * first:.2f} ms, 256: {1000 * times[(*at, 256)][1]:.2f} ms",
        times[(*at, 256)][1] < first,
    )
    section.claim(
        "R = 8 plans ten times as fast as the keys (6 s to 0.6 s)",
        f"planning {1000 * keys:.2f} ms to {1000 * eight:.2f} ms ({keys / eight:.1f}x); the call"
        f" {times[(*at, 0)][0] / times[(*at, 8)][0]:.2f}x",
        keys / eight >= 10,
    )
    worst = max(errors, key=lambda case: max(errors[case]))
    section.claim(
        "the estimate of loads errs by no more than 1 % in all cases",
        f"worst {100 * max(errors[worst]):.2f} % ({worst[0]:,} keys, {worst[1]} tasks, w ="
        f" {worst[2]}, R = {worst[3]})",
        max(errors[worst]) <= 0.01,
    )
    judged = {case: error for case, error in errors.items() if case[0] >= 100_000 and case[1] == 15}
    for i, name in enumerate(("current loads", "the plan's own loads")):
        worst = max(judged, key=lambda case: judged[case][i])
        section.goals.append(
            Goal(
                f"compact form, K >= 1e5, 15 tasks, R = 1 to 256: error of {name}, worst task",
                "<= 1 %",
                f"{100 * judged[worst][i]:.3f} % at K = {worst[0]:,}, w = {worst[2]}, R ="
                f" {worst[3]}",
                judged[worst][i] <= 0.01,
            )
        )


# -- figure 12


def figure_12(scale: Scale) -> Figure:
    section = Figure(
        "Figure 12: fluctuation", "How do Mixed, MixedBF and Readj cope as the stream changes more?"
    )
    section.say(about(scale))
    rates = (0.1, 0.5, 1.0, 1.5, 2.0) if not scale.quick else (0.5, 1.0, 2.0)
    few, brute = scale.pick(5, 2), scale.pick(10_000, 5_000)
    section.say(
        f"All arms on the first {few} intervals. Readj at its best parameter of each interval, and"
        " the time of that run alone. MixedBF tries every number of entries to clean, so it gets"
        f" {brute:,} keys; so does a second Mixed, to compare with."
    )
    runs: Runs = {}
    for rate in rates:
        setting = default(scale, fluctuation=rate, intervals=few)
        for window in WINDOWS:
            arms = against_readj(setting, window, ALLOWED)
            runs |= {(rate, window, arm): run for arm, run in arms.items()}
        small = replace(setting, keys=brute)
        for (_, window, arm), run in sweep([(rate, small, {})], ["Mixed", "MixedBF"]).items():
            runs[rate, window, f"{arm}, {brute:,} keys"] = run
    tabulate(section, "f", runs)
    section.plot("fig12", *panels(runs, "f"))
    judge_fluctuation(section, runs, rates, brute)
    setting = default(scale, intervals=few)
    for allowed in (0.02, ALLOWED):
        ratios = {}
        for window in WINDOWS:
            arms = against_readj(setting, window, allowed)
            ratios[window] = sum(arms["Readj"].seconds) / sum(arms["Mixed"].seconds)
        section.goals.append(
            Goal(
                "CPU time of Readj at its best parameter alone, to Mixed, K = 1e5, f = 1.0,"
                f" theta_max = {allowed}, all {few} plans together",
                ">= 50x",
                ", ".join(f"w = {w}: {ratio:.0f}x" for w, ratio in ratios.items()),
                min(ratios.values()) >= 50,
            )
        )
    return section


def against_readj(setting: Setting, window: int, allowed: float) -> dict[str, Outcome]:
    changes = {"max_imbalance": allowed}
    makes = {
        "Mixed": planner(**options("Mixed", **changes)),
        "MinTable": planner(**options("MinTable", **changes)),
        "Readj": simulate.best_readj(**options("Readj", **changes)),
    }
    seen = snapshots(setting, window)
    return {
        arm: drive(generated(setting), seen, setting.tasks, make, allowed=allowed)[0]
        for arm, make in makes.items()
    }


def judge_fluctuation(section: Figure, runs: Runs, rates: Sequence[float], brute: int) -> None:
    slower = {
        (f, w): median(runs[f, w, "Readj"].seconds) / median(runs[f, w, "Mixed"].seconds)
        for f in rates
        for w in WINDOWS
    }
    section.claim(
        "Mixed plans faster than Readj by a large margin (10x, every f)",
        ", ".join(f"f = {f}: {min(slower[f, w] for w in WINDOWS):.1f}x" for f in rates),
        min(slower.values()) > 10,
    )
    names = [f"{arm}, {brute:,} keys" for arm in ("Mixed", "MixedBF")]
    pairs = [[runs[f, w, name] for name in names] for f in rates for w in WINDOWS]
    times = [median(bf.seconds) / median(one.seconds) for one, bf in pairs]
    section.claim(
        "MixedBF is a poor option: slower than Mixed",
        f"{min(times):.1f}x to {max(times):.1f}x its time",
        min(times) > 2,
    )
    closeness = [moved(bf) / max(moved(one), 1e-9) for one, bf in pairs]
    section.claim(
        "MixedBF moves about what Mixed moves (0.7x to 1.3x)",
        f"{min(closeness):.2f}x to {max(closeness):.2f}x",
        min(closeness) >= 0.7 and max(closeness) <= 1.3,
    )
    grows = {
        (arm, w): moved(runs[rates[-1], w, arm]) - moved(runs[rates[0], w, arm])
        for arm in ("Mixed", "Readj")
        for w in WINDOWS
    }
    over = {
        arm: sum(len(runs[f, w, arm].over) for f in rates for w in WINDOWS)
        for arm in ("Mixed", "Readj")
    }
    section.claim(
        "with f, migration of Mixed grows slower than that of Readj",
        "; ".join(
            f"w = {w}: {grows['Mixed', w]:+.2f} against {grows['Readj', w]:+.2f} points"
            for w in WINDOWS
        )
        + f"; plans over the limit {over['Mixed']} against {over['Readj']}",
        all(grows["Mixed", w] < grows["Readj", w] for w in WINDOWS),
    )


# -- figures 17 to 21


def figure_17(scale: Scale) -> Figure:
    section = Figure("Figure 17: size of the routing table", "How large a table does Mixed need?")
    section.say(about(scale))
    allowances = (0.02, 0.08, 0.15, 0.30)
    sizes = [2**i for i in (range(1, 14) if not scale.quick else (5, 9, 11, 13))]
    setting = default(scale, intervals=scale.pick(20, 6))
    section.say(f"Mixed, w = 1, {setting.intervals} intervals.")
    runs, free = {}, {}
    for allowed in allowances:
        points = [(n, setting, {"max_imbalance": allowed, "max_table": n}) for n in sizes]
        for (n, _, _), run in sweep(points, ["Mixed"], [1]).items():
            runs[allowed, n] = run
        point = (0, setting, {"max_imbalance": allowed, "max_table": None})
        free[allowed] = sweep([point], ["Mixed"], [1])[0, 1, "Mixed"]
    table = section.table(
        "table",
        *(f"moved %, theta_max = {t}" for t in allowances),
        "max/mean at 0.08",
        "over the limit at 0.08",
    )
    for n in (*sizes, 0):
        at = [runs[t, n] if n else free[t] for t in allowances]
        table.add(
            f"{n:,}" if n else "any",
            *(f"{moved(run):.2f}" for run in at),
            mean_range(at[1].planned),
            f"{len(at[1].over)} of {len(at[1].planned)}",
        )
    section.say(
        "Where the table is too small for the balance, pyroute keeps to the table and says that"
        " balance was given up for it; the paper's Mixed then exceeds the table, and acts as"
        " MinTable. So migration falls there instead of growing."
    )
    section.plot(
        "fig17",
        Panel(
            "migration of Mixed",
            "table",
            "% of all state",
            {f"theta_max = {t}": (sizes, [moved(runs[t, n]) for n in sizes]) for t in allowances},
            log_x=True,
        ),
    )
    small, large = moved(runs[0.08, sizes[0]]), moved(runs[0.08, sizes[-1]])
    below = [n for n in sizes if n < 1000]
    section.claim(
        "theta_max = 0.08: below 1,000 entries migration is high (at least twice that of 8,192)",
        ", ".join(f"{n}: {moved(runs[0.08, n]):.2f} %" for n in sizes),
        all(moved(runs[0.08, n]) >= 2 * large for n in below),
    )
    two = moved(runs[0.08, 2048])
    section.claim(
        "theta_max = 0.08: from 2,000 entries on it is far lower (at most half)",
        f"{two:.2f} % at 2,048 against {small:.2f} % at {sizes[0]}",
        two <= small / 2,
    )
    needed = [next((n for n in sizes if not runs[t, n].over), sizes[-1] + 1) for t in allowances]
    section.claim(
        "a stricter balance needs a larger table (no plan over the limit)",
        ", ".join(f"{t}: {n:,}" for t, n in zip(allowances, needed, strict=True)),
        all(a > b for a, b in pairwise(needed)),
    )
    return section


def figure_18(scale: Scale) -> Figure:
    section = Figure(
        "Figure 18: growth of the routing table", "How large does a table without bound become?"
    )
    keys, most = 10_000, scale.pick(4096, 64)
    section.say(
        f"MinMig, no bound on the table, {keys:,} keys, 15 tasks, f = 1.0, w = 1, {most:,}"
        " adjustments."
    )
    allowances = (0.02, 0.08, 0.15, 0.30)
    sizes = growth(default(scale, keys=keys, intervals=most), allowances)
    marks = [2**i for i in range(most.bit_length())]
    table = section.table("adjustments", *(f"table, theta_max = {t}" for t in allowances))
    for n in marks:
        table.add(f"{n:,}", *(sizes[t][n - 1] for t in allowances))
    section.plot(
        "fig18",
        Panel(
            "table of MinMig",
            "adjustments",
            "entries",
            {f"theta_max = {t}": (marks, [sizes[t][n - 1] for n in marks]) for t in allowances},
            log_x=True,
        ),
    )
    middle = most // 4
    section.claim(
        "a smaller theta_max makes the table grow faster",
        f"after {middle}: " + ", ".join(f"{t}: {sizes[t][middle - 1]:,}" for t in allowances),
        [sizes[t][middle - 1] for t in allowances]
        == sorted((sizes[t][middle - 1] for t in allowances), reverse=True),
    )
    limit = keys * 14 / 15
    ends = [sizes[t][-1] for t in allowances]
    section.claim(
        "tables of all theta_max converge to about 9,350 entries (within 5 % of 14/15 of the keys)",
        f"after {most:,}: "
        + ", ".join(f"{t}: {n:,}" for t, n in zip(allowances, ends, strict=True)),
        all(abs(n / limit - 1) <= 0.05 for n in ends) if not scale.quick else None,
    )
    return section


def growth(setting: Setting, allowances: Sequence[float]) -> dict[float, list[int]]:
    """Entries of MinMig's tables after each interval; thousands of intervals are not kept."""
    values = np.arange(setting.keys)
    ring = pr.Ring(setting.tasks)
    routers = {allowed: pr.Router(ring) for allowed in allowances}
    sizes: dict[float, list[int]] = {allowed: [] for allowed in allowances}
    for counts in simulate.trace(setting):
        snapshot = pr.Snapshot(values, counts, counts)
        for allowed, router in routers.items():
            chosen = options("MinMig", max_imbalance=allowed)
            plan = pr.rebalance(snapshot, router, **chosen)
            routers[allowed] = router.apply(plan)
            sizes[allowed].append(len(plan.table))
    return sizes


def figure_19(scale: Scale) -> Figure:
    section = Figure("Figure 19: window", "What does a longer window do to migration?")
    section.say(about(scale))
    windows = (1, 5, 10, 15, 20) if not scale.quick else (1, 5)
    runs = sweep([(0.08, default(scale), {})], ["MinTable", "MinMig", "Mixed"], windows)
    tabulate(section, "theta_max", runs)
    section.plot(
        "fig19",
        Panel(
            "migration",
            "w",
            "% of all state",
            {
                arm: (windows, [moved(runs[0.08, w, arm]) for w in windows])
                for arm in ("MinTable", "MinMig", "Mixed")
            },
        ),
    )
    pairs = [(moved(runs[0.08, w, "Mixed"]), moved(runs[0.08, w, "MinTable"])) for w in windows]
    section.claim(
        "Mixed moves less than MinTable at every window",
        "; ".join(f"w = {w}: {ratio_text(*pair)}" for w, pair in zip(windows, pairs, strict=True)),
        all(mixed < table for mixed, table in pairs),
    )
    section.claim(
        "a larger window finds cheaper keys to move",
        f"Mixed {pairs[0][0]:.2f} % at w = 1, {pairs[-1][0]:.2f} % at w = {windows[-1]}",
        pairs[-1][0] < pairs[0][0],
    )
    return section


BETAS = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0)


def by_beta(scale: Scale) -> Runs:
    betas = BETAS if not scale.quick else (1.0, 1.5, 2.0)
    setting = default(scale, intervals=10)
    out: Runs = {}
    for window in WINDOWS:
        for allowed in (0.02, 0.08, 0.15):
            points = [(b, setting, {"beta": b, "max_imbalance": allowed}) for b in betas]
            for (b, w, _), run in sweep(points, ["MinMig"], [window]).items():
                out[b, w, f"theta_max = {allowed}"] = run
    return out


def figure_20(scale: Scale) -> Figure:
    section = Figure("Figure 20: beta and the table", "How does beta change the size of the table?")
    section.say(about(scale, intervals=10))
    section.say("MinMig, no bound on the table, 10 adjustments; the table is the mean of them.")
    runs = by_beta(scale)
    table = section.table("beta", "w", *(f"table, {arm}" for arm in arms_of(runs)))
    for window in WINDOWS:
        for beta in points_of(runs):
            table.add(
                f"{beta:g}",
                window,
                *(f"{mean(runs[beta, window, arm].table):,.0f}" for arm in arms_of(runs)),
            )
    sizes = lines(runs, lambda r: mean(r.table))
    section.plot("fig20", Panel("table of MinMig", "beta", "entries", sizes, log_y=True))
    betas = points_of(runs)
    falls = [y[0] > y[-1] for _, y in sizes.values()]
    section.claim(
        "a larger beta makes a smaller table",
        "; ".join(f"{name}: {y[0]:,.0f} to {y[-1]:,.0f}" for name, (_, y) in sizes.items()),
        all(falls),
    )
    at = betas.index(1.5)
    drops = {name: 1 - y[-1] / y[at] for name, (_, y) in sizes.items()}
    section.claim(
        "from 1.5 to 2 the size is stable (falls by a fifth at most)",
        "; ".join(f"{name}: {drop:.0%}" for name, drop in drops.items()),
        max(drops.values()) <= 0.2,
    )
    return section


def figure_21(scale: Scale) -> Figure:
    section = Figure("Figure 21: beta and migration", "How does beta change what is moved?")
    section.say(about(scale, intervals=10))
    section.say("MinMig, no bound on the table, 10 adjustments.")
    runs = by_beta(scale)
    table = section.table("beta", "w", *(f"moved %, {arm}" for arm in arms_of(runs)), "max/mean")
    for window in WINDOWS:
        for beta in points_of(runs):
            every = [runs[beta, window, arm] for arm in arms_of(runs)]
            table.add(
                f"{beta:g}",
                window,
                *(f"{moved(run):.2f}" for run in every),
                mean_range([skewness for run in every for skewness in run.planned]),
            )
    costs = lines(runs, moved)
    section.plot("fig21", Panel("migration of MinMig", "beta", "% of all state", costs))
    section.claim(
        "a larger beta moves more state",
        "; ".join(f"{name}: {y[0]:.2f} to {y[-1]:.2f} %" for name, (_, y) in costs.items()),
        all(y[-1] > y[0] for _, y in costs.values()),
    )
    return section
