"""Runs every check, or the ones named: ``python tests/run.py [PART ...]``.

The standard library alone: this file makes the environment that everything else needs.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PYTHON = ROOT / ".venv" / "bin" / "python"
CXX = shlex.split(os.environ.get("CXX", "c++"))
SANITIZERS = "address,undefined"
# Tests that only compute share the processors; whoever is free takes the next.
SPREAD = ["--numprocesses=logical", "--dist=worksteal"]
# Parts of their own, for what they need or how long they take; kernels are tested elsewhere.
APART = [f"--ignore=tests/{name}" for name in ("browser", "control", "protocol", "spark", "storm")]


class MissingError(Exception):
    """A component of the machine is absent: skip, or fail where everything is required."""


@dataclass
class Result:
    """Outcome of one part; a command that is not pytest counts as one test."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""


@dataclass
class Run:
    """What a part uses to run commands, and where they are counted."""

    name: str
    result: Result = field(default_factory=Result)
    runs: int = 0

    def command(self, *arguments: object, cwd: Path = ROOT, **environment: str) -> bool:
        """Run one command and count it as one test."""
        ok = self._call(arguments, cwd, environment) == 0
        self.count(ok)
        return ok

    def pytest(
        self,
        *arguments: object,
        python: Path = PYTHON,
        cwd: Path = ROOT,
        may_be_empty: bool = False,
        **environment: str,
    ) -> bool:
        """Run pytest and add up its own counts."""
        self.runs += 1
        report = BUILD / "reports" / f"{self.name}-{self.runs}.xml"
        report.parent.mkdir(parents=True, exist_ok=True)
        report.unlink(missing_ok=True)
        code = self._call(
            [python, "-m", "pytest", "--quiet", f"--junit-xml={report}", *arguments],
            cwd,
            environment,
        )
        failed = 0
        if report.exists():
            for suite in ET.parse(report).getroot().iter("testsuite"):
                total, failures, errors, skipped = (
                    int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")
                )
                failed += failures + errors
                self.result.passed += max(0, total - failures - errors - skipped)
                self.result.skipped += skipped
        ok = code == 0 or (may_be_empty and code == 5)
        if not ok and not failed:  # a crash, a usage error, or no tests where there must be some
            failed = 1
        self.result.failed += failed
        return ok

    def count(self, ok: bool) -> None:
        """Count one check that was made here."""
        self.result.passed += ok
        self.result.failed += not ok

    @staticmethod
    def _call(arguments: object, cwd: Path, environment: dict[str, str]) -> int:
        words = [str(argument) for argument in arguments]
        shown = [f"{k}={v}" for k, v in environment.items()] + words
        print("$", " ".join(shown).replace(f"{ROOT}/", ""), flush=True)
        return subprocess.run(words, cwd=cwd, env={**os.environ, **environment}).returncode


def build(run: Run) -> None:
    """The environment and the extension modules."""
    run.command("make", "--no-print-directory", "build", f"PYTHON={sys.executable}")


def csrc(run: Run) -> None:
    """Kernels alone: no headers of Python on the path, every warning an error."""
    files = sorted(p for p in (ROOT / "csrc").rglob("*") if p.suffix in (".cpp", ".hpp"))
    flags = ["-std=c++20", "-ffp-contract=off", "-fsyntax-only", "-Icsrc", "-x", "c++"]
    flags += ["-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Werror"]

    def check(file: Path) -> subprocess.CompletedProcess[str]:
        # Included, not compiled itself: a header is no main file. Each must stand alone.
        text = f'#include "{file.relative_to(ROOT / "csrc").as_posix()}"\n'
        command = [*CXX, *flags, "-"]
        return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True)

    print("$", " ".join([*CXX, *flags, "FILE"]), flush=True)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for file, done in zip(files, pool.map(check, files), strict=True):
            if done.returncode:
                print(f"{file.relative_to(ROOT)}:\n{done.stderr}", flush=True)
            run.count(done.returncode == 0)
    if not files:
        run.count(False)
    # A compiler that takes a function which only prefetches for one without effect drops them all,
    # silently, and large sketches run at half their speed.
    for name in ("csrc/stats/filtered_counters.cpp", "csrc/table/routing_table.cpp"):
        command = [*CXX, "-std=c++20", "-O3", "-ffp-contract=off", "-Icsrc", "-S", name, "-o", "-"]
        print("$", " ".join(command), "| grep prefetch", flush=True)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        run.count(re.search(r"\bprefetch|\bprfm\b", done.stdout) is not None)


def lint(run: Run) -> None:
    """Rules, format, and the direction of imports."""
    run.command(PYTHON, "-m", "ruff", "check", "--quiet", ".")
    run.command(PYTHON, "-m", "ruff", "format", "--quiet", "--diff", ".")
    run.command(PYTHON.with_name("lint-imports"), "--no-logo")
    sources = [p for folder in ("csrc", "bindings") for p in (ROOT / folder).rglob("*.[ch]pp")]
    names = sorted(str(path.relative_to(ROOT)) for path in sources)
    run.command(PYTHON.with_name("clang-format"), "--dry-run", "--Werror", *names)


