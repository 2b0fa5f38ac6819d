"""Replays of one trace under several policies, with the same metrics for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute._arrays import count, numbers, real
from pyroute.arena import _loop
from pyroute.arena.trace import Trace
from pyroute.policies import make
from pyroute.policies.any_task import FullKnowledge, _Loop
from pyroute.policies.base import Compiled, Done, Policy, Records, Setting

__all__ = ["Cluster", "Replay", "Result", "replay"]

Progress = Callable[[str, int, int], None]
CHUNK = 16384  # records between two signs of progress


@dataclass(frozen=True)
class Cluster:
    """The tasks, and what is between them.

    Parameters
    ----------
    tasks
        How many.
    speeds
        Time at each task by time at speed 1; or `{record: speeds}` where they change, from that
        record on. All 1 by default.
    delays
        Way of a record to each task, one number for all, or none.
    servers
        Server of each task, for locality; by default one of its own.
    age
        How old what policies know of queue lengths is.
    refresh
        Time between two looks of load-aware shuffle.
    timeout
        Completion time from which a record counts as failed.
    merge
        Time that a task spends on a partial result, once in an interval for each task but the
        first that holds one for a key; for policies that split keys.
    bandwidth
        Bytes of state per unit of time when a key moves; its records wait for it.
    interval
        Records between two intervals.
    """

    tasks: int
    speeds: Any = None
    delays: Any = 0.0
    servers: Any = None
    age: float = 0.0
    refresh: float = 1.0
    timeout: float | None = None
    merge: float = 0.0
    bandwidth: float = float("inf")
    interval: int = 10_000

    def changes(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Records at which speeds change, and the speeds from there."""
        tasks = count(self.tasks, "tasks", 1 << 16)
        given = self.speeds
        if not isinstance(given, Mapping):
            given = {0: np.ones(tasks) if given is None else given}
        at = sorted(given)
        speeds = np.array([numbers(given[record], "speeds") for record in at])
        if not at or at[0] != 0 or speeds.shape != (len(at), tasks):
            raise ValueError(
                f"speeds: expected {tasks} numbers from record 0 on, got {self.speeds}"
            )
        if not (np.isfinite(speeds).all() and (speeds > 0).all()):
            raise ValueError("speeds: expected finite numbers above 0, got others")
        return np.array(at, np.int64), speeds

    def setting(self, seed: int) -> Setting:
        """What policies are told."""
        delays = np.broadcast_to(np.asarray(self.delays, np.float64), (self.tasks,))
        return Setting(self.tasks, seed, np.array(delays), self.servers, self.refresh)


@dataclass(frozen=True)
class Result:
    """One policy on one trace."""

    policy: str
    records: int
    mean: float
    """Completion time: from arrival to the end of service."""
    median: float
    p99: float
    maximum: float
    throughput: float
    """Records per unit of time, from the first arrival to the last end."""
    imbalance: float
    """Greatest load over mean load."""
    replicas: float
    """Tasks that hold state of a key, mean over the keys: 1 where no key is split."""
    messages: int
    message_bytes: int
    migrations: int
    migrated_bytes: int
    merges: int
    """Partial results beyond the first of a key in an interval."""
    locality: float | None
    """Share of the records that stay on their server; None where they come from none."""
    failed: int
    """Records beyond the time-out."""
    decision_ns: float
    """Time of one decision: of a policy's calls, or of the loop beyond one that only plays."""
    rate: float
    """Records per second that the replay made."""

    def row(self) -> dict[str, Any]:
        """As a plain mapping."""
        return asdict(self)


@dataclass(frozen=True)
class Replay:
    """A result, with the records behind it."""

    result: Result
    policy: Policy
    tasks: npt.NDArray[np.int32]
    completion: npt.NDArray[np.float64]

    def windows(self, size: int = 2000) -> dict[str, npt.NDArray[np.float64]]:
        """Least, mean and greatest completion time of consecutive records."""
        whole = len(self.completion) // size * size
        parts = self.completion[:whole].reshape(-1, size)
        return {"min": parts.min(1), "mean": parts.mean(1), "max": parts.max(1)}


