"""Does a routed word count stay balanced, exact under kill -9, and cheap (`su.RoutedStream`)?"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers import Scale
from bench.report import Goal, Section
from bench.spark import harness, keyed, words
from bench.spark.page import Raw, Spread, at_most, cpu, wall

TITLE = "words_stream: word count with state that moves, killed and restarted"
KEYS = 1_000_000
HASH, ROUTED = "hash, no planning", "routed"


def measure(scale: Scale) -> Raw:
    source = harness.data("congress_words")
    if source is None:
        return keyed.absent("congress_words")
    with tempfile.TemporaryDirectory(prefix="pyroute-stream-") as name:
        folder = Path(name)
        days = words.write_days(source, folder / "in", scale.pick(56, 8))
        raw: Raw = {"days": days, **killed(scale, folder, days)}
        spark = harness.session("local[2]", {"spark.sql.shuffle.partitions": "2"})
        raw |= overhead(scale, spark, folder)
        raw["written"] = written(scale, spark, folder)
        return raw


# -- exact under faults


def killed(scale: Scale, folder: Path, days: int) -> Raw:
    """Drivers that are killed at random times until one ends by itself.

    Up to 0.3 s after the first or second batch of theirs was committed, or in their first ten
    seconds and before the first: as often on a fast machine as on a slow one.
    """
    wanted = scale.pick(20, 2)
    random = np.random.default_rng(scale.seed)
    command = [sys.executable, "-m", "bench.spark.words", str(folder)]
    kills, ended, reached = 0, False, []
    while not ended:
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=harness.ROOT, stdout=log, stderr=log, start_new_session=True
            )
            if kills == wanted:
                process.wait(1800.0)
            else:
                more = int(random.integers(0, 3))
                goal = committed(folder / "state") + max(1, more)
                wait(process, folder / "state", goal, 600.0 if more else random.uniform(0, 10))
                if more and process.poll() is None:
                    time.sleep(random.uniform(0.0, 0.3))
            code = process.poll()
            if code is None:
                kill(process, alone=random.random() < 0.5)
                kills += 1
            elif code:
                text = (folder / "log").read_text()[-2000:]
                raise RuntimeError(f"driver: expected it to end well, got {code}: {text}")
            ended = code == 0
        reached.append(committed(folder / "state"))
        harness.progress(f"kill {kills}: {reached[-1]} batches committed of {days} days")
    batches = words.days_of_batches(folder / "in", folder / "state", days)
    return {
        "kills": kills,
        "reached": reached,
        "exact_state": words.counts(folder / "state").equals(words.exact(folder / "in")),
        "exact_outputs": batches is not None,
        "longer": sum(many > 1 for many in batches or ()),
    }


def wait(process: "subprocess.Popen[bytes]", state: Path, goal: int, seconds: float) -> None:
    """Until so many batches are committed, or the process ends, or the time is over."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and committed(state) < goal and time.monotonic() < deadline:
        time.sleep(0.01)


