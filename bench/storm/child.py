"""How many tuples does a child route in a second of its own CPU time?

A stream as Storm 2.8.3 writes it goes through a pipe to the child, and its answers through a pipe
back; feeding and draining are threads of one process. Every child emits each tuple directly to a
task and acks it. pyroute's unescapes and hashes the key, routes it through a table of 3,000 keys
over a ring, and counts it in a SpaceSaving of 1,000; the peers look the key up in a dictionary and
count nothing. "Pipes alone" moves as many bytes and does nothing else. What is measured is CPU time
(user and system) of the child, from the end of its set-up to its end; repetitions are interleaved.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import pyroute as pr
from bench.report import Goal, Section
from bench.timing import Ratio, Timing

HERE = Path(__file__).parent
RESULTS = HERE / "child.json"
END = b"\nend\n"
TASKS = list(range(5, 13))
KEYS = 20_000
DISTINCT = 20_000
TABLE = 3_000
SIZES = (106, 1024)


@dataclass(frozen=True)
class Child:
    """A program that answers, and how many tuples it gets by size."""

    name: str
    module: str
    tuples: dict[int, int]


CHILDREN = [
    Child("pyroute", "pyroute_child", {106: 6_000_000, 1024: 1_500_000}),
    Child("msgspec, Raw", "msgspec_child", {106: 1_000_000, 1024: 300_000}),
    Child("like storm.py", "lines_child", {106: 60_000, 1024: 20_000}),
    Child("pystorm", "pystorm_child", {106: 40_000, 1024: 20_000}),
    Child("pipes alone", "pipes_child", {106: 6_000_000, 1024: 1_500_000}),
]


def stream(size, seed=1):
    """Tuples of `size` bytes with their end, keys by a Zipf law of exponent 1."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, KEYS + 1)
    ranks = rng.choice(KEYS, DISTINCT, p=weights / weights.sum())
    ids = rng.integers(-(2**63), 2**63 - 1, DISTINCT)
    messages = []
    shell = '{"comp":"spout","tuple":["user%06d",%d,"%s"],"task":5,"stream":"default","id":"%d"}'
    for number, (rank, identifier) in enumerate(zip(ranks.tolist(), ids.tolist(), strict=True)):
        bare = len(shell % (rank, 10 + number % 90, "", identifier)) + len(END)
        padding = "x" * (size - bare)
        messages.append((shell % (rank, 10 + number % 90, padding, identifier)).encode())
    return messages


def setup(folder):
    tasks = {str(task): "count" for task in TASKS} | {"4": "router", "3": "spout"}
    context = {
        "task->component": tasks,
        "taskid": 4,
        "componentid": "router",
        "source->stream->fields": {"spout": {"default": ["key", "number", "padding"]}},
        "stream->target->grouping": {"default": {"count": {"type": "DIRECT"}}},
    }
    conf = {"topology.name": "bench", "pystorm.log.level": "warning"}
    return json.dumps({"pidDir": str(folder), "context": context, "conf": conf}).encode() + END


class Plan:
    """The table, for every child in the form it takes."""

    def __init__(self, folder):
        keys = [f"user{i:06d}" for i in range(TABLE)]
        self.router = pr.Router(len(TASKS), {key: i % len(TASKS) for i, key in enumerate(keys)})
        self.path = Path(folder) / "router.json"
        self.path.write_text(self.router.to_json())
        self.peers = Path(folder) / "table.json"
        self.peers.write_text(json.dumps({k: TASKS[i % len(TASKS)] for i, k in enumerate(keys)}))

    def check(self, messages, output):
        """That the first answers are what they have to be."""
        answers = [json.loads(line) for line in output.split(END)[:-1]]
        emits = [a for a in answers if a.get("command") == "emit"]
        acks = [a for a in answers if a.get("command") == "ack"]
        assert len(emits) > 100, output[:200]
        for message, emit, ack in zip(messages, emits, acks, strict=False):
            record = json.loads(message)
            assert emit["tuple"] == record["tuple"]
            assert emit["anchors"] == [record["id"]] == [ack["id"]]
            assert emit["task"] % 2**32 in TASKS

    def check_routes(self, output):
        emits = [json.loads(line) for line in output.split(END)[:-1] if b'"emit"' in line]
        routed = self.router.route([emit["tuple"][0] for emit in emits]).tolist()
        assert [emit["task"] - 2**32 for emit in emits] == [TASKS[task] for task in routed]


