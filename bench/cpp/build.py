"""Builds the comparison in C++: `python -m bench.cpp.build` prints the program's path.

The headers of Apache DataSketches are those in $DATASKETCHES_CPP (the root of its repository or of
a source distribution), else what `python -m bench.cpp.fetch` fetched. Both sides are compiled
with the same flags: those of the wheel.
"""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.cpp import fetch

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "bench"
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "-ffp-contract=off", f"-I{ROOT / 'csrc'}"]


def headers() -> Path | None:
    """Where the peer's headers lie, or None."""
    place = Path(os.environ.get("DATASKETCHES_CPP") or fetch.CACHE)
    return place if (place / "fi" / "include" / "frequent_items_sketch.hpp").is_file() else None


def peer_version(place: Path) -> str:
    """As its sources say, else the name of their folder."""
    for name in ("PKG-INFO", "version.cfg"):
        if (place / name).is_file():
            for line in (place / name).read_text().splitlines():
                if line.startswith("Version: "):
                    return line.removeprefix("Version: ")
    return place.name.removeprefix("datasketches-")


def compiler() -> str:
    return os.environ.get("CXX") or shutil.which("c++") or "g++"


def shared_library(name: str) -> Path:
    """A source of this folder that stands alone, to be called in the process that measures."""
    OUT.mkdir(parents=True, exist_ok=True)
    source, target = Path(__file__).with_name(name), OUT / f"{Path(name).stem}.so"
    command = [compiler(), *FLAGS, "-shared", "-fPIC", str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


def build(place: Path) -> Path:
    """The program, compiled again where a source is newer."""
    OUT.mkdir(parents=True, exist_ok=True)
    stamp = max(path.stat().st_mtime_ns for path in (ROOT / "csrc").rglob("*.hpp"))
    include = [f"-isystem{place / name}" for name in ("fi/include", "common/include")]
    sources = [
        *sorted((ROOT / "csrc").rglob("*.cpp")),
        ROOT / "bench" / "cpp" / "heavy_hitters.cpp",
    ]

    def compiled(source: Path) -> Path:
        target = OUT / (str(source.relative_to(ROOT)).replace(os.sep, "_") + ".o")
        newest = max(stamp, source.stat().st_mtime_ns)
        if not target.exists() or target.stat().st_mtime_ns < newest:
            command = [compiler(), *FLAGS, *include, "-c", str(source), "-o", str(target)]
            subprocess.run(command, check=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    program = OUT / "heavy_hitters"
    subprocess.run([compiler(), *map(str, objects), "-o", str(program)], check=True)
    return program


if __name__ == "__main__":
    print(build(headers() or fetch.fetch()))
