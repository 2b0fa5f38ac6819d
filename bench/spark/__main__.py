"""What does routing cost and gain inside Spark?

    python -m bench.spark [--only SECTION ...] [--quick] [--write] [--page]

Each section runs in a process of its own, with a JVM of its own. --write keeps the raw figures
under bench/spark/results/ and makes RESULTS.md of all that are there; without it a run prints only.
--page measures nothing and makes the page anew. Real streams are looked for in the folder
PYROUTE_DATA, else in ../shared/data beside the repository.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

from bench import workloads
from bench.peers import Scale
from bench.spark import harness, page

SECTIONS = {
    "route": "route",
    "skewed": "skewed",
    "joins": "joins",
    "split_joins": "split_joins",
    "schedule": "schedule",
    "tpch": "tpch",
    "wordcount": "wordcount",
    "hashtags": "hashtags",
    "stock": "stock",
    "urls": "urls",
    "words_stream": "words_stream",
    "stream": "stream",
    "tpch_stream": "tpch_stream",
    "colocated": "colocated",
}


def module(name: str) -> ModuleType:
    return importlib.import_module(f"bench.spark.{SECTIONS[name]}")


def measure(name: str, scale: Scale) -> page.Raw:
    """One section, here."""
    started = time.monotonic()
    section = module(name)
    result = section.measure(scale)
    return {
        "title": section.TITLE,
        "at": page.surroundings(scale.quick, scale.seed),
        "minutes": (time.monotonic() - started) / 60,
        "busy": ", ".join(f"{figure:.1f}" for figure in os.getloadavg()),
        "result": result,
    }


def apart(name: str, arguments: argparse.Namespace) -> page.Raw | None:
    """One section, in another process; None where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "raw.json"
        command = [sys.executable, "-m", "bench.spark", "--only", name]
        command += ["--into", str(output), "--seed", str(arguments.seed)]
        command += ["--quick"] * arguments.quick
        if arguments.repetitions:
            command += ["--repetitions", str(arguments.repetitions)]
        code = subprocess.run(command, cwd=page.HERE.parent.parent, check=False).returncode
        if code or not output.exists():
            print(f"{name}: failed with {code}", flush=True)
            return None
        raw: page.Raw = json.loads(output.read_text())
        return raw


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS)
    )
    parser.add_argument("--quick", action="store_true", help="less work, rougher figures")
    parser.add_argument("--write", action="store_true", help="keep the figures, write the page")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--seed", type=int, default=workloads.SEED)
    parser.add_argument("--repetitions", type=int, help="of each arm; a section's own otherwise")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.into is not None:
        scale = Scale(arguments.quick, arguments.seed)
        harness.REPETITIONS = arguments.repetitions
        arguments.into.write_text(json.dumps(measure(arguments.only[0], scale)))
        return 0
    failed = 0
    for name in [] if arguments.page else arguments.only or SECTIONS:
        raw = apart(name, arguments)
        if raw is None:
            failed += 1
            continue
        if arguments.write and "absent" not in raw["result"]:  # nothing is no reason to forget
            page.save(name, raw)
            page.write({each: module(each).show for each in SECTIONS})
        section = page.section_of(module(name).show, raw)
        print("\n".join(["", *page.with_goals(section), ""]), flush=True)
    if arguments.page:
        page.write({each: module(each).show for each in SECTIONS})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