def types(run: Run) -> None:
    """Strict types, and the stubs against the compiled modules."""
    run.command(PYTHON, "-m", "mypy", "--strict")
    stubtest = [str(PYTHON), "-m", "mypy.stubtest", "pyroute._core", *CYTHON, "--concise"]
    stubtest += ["--mypy-config-file", "pyproject.toml"]  # which says what has no types
    print("$", " ".join(stubtest).replace(f"{ROOT}/", ""), flush=True)
    done = subprocess.run(stubtest, cwd=ROOT, capture_output=True, text=True)
    lines = (done.stdout + done.stderr).splitlines()
    wrong = [line for line in lines if not is_of_compiler(line)]
    if done.returncode and wrong:
        print("\n".join(wrong), flush=True)
    run.count(not (done.returncode and wrong))


CYTHON = ("pyroute._hotpath", "pyroute._storm_frames", "pyroute._storm_loop")


def is_of_compiler(line: str) -> bool:
    """Whether a difference of a stub from its module is made by what compiles the module."""
    if not line.startswith(CYTHON):
        # pybind11 gives every class a metaclass of its own: the one difference that is allowed.
        return line.endswith("metaclass differs")
    # Cython's classes have no signature to compare, and names of its own.
    return line.endswith(
        (
            "You may need to write stubs for __new__ instead of __init__.",
            "is a disjoint base at runtime, but isn't marked with @disjoint_base in the stub",
            "__reduce_cython__ is not present in stub",
            "__setstate_cython__ is not present in stub",
            "__test__ is not present in stub",
        )
    )


def unit(run: Run) -> None:
    """All tests; those of the kernels also on the portable path; the examples of the docstrings."""
    run.pytest(*SPREAD, "tests", *APART)
    run.pytest(*SPREAD, "-m", "kernel", "tests", *APART, PYROUTE_SIMD="portable")
    run.pytest("--doctest-modules", "--doctest-ignore-import-errors", "pyroute", may_be_empty=True)


def protocol(run: Run) -> None:
    """Reconfiguration: schedules with faults, mutants, all interleavings, kill -9 over TCP."""
    run.pytest("tests/protocol")


def control(run: Run) -> None:
    """The config store, on a real directory and a real ZooKeeper, and what steers pipelines."""
    run.pytest("tests/control")


def storm(run: Run) -> None:
    """Bolts over pipes, and on a real Storm: the jar, a LocalCluster, a cluster of processes."""
    run.pytest("tests/storm")


def spark(run: Run) -> None:
    """Everything that needs a real Spark."""
    run.pytest("tests/spark", may_be_empty=os.environ.get("PYROUTE_REQUIRE") != "all")


def browser(run: Run) -> None:
    """The report and the live page in a real Chromium."""
    run.pytest("tests/browser", may_be_empty=os.environ.get("PYROUTE_REQUIRE") != "all")


def docs(run: Run) -> None:
    """The pages of docs/ build, with every link and name in them."""
    mkdocs = PYTHON.with_name("mkdocs")
    if not mkdocs.exists():
        raise MissingError("mkdocs: pip install 'pyroute-core[docs]'")
    site = BUILD / "site"
    command = [mkdocs, "build", "--strict", "--quiet", "--site-dir", site]
    run.command(*command, NO_MKDOCS_2_WARNING="1")


