"""How long does `pyroute analyze` take, by the time of a scan of the same columns?

python -m bench.analyze generate [--rows 100000000]   a seeded file of 2 GB under build/
python -m bench.analyze measure [--runs 5]            both in turns, each in a process of its own
python -m bench.analyze check                         hot keys against duckdb's exact answer
python -m bench.analyze remove

The file has a million users by Zipf 1.0, as numbers (`user_id`) and as text (`user`), a cost in
microseconds, an amount and a time. The scan reads the columns with pyarrow's scanner, or with
`--scan iter_batches` batch by batch as a loop over a `ParquetFile` does, and drops them: as many
threads, the same file in the page cache. Times are of whole processes, from start to
end, imports and what is shown at the end included; memory is the most that a process held.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

FILE = Path(__file__).resolve().parent.parent / "build" / "analyze.parquet"
USERS = 1_000_000
GROUP = 1 << 20

CASES = [["user_id"], ["user"], ["user_id", "cost_us"], ["user", "cost_us"]]
SCANS = {
    "scanner": """
import sys, pyarrow.dataset as ds
rows = 0
for batch in ds.dataset(sys.argv[1]).scanner(columns=sys.argv[2:]).to_batches():
    rows += batch.num_rows
print(rows)
""",
    "iter_batches": """
import sys, pyarrow.parquet as pq
rows = 0
for batch in pq.ParquetFile(sys.argv[1]).iter_batches(columns=sys.argv[2:]):
    rows += batch.num_rows
print(rows)
""",
}


def generate(path: Path, rows: int, seed: int = 1) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(seed)
    shares = np.cumsum(1.0 / np.arange(1, USERS + 1))
    shares /= shares[-1]
    names = random.permutation(USERS)
    numbers = random.integers(1 << 40, size=USERS)
    texts = pa.array([f"user-{name:07d}" for name in names])
    schema = pa.schema(
        [
            ("user_id", pa.int64()),
            ("user", pa.string()),
            ("cost_us", pa.int64()),
            ("amount", pa.float64()),
            ("time", pa.timestamp("us")),
        ]
    )
    path.parent.mkdir(exist_ok=True)
    fresh = path.with_suffix(".tmp")
    with pq.ParquetWriter(fresh, schema) as to:
        for begin in range(0, rows, GROUP):
            count = min(GROUP, rows - begin)
            ranks = np.searchsorted(shares, random.random(count))
            cost = random.exponential(500, count).astype(np.int64) + 1
            amount = random.lognormal(3, 1, count).astype(np.float32).astype(np.float64)
            time_ = 1_700_000_000_000_000 + (np.arange(begin, begin + count) * 36)
            columns = [
                pa.array(numbers[ranks]),
                texts.take(pa.array(ranks)),
                pa.array(cost),
                pa.array(amount),
                pa.array(time_, pa.timestamp("us")),
            ]
            to.write_table(pa.table(columns, schema=schema), row_group_size=GROUP)
    fresh.rename(path)


def run(command: list[str]) -> tuple[float, float, float, str]:
    """Seconds, seconds of processors, megabytes at most, and what was written."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command}: exit code {process.returncode}")
    return took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said


def analyze_command(path: Path, columns: list[str]) -> list[str]:
    cost = ["--cost", columns[1]] if len(columns) > 1 else []
    command = [sys.executable, "-m", "pyroute", "analyze", str(path), "--key", columns[0], *cost]
    return [*command, "--json", "--quiet"]


def measure(path: Path, runs: int, cases: list[list[str]], scan: str) -> None:
    import pyarrow as pa

    size, threads = path.stat().st_size / 1e9, pa.cpu_count()
    print(
        f"{size:.2f} GB, {threads} threads, pyarrow {pa.__version__}, {scan}, {runs} runs in turns,"
        f" load {os.getloadavg()[0]:.1f}\n"
    )
    print("| columns | scan s | analyze s | ratio (spread) | of the least | of CPU times | MB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for columns in cases:
        scans, analyses = [], []
        for _ in range(runs):
            scans.append(run([sys.executable, "-c", SCANS[scan], str(path), *columns]))
            analyses.append(run(analyze_command(path, columns)))
        rows = {int(one[3]) for one in scans} | {json.loads(one[3])["records"] for one in analyses}
        assert len(rows) == 1, rows
        took = [[one[0] for one in both] for both in (scans, analyses)]
        cpu = [min(one[1] for one in both) for both in (scans, analyses)]
        ratios = sorted(b / a for a, b in zip(*took, strict=True))
        print(
            f"| {', '.join(columns)} | {_spread(took[0])} | {_spread(took[1])}"
            f" | {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            f" | {min(took[1]) / min(took[0]):.2f} | {cpu[1] / cpu[0]:.2f}"
            f" | scan {max(one[2] for one in scans):.0f},"
            f" analyze {max(one[2] for one in analyses):.0f} |",
            flush=True,
        )


def _spread(times: list[float]) -> str:
    return f"{min(times):.2f} to {max(times):.2f}"


def check(path: Path, top: int = 1000) -> None:
    """Every listed key within its bounds, and no hotter key missing."""
    import duckdb

    for columns in CASES:
        key, cost = columns[0], (f"sum({columns[1]})" if len(columns) > 1 else "count(*)")
        exact = dict(
            duckdb.sql(
                f"select {key}, {cost} from '{path}' group by 1 order by 2 desc limit {2 * top}"
            ).fetchall()
        )
        found = json.loads(run([*analyze_command(path, columns), "--top", str(top)])[3])
        listed = {}
        for one in found["hot_keys"]:
            value = one["key"]["v"]
            value = int(value) if one["key"]["t"] == "i" else value
            listed[value] = (one["load"], one["load_at_most"])
        wrong = [
            v for v, (low, high) in listed.items() if v in exact and not low <= exact[v] <= high
        ]
        first = list(exact)[: top // 2]
        missing = [v for v in first if v not in listed]
        bounds = [(high - low) / exact[v] for v, (low, high) in listed.items() if v in first]
        # No key beside the list has more than it says; keys of one count may change places.
        beside = max((n for v, n in exact.items() if v not in listed), default=0)
        hundred = [exact.get(v, 0) for v in list(listed)[:100]]
        print(
            f"{', '.join(columns)}: {len(listed)} keys listed, {len(wrong)} outside their bounds,"
            f" {len(missing)} of duckdb's first {len(first)} missing, widest bound among those"
            f" {max(bounds, default=0.0):.2e} of the count, order of the first 100 equal:"
            f" {hundred == list(exact.values())[:100]}, unlisted at most"
            f" {found['unlisted_at_most']:.0f} (true: {beside:.0f})",
            flush=True,
        )
        if wrong or missing or beside > found["unlisted_at_most"]:
            raise SystemExit("not within the bounds that were printed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["generate", "measure", "check", "remove"])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--case", action="append", help="columns, separated by commas")
    parser.add_argument("--scan", choices=SCANS, default="scanner")
    parser.add_argument("--file", type=Path, default=FILE)
    options = parser.parse_args()
    if options.step == "generate":
        generate(options.file, options.rows)
    elif options.step == "measure":
        cases = [one.split(",") for one in options.case or ()]
        measure(options.file, options.runs, cases or CASES, options.scan)
    elif options.step == "check":
        check(options.file)
    else:
        options.file.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
