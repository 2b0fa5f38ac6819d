"""Runs schedules with faults: ``python -m tests.protocol.schedules --count 100000``.

A failure prints its seed, the simplest settings found that still fail, and the trace of that run.
``--seed N`` runs one schedule, ``--trace`` shows it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context

from .settings import Settings, draw, shrunk
from .simulator import World

CHUNK = 250
MOST = 160
"""Lines of a trace that are shown."""
TRIES = 60
"""Seeds that are tried for each simpler settings, in search of a shorter trace."""


@dataclass(frozen=True)
class Failure:
    seed: int
    settings: Settings
    error: str


def run_one(seed: int, settings: Settings | None = None, trace: bool = False, **classes) -> World:
    """One schedule; raises what is wrong with it."""
    return World(seed, settings or draw(seed), trace=trace, **classes).run()


def failure_of(seed: int, settings: Settings | None = None, **classes) -> Failure | None:
    settings = settings or draw(seed)
    try:
        run_one(seed, settings, **classes)
    except Exception as error:  # whatever it is, it must not be
        return Failure(seed, settings, f"{type(error).__name__}: {error}")
    return None


def run_chunk(seeds: Sequence[int]) -> tuple[int, Failure | None]:
    """How many were run, and the first that failed."""
    for i, seed in enumerate(seeds):
        failure = failure_of(seed)
        if failure is not None:
            return i + 1, failure
    return len(seeds), None


def run_many(count: int, first: int = 0, processes: int = 0) -> tuple[int, Failure | None]:
    """Schedules of consecutive seeds, on several processors; stops at the first failure."""
    processes = processes or os.cpu_count() or 1
    chunks = iter(
        range(at, min(at + CHUNK, first + count)) for at in range(first, first + count, CHUNK)
    )
    if processes == 1:
        return _in_order(chunks)
    done = 0
    with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
        running = {pool.submit(run_chunk, chunk) for chunk in _some(chunks, 2 * processes)}
        while running:
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                n, failure = future.result()
                done += n
                if failure is not None:
                    for other in running:
                        other.cancel()
                    return done, failure
            running |= {pool.submit(run_chunk, chunk) for chunk in _some(chunks, len(finished))}
    return done, None


def _in_order(chunks: Iterator[range]) -> tuple[int, Failure | None]:
    done = 0
    for chunk in chunks:
        n, failure = run_chunk(chunk)
        done += n
        if failure is not None:
            return done, failure
    return done, None


def _some(chunks: Iterator[range], n: int) -> Iterator[range]:
    for _, chunk in zip(range(n), chunks, strict=False):
        yield chunk


def shrink(failure: Failure, **classes) -> Failure:
    """The same failure, or another one, with simpler settings and few records."""
    while True:
        for settings in shrunk(failure.settings):
            seeds = [failure.seed, *range(TRIES)]
            found = (failure_of(seed, settings, **classes) for seed in seeds)
            simpler = next((f for f in found if f is not None), None)
            if simpler is not None:
                failure = simpler
                break
        else:
            return _shortest(failure, **classes)


def _shortest(failure: Failure, **classes) -> Failure:
    best, length = failure, len(trace_of(failure, **classes))
    for seed in range(TRIES):
        other = failure_of(seed, failure.settings, **classes)
        if other is not None and len(trace_of(other, **classes)) < length:
            best, length = other, len(trace_of(other, **classes))
    return best


def trace_of(failure: Failure, **classes) -> list[str]:
    world = World(failure.seed, failure.settings, trace=True, **classes)
    try:
        world.run()
    except Exception as error:
        last = traceback.format_exception_only(error)
        return [*(world.trace or []), *last]
    return world.trace or []


def report(failure: Failure, **classes) -> str:
    """What a person needs to look into a failure."""
    simple = shrink(failure, **classes)
    trace = trace_of(simple, **classes)
    if len(trace) > MOST:
        trace = [*trace[: MOST // 2], f"... {len(trace) - MOST} more", *trace[-MOST // 2 :]]
    return "\n".join(
        [
            f"seed {failure.seed}: {failure.error}",
            f"  {failure.settings}",
            f"  again: python -m tests.protocol.schedules --seed {failure.seed} --trace",
            f"simplest: World({simple.seed}, {simple.settings}).run()",
            *(f"  {line.rstrip()}" for line in trace),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000, help="schedules to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=0, help="default: one per processor")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--trace", action="store_true", help="show what happens in it")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        failure = failure_of(options.seed)
        settings = draw(options.seed)
        print(settings)
        if options.trace:
            print("\n".join(trace_of(Failure(options.seed, settings, ""))))
        print("no violation" if failure is None else failure.error)
        return 0 if failure is None else 1
    start = time.perf_counter()
    done, failure = run_many(options.count, options.first, options.processes)
    seconds = time.perf_counter() - start
    print(f"{done} schedules in {seconds:.1f} s, {done / seconds:.0f} a second")
    if failure is None:
        print("no violation")
        return 0
    print(report(failure))
    return 1


if __name__ == "__main__":
    sys.exit(main())