def replay(
    trace: Trace,
    policies: Iterable[str | Policy] | str | Policy,
    cluster: Cluster | int,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Replay]:
    """Play a trace under each policy.

    Parameters
    ----------
    trace
        What comes.
    policies
        Names of `pyroute.policies.ALL`, or policies.
    cluster
        The tasks, or how many.
    seed
        Of what policies draw.
    progress
        Called with the policy's name, records played, and all records.
    """
    model = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
    several: Sequence[str | Policy]
    several = [policies] if isinstance(policies, str | Policy) else list(policies)
    if not len(trace):
        raise ValueError("trace: expected records, got none")
    chosen = [make(policy) for policy in several]
    return [_one(trace, policy, model, seed, progress or _silent) for policy in chosen]


def _silent(name: str, played: int, total: int) -> None:
    pass


def _tables(trace: Trace, policy: Policy, cluster: Cluster) -> _loop.Tables:
    n, tasks = len(trace), cluster.tasks
    change_at, speeds = cluster.changes()
    delays = np.array(np.broadcast_to(np.asarray(cluster.delays, np.float64), (tasks,)))
    age = real(cluster.age, "age")
    has_state = policy.keyed and trace.sizes is not None
    merging = policy.splits and cluster.merge > 0
    number = len(trace.distinct)
    events = 2 * n if age > 0 else 0
    return _loop.Tables(
        ids=np.ascontiguousarray(trace.ids),
        arrivals=np.ascontiguousarray(trace.arrivals),
        costs=np.ascontiguousarray(trace.costs),
        positions=trace.positions,
        sizes=trace.sizes if has_state and trace.sizes is not None else np.empty(0, np.int64),
        delays=delays,
        change_at=change_at,
        speeds=speeds,
        tasks=np.empty(n, np.int32),
        finish=np.empty(n),
        service=np.empty(n),
        free=np.zeros(tasks),
        following=np.empty(n, np.int64),
        first=np.full(tasks, -1),
        last=np.full(tasks, -1),
        heap_time=np.empty(tasks),
        heap_task=np.empty(tasks, np.int64),
        lengths=np.zeros(tasks, np.int64),
        told=np.empty(events),
        more=np.empty((events, 2), np.int64),
        counts=np.zeros(6, np.int64),
        state_size=np.zeros(number if has_state else 0, np.int64),
        holder=np.full(number if has_state else 0, -1),
        ready=np.zeros(number if has_state else 0),
        held=np.zeros((number if merging else 0, tasks), np.int32),
        merged_by=np.zeros(number if merging else 0, np.int32),
        amounts=np.array([real(cluster.merge, "merge"), cluster.bandwidth, age, 0.0, 0.0]),
        order=np.empty(n, np.int64),
    )


def _one(trace: Trace, policy: Policy, cluster: Cluster, seed: int, progress: Progress) -> Replay:
    policy.begin(cluster.setting(seed))
    tables = _tables(trace, policy, cluster)
    spent = -1.0
    started = time.thread_time()
    if isinstance(policy, FullKnowledge):
        seconds = _play_full(trace, policy, tables, progress)
    elif isinstance(policy, _Loop):
        state = np.array([float(policy.loop.address)])
        seconds = _play_compiled(policy.name, _loop.native(), state, tables, progress)
    elif isinstance(policy, Compiled):
        functions = type(policy).choose, type(policy).noted
        seconds = _play_compiled(policy.name, functions, policy.state(), tables, progress)
    else:
        spent = _play_batches(trace, policy, cluster, tables, progress)
        seconds = time.thread_time() - started
    if spent < 0:
        spent = seconds - _bare_seconds(trace, tables, cluster, policy)
    result = _measure(trace, policy, cluster, tables, max(spent, 0.0), seconds)
    return Replay(result, policy, tables.tasks, tables.finish - trace.arrivals)


def _bare_seconds(trace: Trace, tables: _loop.Tables, cluster: Cluster, policy: Policy) -> float:
    """The same replay with the decisions made before."""
    fresh = _tables(trace, policy, cluster)
    functions = _loop.taken, None
    return _play_compiled("", functions, tables.tasks.astype(np.float64), fresh, _silent)


def _play_compiled(
    name: str, functions: Any, state: Any, tables: _loop.Tables, progress: Progress
) -> float:
    run = _loop.play(*functions)
    n = len(tables.ids)
    run(tables, state.copy(), 0, 0)  # compiles
    seconds = 0.0
    for begin in range(0, n, CHUNK):
        end = min(begin + CHUNK, n)
        before = time.thread_time()
        run(tables, state, begin, end)
        seconds += time.thread_time() - before
        progress(name, end, n)
    return seconds


