"""Checks a wheel: ``python tests/wheel.py FILE``. Tags, types, data, and what it links to."""

import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

NEEDED = [
    "pyroute/py.typed",
    "pyroute/_core.pyi",
    "pyroute/_hotpath.pyi",
    "pyroute/report/page.js",
    "pyroute/report/page.css",
    "pyroute/report/live.js",
    "spark_udf/py.typed",
]
ALLOWED = ("pyroute/", "spark_udf/", "pyroute_core-")


def problems(path):
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    if not path.name.endswith(f"-{tag}-{tag}-{platform}.whl"):
        yield f"expected the tags {tag}-{tag}-{platform}, got {path.name}"
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = wheel.read(info).decode()
        entries = wheel.read(info.replace("METADATA", "entry_points.txt")).decode()
    for name in NEEDED:
        if name not in names:
            yield f"{name} is missing"
    for name in names:
        if not name.startswith(ALLOWED):
            yield f"{name} should not be there"
    yield from stubs(names)
    for text in ("Name: pyroute-core\n", "Requires-Python: >=3.11\n", "Requires-Dist: numpy>=2"):
        if text not in metadata:
            yield f"the metadata does not say {text.strip()!r}"
    for text in ("pyroute = pyroute.cli:main", "serve = pyroute.serve.command:serve"):
        if text not in entries:
            yield f"the entry point {text!r} is missing"
    if not any("/licenses/LICENSE" in name for name in names):
        yield "the licence is missing"
    yield from linked(path)


def stubs(names):
    """Every extension module has its types."""
    modules = {name.split(".")[0] for name in names if name.endswith((".so", ".pyd"))}
    if not modules:
        yield "no extension module is in it"
    for module in modules:
        if f"{module}.pyi" not in names:
            yield f"{module} has no stub"


def linked(path):
    """On Linux: it needs nothing but what every system has, by auditwheel."""
    if not sys.platform.startswith("linux"):
        return
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", str(path)], capture_output=True, text=True
    )
    text = " ".join(done.stdout.split())
    if done.returncode or 'consistent with the following platform tag: "manylinux' not in text:
        yield f"auditwheel: {text or done.stderr.strip()}"


def main():
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found) or f"{Path(sys.argv[1]).name}: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