def sanitize(run: Run) -> None:
    """Tests of the kernels under the address and undefined-behaviour sanitizers."""
    # Both: without libstdc++ the first C++ exception aborts.
    libraries = [shared_library("libasan.so"), shared_library("libstdc++.so")]
    base, lib = BUILD / "sanitize", BUILD / "sanitize" / "lib"
    shutil.rmtree(lib, ignore_errors=True)
    for old in base.glob("log.*"):
        old.unlink()
    options = ["--quiet", "build", f"--build-base={base}", f"--build-lib={lib}"]
    if not run.command(PYTHON, "setup.py", *options, PYROUTE_SANITIZE=SANITIZERS):
        return
    # The tests move next to the sanitized package: from the root they would import the other one.
    shutil.copytree(ROOT / "tests", lib / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", lib)
    run.pytest(
        *(*SPREAD, "-m", "kernel", "-p", "no:cacheprovider", "tests", *APART),
        cwd=lib,
        PYTHONPATH=str(lib),
        PYTHONMALLOC="malloc",
        PYROUTE_SANITIZE=SANITIZERS,
        LD_PRELOAD=" ".join(libraries),
        ASAN_OPTIONS=f"detect_leaks=0:log_path='{base / 'log'}'",
        UBSAN_OPTIONS=f"print_stacktrace=1:log_path='{base / 'log'}'",
    )
    for report in sorted(base.glob("log.*")):
        print(report.read_text(), flush=True)


def shared_library(name: str) -> str:
    """Where the compiler keeps a library that can be preloaded."""
    command = [*CXX, f"-print-file-name={name}"]
    path = Path(subprocess.run(command, capture_output=True, text=True).stdout.strip())
    if sys.platform == "linux" and path.is_absolute() and path.exists():
        start = path.read_bytes()[:1000]
        if start.startswith(b"\x7fELF"):
            return str(path)
        script = re.search(rb"/[^\s()]+\.so[.0-9]*", start)  # a linker script names the library
        if script:
            return script.group().decode()
    raise MissingError(f"{name} of g++")


def sdist(run: Run) -> None:
    """The source distribution makes a whole wheel, which works where there is no repository."""
    with tempfile.TemporaryDirectory(prefix="pyroute-sdist-") as name:
        folder = Path(name).resolve()
        source, away, venv = folder / "source", folder / "away", folder / "venv"
        # A copy without *.egg-info, whose old list of files would hide that one is missing.
        unwanted = (".*", "build", "dist", "*.egg-info", "*.so", "__pycache__", "target")
        shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*unwanted))
        options = ["--quiet", "--sdist", "--no-isolation", "--outdir", folder]
        if not run.command(PYTHON, "-m", "build", *options, source):
            return
        python, options = venv / "bin" / "python", ["--quiet", "--disable-pip-version-check"]
        pip, wheels = [python, "-m", "pip", *options], folder / "wheels"
        if not (
            run.command(sys.executable, "-m", "venv", venv)
            and run.command(*pip, "wheel", "--no-deps", "-w", wheels, *folder.glob("*.tar.gz"))
            and run.command(PYTHON, "tests/wheel.py", *wheels.glob("*.whl"))
            and run.command(*pip, "install", "pytest", *wheels.glob("*.whl"))
        ):
            return
        (away / "tests").mkdir(parents=True)
        shutil.copy(ROOT / "tests" / "test_minimal.py", away / "tests")
        run.pytest("tests/test_minimal.py", python=python, cwd=away, PYTHONPATH="")


@dataclass(frozen=True)
class Part:
    """One named step, with the seconds it may take."""

    function: Callable[[Run], None]
    budget: int

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def help(self) -> str:
        return (self.function.__doc__ or "").splitlines()[0]


PARTS = [
    Part(build, 180),
    Part(csrc, 60),
    Part(lint, 30),
    Part(types, 90),
    Part(unit, 240),
    Part(protocol, 240),
    Part(control, 240),
    Part(storm, 600),
    Part(spark, 600),
    Part(browser, 90),
    Part(docs, 60),
    Part(sanitize, 240),
    Part(sdist, 240),
]


def execute(part: Part) -> tuple[Result, float]:
    """Run one part; nothing it raises stops the others."""
    print(f"\n=== {part.name}: {part.help}", flush=True)
    run, start = Run(part.name), time.monotonic()
    try:
        part.function(run)
    except MissingError as missing:
        required = os.environ.get("PYROUTE_REQUIRE") == "all"
        run.result.failed += required
        run.result.skipped += not required
        run.result.note = f"missing: {missing}"
        print(run.result.note, flush=True)
    except OSError as error:
        run.result.failed += 1
        run.result.note = str(error)
        print(error, flush=True)
    seconds = time.monotonic() - start
    state = "failed" if run.result.failed else "ok"
    print(f"--- {part.name}: {state}, {seconds:.0f} s of {part.budget} s", flush=True)
    return run.result, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all, in their order")
    parser.add_argument("--list", action="store_true", help="list the parts and their budgets")
    options = parser.parse_args()
    if options.list:
        for part in PARTS:
            print(f"{part.name:<10}{part.budget:>5} s  {part.help}")
        return 0
    unknown = set(options.parts) - {part.name for part in PARTS}
    if unknown:
        parser.error(f"PART: expected names of --list, got {', '.join(sorted(unknown))}")

    chosen = [part for part in PARTS if part.name in options.parts or not options.parts]
    if not PYTHON.exists() and any(part.function not in (build, csrc) for part in chosen):
        chosen = [part for part in PARTS if part in chosen or part.function is build]

    total = Result()
    rows = []
    for part in chosen:
        result, seconds = execute(part)
        total.passed += result.passed
        total.failed += result.failed
        state = "failed" if result.failed else "ok"
        note = ", ".join(
            filter(None, ["over budget" if seconds > part.budget else "", result.note])
        )
        rows.append(
            f"{part.name:<10}{state:<8}{result.passed:>8}{result.failed:>8}{result.skipped:>8}"
            f"{seconds:>8.0f}{part.budget:>8}  {note}"
        )
        if part.function is build and result.failed:
            rows.append("the rest was not run: it needs the build")
            break

    print(f"\n{'part':<10}{'':<8}{'passed':>8}{'failed':>8}{'skipped':>8}{'s':>8}{'budget':>8}")
    print("\n".join(rows))
    print(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