def _play_full(
    trace: Trace, policy: FullKnowledge, tables: _loop.Tables, progress: Progress
) -> float:
    """Speeds are told when they change."""
    run = _loop.play(type(policy).choose, None)
    state, tasks, n = policy.state(), policy.tasks, len(trace)
    run(tables, state.copy(), 0, 0)
    borders = sorted({*range(0, n, CHUNK), *tables.change_at[tables.change_at < n].tolist(), n})
    seconds = 0.0
    for begin, end in pairwise(borders):
        period = int(np.searchsorted(tables.change_at, begin, side="right")) - 1
        state[tasks : 2 * tasks] = tables.speeds[period]
        before = time.thread_time()
        run(tables, state, begin, end)
        seconds += time.thread_time() - before
        progress(policy.name, end, n)
    return seconds


def _play_batches(
    trace: Trace, policy: Policy, cluster: Cluster, tables: _loop.Tables, progress: Progress
) -> float:
    run = _loop.play(_loop.taken, None)
    n, every, told, spent = len(trace), policy.every or cluster.interval, 0, 0.0
    state = np.zeros(n)
    run(tables, state, 0, 0)
    begin, next_interval, shown = 0, cluster.interval, 0
    while begin < n:
        end = min(begin + every, n, next_interval)
        part = slice(begin, end)
        run(tables, state, begin, begin)
        before = time.thread_time()
        told = _tell(trace, policy, tables, told)
        if begin and begin % cluster.interval == 0:
            policy.interval()
        records = Records(
            trace.ids[part],
            trace.arrivals[part],
            tables.lengths.copy(),
            None if trace.sources is None else trace.sources[part],
            trace.costs[part],
        )
        chosen = np.asarray(policy.route(records))
        _check(chosen, end - begin, policy)
        if end == next_interval:
            next_interval += cluster.interval
        spent += time.thread_time() - before
        state[part] = chosen
        run(tables, state, begin, end)
        tables.counts[_loop.INTERVAL] = end // cluster.interval
        begin = end
        if end - shown >= CHUNK or end == n:
            progress(policy.name, end, n)
            shown = end
    return spent


def _tell(trace: Trace, policy: Policy, tables: _loop.Tables, told: int) -> int:
    """What was executed since the last time."""
    number = int(tables.counts[_loop.DONE])
    if type(policy).done is not Policy.done and number > told:
        at = tables.order[told:number]
        policy.done(Done(trace.ids[at], tables.tasks[at], tables.service[at], tables.finish[at]))
    return number


def _check(chosen: Any, size: int, policy: Policy) -> None:
    if len(chosen) != size:
        raise ValueError(f"{policy.name}: expected {size} tasks, got {len(chosen)}")
    if size and not (chosen.min() >= 0 and chosen.max() < policy.tasks):
        wrong = chosen[(chosen < 0) | (chosen >= policy.tasks)][0]
        raise ValueError(f"{policy.name}: expected tasks below {policy.tasks}, got {wrong}")


def _measure(
    trace: Trace,
    policy: Policy,
    cluster: Cluster,
    tables: _loop.Tables,
    spent: float,
    seconds: float,
) -> Result:
    completion = tables.finish - trace.arrivals
    loads = np.bincount(tables.tasks, tables.service, cluster.tasks)
    duration = float(tables.finish.max() - trace.arrivals[0])
    pairs = np.unique(trace.positions * cluster.tasks + tables.tasks)
    messages, size = policy.messages(len(trace), duration)
    locality = None
    if trace.sources is not None:
        servers = policy.setting.servers
        locality = float((servers[tables.tasks] == trace.sources).mean())
    failed = 0 if cluster.timeout is None else int((completion > cluster.timeout).sum())
    median, p99 = np.quantile(completion, [0.5, 0.99])
    return Result(
        policy=policy.name,
        records=len(trace),
        mean=float(completion.mean()),
        median=float(median),
        p99=float(p99),
        maximum=float(completion.max()),
        throughput=len(trace) / duration if duration > 0 else float("inf"),
        imbalance=float(loads.max() / loads.mean()) if loads.any() else 1.0,
        replicas=len(pairs) / len(trace.distinct),
        messages=messages,
        message_bytes=size,
        migrations=int(tables.counts[_loop.MOVED]),
        migrated_bytes=int(tables.amounts[_loop.MOVED_BYTES]),
        merges=int(tables.amounts[_loop.MERGES]),
        locality=locality,
        failed=failed,
        decision_ns=spent / len(trace) * 1e9,
        rate=len(trace) / seconds if seconds > 0 else float("inf"),
    )