def kill(process: "subprocess.Popen[bytes]", *, alone: bool) -> None:
    """SIGKILL to the driver alone, whose JVM then finds out, or to all of its processes."""
    if alone:
        process.kill()
        process.wait()
        time.sleep(2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def committed(state: Path) -> int:
    names = [path.stem for path in (state / "manifests").glob("*.json")]
    return max(map(int, names), default=-1) + 1


# -- overhead


def overhead(scale: Scale, spark: Any, folder: Path) -> Raw:
    """The same query routed, and with hashing and no planning."""
    kept: dict[str, pa.Table] = {}
    turn = 0

    def arm(name: str, **options: Any) -> harness.Arm:
        def run() -> pa.Table:
            nonlocal turn
            turn += 1
            state = folder / f"run-{turn}"
            words.run(spark, folder / "in", state, **options)
            kept[name] = words.metrics(state / "state")
            answer = words.counts(state / "state")
            shutil.rmtree(state)
            return answer

        return harness.Arm(name, run)

    arms = [arm(HASH, balanced=False), arm(ROUTED)]
    found = harness.interleave(spark, arms, scale.pick(5, 1), say="words", patience=30)
    routed = kept[ROUTED]
    return {
        "arms": found,
        "imbalance": {n: (1 + words.column(t, "imbalance")).tolist() for n, t in kept.items()},
        "keys_moved": words.column(routed, "keys_moved").tolist(),
        "plan_seconds": words.column(routed, "plan_seconds").tolist(),
        "state_rows": int(words.column(routed, "state_rows")[-1]),
    }


# -- what a small batch writes


def written(scale: Scale, spark: Any, folder: Path) -> Raw:
    """A state of many keys, and batches that touch a hundredth of them."""
    keys, batches = scale.pick(KEYS, KEYS // 20), scale.pick(72, 8)
    random = np.random.default_rng(scale.seed)
    inputs = folder / "many"
    inputs.mkdir()
    for batch in range(batches + 1):
        chosen = np.arange(keys) if not batch else random.choice(keys, keys // 100, replace=False)
        names = pa.array(np.char.add("key-", chosen.astype(str)))
        path = inputs / f"{batch:04d}.parquet"
        pq.write_table(pa.table({"ts": np.zeros(len(chosen), np.int64), "word": names}), path)
        os.utime(path, (1e9 + batch, 1e9 + batch))
    words.run(spark, inputs, folder / "many-state")
    table = words.metrics(folder / "many-state" / "state")
    base = words.column(table, "state_bytes")[0]
    state, control = words.column(table, "written_bytes"), words.column(table, "control_bytes")
    return {
        "keys": keys,
        "state_bytes": base,
        "shares": ((state + control)[1:] / base).tolist(),
        "control": (control[1:] / base).tolist(),
    }


# -- page


def show(raw: Raw) -> Section:
    section = Section(TITLE, __doc__)
    section.say(
        f"congress_words, {raw['days']} days, a batch a day, {words.TASKS} tasks on local[2];"
        " state: the count of every word; outputs: the running counts of the day's words."
    )
    section.say(
        f"{raw['kills']} times the driver was killed with SIGKILL at a random time, in about half"
        " of the cases together with its JVM and Python workers; batches committed when it died:"
        f" {', '.join(map(str, raw['reached']))}. State equal to counting at once:"
        f" {raw['exact_state']}; every batch's published outputs exact: {raw['exact_outputs']};"
        f" batches of more than one day, as Spark makes them after some kills:"
        f" {raw.get('longer', 0)}."
    )
    after = {name: values[1:] for name, values in raw["imbalance"].items()}
    table = section.table("arm", "wall s", "CPU s", "mean max/mean after day 0", "greatest")
    for name, values in after.items():
        times = (wall(raw["arms"], name).text(), cpu(raw["arms"], name).text(".1f"))
        table.add(name, *times, f"{np.mean(values):.4f}", f"{max(values):.3f}")
    section.say(
        f"{raw['state_rows']:,} words at the end; {np.mean(raw['keys_moved'][1:]):.1f} keys moved a"
        f" day; a plan took {1e3 * np.median(raw['plan_seconds']):.1f} ms (median)."
    )
    shares = raw["written"]["shares"]
    section.say(
        f"State of {raw['written']['keys']:,} keys ({raw['written']['state_bytes'] / 1e6:.0f} MB),"
        f" {len(shares)} batches that touch 1 % of them: bytes written (state, statistics,"
        f" routers) as a share of the state: mean {np.mean(shares):.2%}, median"
        f" {np.median(shares):.2%}, greatest {max(shares):.1%} (a merge of levels); of these"
        f" statistics and routers {np.mean(raw['written']['control']):.2%}."
    )
    ratio = wall(raw["arms"], ROUTED).over(wall(raw["arms"], HASH))
    work = cpu(raw["arms"], ROUTED).over(cpu(raw["arms"], HASH))
    exact = raw["exact_state"] and raw["exact_outputs"]
    faults = "state and outputs exact after random kill -9 faults"
    measured = f"{raw['kills']}, {'exact' if exact else 'NOT exact'}"
    mean, middle = Spread([float(np.mean(shares))]), Spread([float(np.median(shares))])
    level = Spread([float(np.mean(after[ROUTED]))])
    section.goals += [
        Goal(faults, ">= 20 faults", measured, bool(exact and raw["kills"] >= 20)),
        at_most("mean max/mean after the first batch", 1.08, level, ".4f"),
        at_most("wall to hash without planning", 1.10, ratio),
        at_most("CPU to hash without planning", 1.10, work),
        at_most("mean share of the state written", 0.05, mean, ".4f"),
        at_most("median share of the state written", 0.05, middle, ".4f"),
    ]
    return section
