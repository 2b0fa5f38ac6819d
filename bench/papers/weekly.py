"""Streams of pairs, planned every week and met by the next one: the loop of paper 001."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

import pyroute as pr
from bench.papers.streams import data
from bench.peers import Scale
from pyroute import _core, metis

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Places = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]  # server of each in-key, out-key

WEEK = 7 * 86_400
UNIT = 1024  # what one record weighs, so that decayed counts stay whole
FORGOTTEN = 0.02  # records; a pair that has decayed below is dropped


@dataclass(frozen=True, eq=False)
class PairStream:
    """Records with an in-key and an out-key, by time; keys are numbered."""

    name: str
    times: Ints  # seconds since the first record
    ins: Ints
    outs: Ints
    in_names: Sequence[str]
    out_names: Sequence[str]

    @property
    def weeks(self) -> int:
        """Whole weeks; what is left of the last one is not used."""
        return int((self.times[-1] + 86_400) // WEEK)

    def between(self, first: float, last: float) -> tuple[Ints, Ints]:
        """In-keys and out-keys of the records from week `first` to before week `last`."""
        begin, end = np.searchsorted(self.times, [first * WEEK, last * WEEK])
        return self.ins[begin:end], self.outs[begin:end]

    def pairs(self, first: float, last: float) -> tuple[Ints, Ints]:
        """Codes of the pairs of some weeks, ascending, and how often each occurs."""
        ins, outs = self.between(first, last)
        codes, counts = np.unique(ins * len(self.out_names) + outs, return_counts=True)
        return codes, counts.astype(np.int64)

    def top(self, codes: Ints, weights: Reals) -> pr.TopPairs:
        """Pairs as `colocate` takes them."""
        counts = np.maximum(1, np.rint(weights * UNIT)).astype(np.int64)
        ins, outs = np.divmod(codes, len(self.out_names))
        columns: Any = ins, outs  # arrays are as good as lists
        return pr.TopPairs(*columns, counts, np.zeros(len(counts), np.int64))


@cache
def load(file: str, in_column: str, out_column: str) -> PairStream | None:
    """A pair stream of the data folder; None where it is not there."""
    path = data(file)
    if path is None:
        return None
    import pandas as pd

    frame = pd.read_parquet(path, columns=["ts", in_column, out_column])
    frame = frame[frame[in_column] != ""]
    in_codes, in_names = pd.factorize(frame[in_column].astype(str), sort=True)
    out_codes, out_names = pd.factorize(frame[out_column].astype(str), sort=True)
    times = frame["ts"].to_numpy(np.int64)
    return PairStream(
        f"{file}: {in_column} x {out_column}",
        times - times.min(),
        in_codes.astype(np.int64),
        out_codes.astype(np.int64),
        list(in_names),
        list(out_names),
    )


STREAMS = {
    "congress state x hashtag": ("congress_hashtags", "state", "hashtag"),
    "congress account x hashtag": ("congress_hashtags", "account", "hashtag"),
    "bikeshare start x end station": ("bayarea_bikeshare_2014", "start_station", "end_station"),
    "bikeshare bike x end station": ("bayarea_bikeshare_2014", "bike_id", "end_station"),
}


def stream_of(name: str, scale: Scale) -> PairStream | None:
    if scale.peer("pyarrow") is None or scale.peer("pandas") is None:
        return None
    return load(*STREAMS[name])


# -- statistics


class History:
    """Counts of pairs that decay from week to week; factor 0 keeps the last week alone."""

    def __init__(self, stream: PairStream, decay: float) -> None:
        self.stream, self.decay = stream, decay
        self.codes, self.weights = np.empty(0, np.int64), np.empty(0)
        self.seen = (
            np.zeros(len(stream.in_names), np.bool_),
            np.zeros(len(stream.out_names), np.bool_),
        )

    def add(self, week: int) -> None:
        codes, counts = self.stream.pairs(week, week + 1)
        kept = self.weights * self.decay >= FORGOTTEN
        everything = np.concatenate([self.codes[kept], codes])
        weights = np.concatenate([self.weights[kept] * self.decay, counts])
        self.codes, at = np.unique(everything, return_inverse=True)
        self.weights = np.bincount(at, weights, len(self.codes))
        for seen, keys in zip(self.seen, self.stream.between(week, week + 1), strict=True):
            seen[keys] = True

    @property
    def pairs(self) -> pr.TopPairs:
        return self.stream.top(self.codes, self.weights)


class Loads:
    """Load of each key, decayed faster than the pairs: the forecast that limits are about."""

    def __init__(self, stream: PairStream, decay: float | None) -> None:
        self.stream, self.decay = stream, decay
        self.columns = [np.zeros(len(stream.in_names)), np.zeros(len(stream.out_names))]

    def add(self, week: int) -> None:
        for i, keys in enumerate(self.stream.between(week, week + 1)):
            past = self.columns[i] * (self.decay or 0.0)
            self.columns[i] = past + np.bincount(keys, minlength=len(past))

    @property
    def given(self) -> dict[str, Any] | None:
        if self.decay is None:
            return None
        out = {}
        for name, column in zip(("in", "out"), self.columns, strict=True):
            there = np.flatnonzero(column >= FORGOTTEN)
            out[name] = there, column[there]
        return out


# -- policies


@dataclass(frozen=True)
class Policy:
    """How a week is planned."""

    decay: float = 0.9  # of pair counts from week to week
    load_decay: float | None = None  # of loads; None: loads are those of the pairs
    migration_weight: float = 0.02
    hysteresis: float = 0.005
    max_imbalance: float = 0.03
    placements: int = 0  # how often a week new keys are placed
    new_imbalance: float = 0.2  # limit when they are
    new_weight: float = 0.5  # their migration weight

    def __str__(self) -> str:
        loads = "those of the pairs" if self.load_decay is None else f"decay {self.load_decay:g}"
        out = (
            f"decay {self.decay:g}, loads {loads}, migration weight {self.migration_weight:g},"
            f" hysteresis {self.hysteresis:g}, limit {self.max_imbalance:g}"
        )
        if self.placements:
            out += f", new keys {self.placements} times a week, weight {self.new_weight:g}"
        return out


@dataclass
class Run:
    """What became of each plan: entry t is the plan after week t, met by week t + 1."""

    locality: list[float] = field(default_factory=list)
    promised: list[float] = field(default_factory=list)
    replanned: list[float] = field(default_factory=list)  # traffic of keys that the plan moved
    placed: list[float] = field(default_factory=list)  # the same of new keys placed after it
    in_balance: list[float] = field(default_factory=list)  # max / mean of the week
    out_balance: list[float] = field(default_factory=list)
    unseen: list[float] = field(default_factory=list)  # traffic with a key never seen before
    seconds: list[float] = field(default_factory=list)
    table: list[int] = field(default_factory=list)

    @property
    def moved(self) -> list[float]:
        return [a + b for a, b in zip(self.replanned, self.placed, strict=True)]

    def means(self, first: int, last: int) -> tuple[float, float, float, float]:
        """Locality, traffic moved, max / mean in and out, of plans `first` to `last` - 1."""
        columns = self.locality, self.moved, self.in_balance, self.out_balance
        a, b, c, d = (float(np.mean(column[first:last])) for column in columns)
        return a, b, c, d


def hashed(servers: int, ring: int = 0) -> dict[str, pr.Router]:
    """Routers without tables; another salt for each operator, or hashing agrees by design."""
    replicas = max(128, 8192 // servers)
    return {
        name: pr.Router(pr.Ring(servers, replicas=replicas, salt=2 * ring + i))
        for i, name in enumerate(("in", "out"), 1)
    }


def places(stream: PairStream, routers: dict[str, pr.Router]) -> Places:
    return (
        routers["in"].route(np.arange(len(stream.in_names))),
        routers["out"].route(np.arange(len(stream.out_names))),
    )


def moved(records: tuple[Ints, Ints], before: Places, after: Places) -> float:
    """Records whose key changed its place, the mean of both sides."""
    return float(
        np.mean([(b[k] != a[k]).sum() for k, b, a in zip(records, before, after, strict=True)])
    )


class Met:
    """What a week finds: locality and loads, whatever the places were at the time."""

    def __init__(self, servers: int) -> None:
        self.records = self.local = 0
        self.loads = np.zeros((2, servers))

    def add(self, records: tuple[Ints, Ints], where: Places) -> None:
        at = [place[keys] for keys, place in zip(records, where, strict=True)]
        self.records += len(at[0])
        self.local += int((at[0] == at[1]).sum())
        for side, servers in enumerate(at):
            self.loads[side] += np.bincount(servers, minlength=self.loads.shape[1])

    @property
    def locality(self) -> float:
        return self.local / max(1, self.records)

    @property
    def balance(self) -> tuple[float, float]:
        skew = self.loads.max(axis=1) / np.maximum(self.loads.mean(axis=1), 1e-300)
        return float(skew[0]), float(skew[1])


def never_seen(history: History, records: tuple[Ints, Ints]) -> float:
    new_in, new_out = (~seen[keys] for seen, keys in zip(history.seen, records, strict=True))
    return float((new_in | new_out).mean())


def replay(
    stream: PairStream, policy: Policy, *, servers: int = 6, ring: int = 0, last: int | None = None
) -> Run:
    """Plans after week 0 to `last` - 2, each met by the week after."""
    routers = hashed(servers, ring)
    history, loads = History(stream, policy.decay), Loads(stream, policy.load_decay)
    out = Run()
    before = places(stream, routers)
    for week in range((last or stream.weeks) - 1):
        history.add(week)
        loads.add(week)
        start = time.process_time()
        plan = pr.colocate(
            history.pairs,
            servers,
            routers=routers,
            loads=loads.given,
            max_imbalance=policy.max_imbalance,
            migration_weight=policy.migration_weight,
            hysteresis=policy.hysteresis,
            seed=ring,
        )
        out.seconds.append(time.process_time() - start)
        routers = plan.routers
        after = places(stream, routers)
        records = stream.between(week, week + 1)
        out.replanned.append(moved(records, before, after) / max(1, len(records[0])))
        out.promised.append(plan.locality)
        out.unseen.append(never_seen(history, stream.between(week + 1, week + 2)))
        met = Met(servers)
        routers, before, placed = meet(stream, policy, week + 1, routers, history, met)
        out.placed.append(placed)
        out.locality.append(met.locality)
        out.in_balance.append(met.balance[0])
        out.out_balance.append(met.balance[1])
        out.table.append(sum(len(router.table) for router in routers.values()))
    return out


def meet(
    stream: PairStream,
    policy: Policy,
    week: int,
    routers: dict[str, pr.Router],
    history: History,
    met: Met,
) -> tuple[dict[str, pr.Router], Places, float]:
    """One week of records; keys that no plan has seen join their partners now and then."""
    where = places(stream, routers)
    steps = max(1, policy.placements)
    placed = 0.0
    known = tuple(seen.copy() for seen in history.seen)
    for step in range(steps):
        now = week + (step + 1) / steps
        met.add(stream.between(week + step / steps, now), where)
        if step + 1 == steps:  # the plan of the week comes next
            break
        window = stream.between(now - 1, now)
        new = {
            name: np.unique(keys[~seen[keys]])
            for name, seen, keys in zip(("in", "out"), known, window, strict=True)
        }
        codes, counts = stream.pairs(now - 1, now)
        plan = pr.colocate(
            stream.top(codes, counts.astype(np.float64)),
            met.loads.shape[1],
            routers=routers,
            movable=new,
            max_imbalance=policy.new_imbalance,
            migration_weight=policy.new_weight,
        )
        routers = plan.routers
        after = places(stream, routers)
        placed += moved(window, where, after)
        for seen, name in zip(known, ("in", "out"), strict=True):
            seen[new[name]] = True  # each is placed once, and stays there until the plan
        where = after
    return routers, where, placed / max(1, met.records)


# -- the paper's own way: METIS on the statistics, every week anew


def metis_places(
    stream: PairStream, codes: Ints, counts: Ints, homes: Places, servers: int, seed: int
) -> tuple[Places, float]:
    """Where METIS puts the keys of some pairs, others at home; and the locality it expects."""
    ins, outs = np.divmod(codes, len(stream.out_names))
    graph = _core.PairGraph(2)
    columns = (pr.keys(ins)._core, pr.keys(outs)._core, counts, np.zeros(len(counts), np.int64))
    graph.add(0, 1, *columns)
    graph.finish()
    parts = metis.partition(
        graph.offsets, graph.neighbours, graph.counts, graph.loads, servers, seed=seed
    )
    where = homes[0].copy(), homes[1].copy()
    for side, place in enumerate(where):
        begin, number = graph.begin(side), len(graph.ids(side))
        keys = np.array(graph.values(side, np.arange(number, dtype=np.uint64)), np.int64)
        place[keys] = parts[begin : begin + number]
    local = counts[where[0][ins] == where[1][outs]].sum() / counts.sum()
    return where, float(local)


def matched(stream: PairStream, codes: Ints, counts: Ints, new: Places, old: Places, n: int) -> Any:
    """The parts numbered so that most traffic stays where it was."""
    kept = np.zeros(n * n, np.int64)
    for keys, after, before in zip(np.divmod(codes, len(stream.out_names)), new, old, strict=True):
        kept += np.bincount(after[keys].astype(np.int64) * n + before[keys], counts, n * n).astype(
            np.int64
        )
    return _core.best_matching(kept, n)


def replay_metis(
    stream: PairStream,
    decay: float,
    *,
    servers: int = 6,
    ring: int = 0,
    last: int | None = None,
    match: bool = True,
) -> Run:
    """The paper: METIS after each week; keys that its statistics do not name go home."""
    homes = places(stream, hashed(servers, ring))
    history = History(stream, decay)
    out = Run()
    before = homes
    for week in range((last or stream.weeks) - 1):
        history.add(week)
        counts = history.pairs.counts
        start = time.process_time()
        after, promised = metis_places(stream, history.codes, counts, homes, servers, 42 + ring)
        out.seconds.append(time.process_time() - start)
        if match:
            number = matched(stream, history.codes, counts, after, before, servers)
            ins, outs = np.divmod(history.codes, len(stream.out_names))
            for place, keys in zip(after, (np.unique(ins), np.unique(outs)), strict=True):
                place[keys] = number[place[keys]]
        records = stream.between(week, week + 1)
        out.replanned.append(moved(records, before, after) / max(1, len(records[0])))
        out.placed.append(0.0)
        out.promised.append(promised)
        following = stream.between(week + 1, week + 2)
        out.unseen.append(never_seen(history, following))
        met = Met(servers)
        met.add(following, after)
        out.locality.append(met.locality)
        out.in_balance.append(met.balance[0])
        out.out_balance.append(met.balance[1])
        out.table.append(int(sum((a != h).sum() for a, h in zip(after, homes, strict=True))))
        before = after
    return out


def fixed_places(stream: PairStream, where: Places, servers: int, weeks: Sequence[int]) -> Run:
    """Weeks under places that never change: hashing, or one plan made long ago."""
    out = Run()
    for week in weeks:
        met = Met(servers)
        met.add(stream.between(week, week + 1), where)
        out.locality.append(met.locality)
        out.in_balance.append(met.balance[0])
        out.out_balance.append(met.balance[1])
    return out
