"""How much memory does routing ten million strings take in one call?

`python -m bench.sections.memory N SEED` measures it in a process of its own: peak resident memory
during the call, after free memory was given back and the operating system was asked to forget the
peak so far.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

from bench.peers import Scale
from bench.report import Goal, Section

STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
TASKS, TABLE = 40, 50_000


def resident(field: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def measure(n: int, seed: int) -> dict[str, int]:
    """Bytes: peak and lasting growth of one call, its output, its table."""
    import numpy as np

    import pyroute as pr
    from bench import workloads

    values = workloads.strings_of(workloads.zipf_ranks(n, 0.8, 1_000_000, seed))
    tabled = workloads.strings_of(np.arange(TABLE, dtype=np.int64))
    router = pr.Router(TASKS, table=(tabled, np.arange(TABLE, dtype=np.int32) % TASKS))
    router.route(values[:1000])
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    FORGET.write_text("5")
    before = resident("VmRSS")
    out = router.route(values)
    return {
        "growth": resident("VmHWM") - before,
        "output": out.nbytes,
        "table": router.nbytes,
        "input": values.nbytes,
    }


def run(scale: Scale) -> Section:
    section = Section("Memory of one call", (__doc__ or "").splitlines()[0])
    n = scale.pick(10_000_000, 2_000_000)
    name = f"memory: peak of routing {n:,} Arrow strings in one call"
    wanted = "<= 1.2x output + table"
    if scale.peer("pyarrow") is None or not os.access(FORGET, os.W_OK):
        section.say("Not measured: it needs pyarrow and /proc/self/clear_refs.")
        section.goals.append(Goal(name, wanted, "-", None))
        return section
    command = [sys.executable, "-m", "bench.sections.memory", str(n), str(scale.seed)]
    # A fixed threshold: what is freed goes back at once, so nothing of the call can hide in it.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found = json.loads(answer.stdout)
    section.say(
        f"{n:,} strings of 12 bytes, {TASKS} tasks, table of {TABLE:,}; peak resident memory during"
        " the call, less what was resident before it (input and table were), in a process of its"
        " own."
    )
    table = section.table("", "MB")
    for part in ("input", "table", "output", "growth"):
        table.add("peak growth" if part == "growth" else part, f"{found[part] / 1e6:.1f}")
    ratio = found["growth"] / found["output"]
    strict = found["growth"] <= 1.2 * found["output"] + found["table"]
    section.goals.append(Goal(name, wanted, f"{ratio:.3f}x output", strict))
    return section


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
