"""What does routing cost and gain inside Storm?

    python -m bench.storm [--only SECTION ...] [--turns N] [--quick] [--write] [--page]

Each section starts a Storm of its own. --write keeps the raw figures under bench/storm/results/ and
makes RESULTS.md of all that are there; without it a run prints only. --page measures nothing and
makes the page anew. The child alone is measured by `python -m bench.storm.child`.
"""

import argparse
import importlib
import json
import os
import sys
import time
from types import ModuleType

from bench import workloads
from bench.peers import Scale
from bench.spark.page import Raw, section_of, with_goals
from bench.storm import jars, page

SECTIONS = {
    "routers": "local",
    "groupings": "groupings",
    "move": "move",
    "hosts": "hosts",
    "unacked": "unacked",
    "schedule": "schedule",
    "split": "split",
    "hog": "hog",
    "words": "words",
    "stock": "stock",
    "drift": "drift",
    "growth": "growth",
    "hashtags": "hashtags",
}


def module(name: str) -> ModuleType:
    return importlib.import_module(f"bench.storm.{SECTIONS[name]}")


def saved(name: str) -> Raw | None:
    path = page.RAW / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def measure(name: str, scale: Scale) -> Raw:
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


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.storm", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS)
    )
    parser.add_argument("--quick", action="store_true", help="less work, rougher figures")
    parser.add_argument("--write", action="store_true", help="keep the figures, write the page")
    parser.add_argument("--turns", type=int, default=0, help="of every arm of the papers' figures")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--seed", type=int, default=workloads.SEED)
    arguments = parser.parse_args()
    why = jars.missing()
    if why is not None and not arguments.page:
        print(why, file=sys.stderr)
        return 1
    for name in [] if arguments.page else arguments.only or SECTIONS:
        raw = measure(name, Scale(arguments.quick, arguments.seed, turns=arguments.turns))
        if arguments.write:
            page.RAW.mkdir(exist_ok=True)
            (page.RAW / f"{name}.json").write_text(json.dumps(raw, indent=1) + "\n")
        print("\n".join(["", *with_goals(section_of(module(name).show, raw)), ""]), flush=True)
    if arguments.write or arguments.page:
        page.write({name: module(name).show for name in SECTIONS if saved(name)}, saved)
    return 0


if __name__ == "__main__":
    sys.exit(main())