def run(child, plan, messages, count):
    """CPU seconds per tuple of one run."""
    block = b"".join(message + END for message in messages)
    argument = plan.path if child.module == "pyroute_child" else plan.peers
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", f"bench.storm.children.{child.module}", argument],
            cwd=HERE.parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        start = setup(folder)

        def feed():
            view = memoryview(start)
            rounds, rest = divmod(count, len(messages))
            blocks = [block] * rounds + [b"".join(m + END for m in messages[:rest])]
            with contextlib.suppress(BrokenPipeError):
                for data in [view, *blocks]:
                    view = memoryview(data)
                    while view:
                        view = view[os.write(process.stdin.fileno(), view) :]
            process.stdin.close()

        first, total = bytearray(), 0
        feeder = threading.Thread(target=feed)
        feeder.start()
        while data := os.read(process.stdout.fileno(), 1 << 20):
            if len(first) < 1 << 20:
                first += data
            total += len(data)
        feeder.join()
        process.wait()
        process.stdout.close()
        errors.seek(0)
        said = errors.read().decode()
    lines = [line.split() for line in said.splitlines() if line.startswith("bench: ")]
    assert lines, said
    seconds, records = float(lines[-1][1]), int(lines[-1][2])
    assert records == count, (child.name, records, count, said[-500:])
    whole = bytes(first[: first.rindex(END) + len(END)])
    if child.module != "pipes_child":
        plan.check(messages, whole)
    if child.module == "pyroute_child":
        plan.check_routes(whole)
    return seconds / count, float(lines[-1][3]) / seconds, total / count


def measure(repeat, scale, names, sizes):
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(folder)
        for size in sizes:
            messages = stream(size)
            for turn in range(repeat):
                for child in CHILDREN:
                    if names and child.name not in names:
                        continue
                    count = max(2_000, int(child.tuples[size] * scale))
                    seconds, system, written = run(child, plan, messages, count)
                    row = found.setdefault((child.name, size), [])
                    row.append(seconds * 1e9)
                    print(
                        f"{turn} {child.name:<15}{size:>6} B {seconds * 1e9:10.1f} ns"
                        f" {1 / seconds:12,.0f} /CPU-s, {system:.0%} of it the kernel's,"
                        f" {written:.0f} B out",
                        flush=True,
                    )
    return found


def save(found):
    data = {
        "command": "python -m bench.storm.child",
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
            "load": os.getloadavg()[0],
        },
        "ns_per_tuple": [
            {"child": name, "size": size, "each": [round(x, 1) for x in each]}
            for (name, size), each in found.items()
        ],
    }
    RESULTS.write_text(json.dumps(data, indent=1) + "\n")


def _processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def page(data=None):
    """The section of RESULTS.md, from the file of results."""
    data = json.loads(RESULTS.read_text()) if data is None else data
    section = Section("Child alone", " ".join(__doc__.split("\n\n")[1].split()))
    timings = {
        (row["child"], row["size"]): Timing(row["child"], row["each"])
        for row in data["ns_per_tuple"]
    }
    table = section.table(
        "child", "bytes", "tuples per CPU-s", "median", "spread", "pyroute is", "by medians"
    )
    for (name, size), timing in timings.items():
        ours = timings["pyroute", size]
        table.add(
            name,
            str(size),
            f"{1e9 / timing.best:,.0f}",
            f"{1e9 / statistics.median(timing.each):,.0f}",
            f"{timing.spread:.0%}",
            "" if name == "pyroute" else f"{Ratio(timing, ours).value:.1f}x",
            ""
            if name == "pyroute"
            else f"{statistics.median(timing.each) / statistics.median(ours.each):.1f}x",
        )
    for peer, wanted in (("pystorm", 150), ("msgspec, Raw", 8)):
        if ("pyroute", 106) not in timings or (peer, 106) not in timings:
            continue
        value = Ratio(timings[peer, 106], timings["pyroute", 106]).value
        section.goals.append(
            Goal(f"{peer}, 106 B", f">= {wanted}x", f"{value:.1f}x", value >= wanted)
        )
    floor, ours = timings.get(("pipes alone", 106)), timings.get(("pyroute", 106))
    if floor and ours:
        section.say(
            f"Of {ours.best:.0f} ns for a tuple of 106 B, moving its bytes through the two pipes"
            f" takes {floor.best:.0f}. The rest is reading (what does not change is compared with"
            " the message before, the tuple walked 32 bytes at a time), hashing, the table, the"
            " sketch, and copying into the answers. With 1 KB the pipes are most of it: the kernel"
            " allocates, copies and frees pages for every byte."
        )
    machine = data["machine"]
    section.say(
        f"`{data['command']}`, {machine['processor']}, {machine['cores']} cores,"
        f" {machine['system']}, Python {machine['python']}, load {machine['load']:.1f}."
        " Tuples per CPU-s: least of the repetitions; spread: the slowest against it."
    )
    if "note" in data:
        section.say(data["note"])
    return section


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the tuples")
    parser.add_argument("--size", type=int, action="append", choices=SIZES)
    parser.add_argument("--child", action="append", choices=[c.name for c in CHILDREN])
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    found = measure(options.repeat, options.scale, options.child, options.size or SIZES)
    if options.save:
        save(found)
        section = page()
        print("\n".join(section.lines()))
        for goal in section.goals:
            print(f"{goal.name}: wanted {goal.wanted}, measured {goal.measured}: {goal.verdict}")


if __name__ == "__main__":
    main()
