"""How long is a newcomer's way, from nothing to a straggler that is gone?

    python -m bench.newcomer [--section NAME] [--write]

Takes the commands of one section of README.md, as they are printed there, and types them one after
the other into a shell with an empty home: no virtual environment, no cache, no settings of this
user. A line `git clone URL` clones this checkout instead. Stops at the first one that fails. Each
command's time is that of the command itself; reading is not in it.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.report import Goal, Table, surroundings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "bench" / "NEWCOMER.md"
SECTION = "Ten minutes"
KEPT = ("PATH", "LANG", "TERM", "JAVA_HOME", "CXX", "CC")
KEPT_LIKE = ("PIP_", "UV_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "REQUESTS_")
SHELLS = ("console", "sh", "bash", "shell")
MINUTES = 10.0
END = "@@pyroute-newcomer@@"


@dataclass(frozen=True)
class Step:
    """A command, what it took, how it ended and what it said."""

    command: str
    seconds: float
    code: int
    said: str


def section(text: str, name: str) -> str:
    """What is under a heading of any level, up to the next one of that level or above."""
    found = re.search(rf"^(#+) {re.escape(name)}\s*$", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"README.md: expected a section {name!r}, got none")
    rest = text[found.end() :]
    following = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: following.start()] if following else rest


def commands(text: str) -> list[str]:
    """Lines that are typed: of blocks that are indented, or fenced as console, sh or bash."""
    out = []
    fence = ""
    for line in text.splitlines():
        mark = re.match(r"```(\w*)", line)
        if mark:
            fence = "" if fence else (mark[1] or "text")
        elif fence in SHELLS or (not fence and line.startswith("    ")):
            out.append(line)
    stripped = [re.sub(r"\s{2,}#\s.*$", "", line).strip().removeprefix("$ ") for line in out]
    return [line for line in stripped if line and not line.startswith("#")]


def local(command: str) -> str:
    """The same, with this checkout for the address of a clone."""
    words = shlex.split(command)
    if words[:2] != ["git", "clone"]:
        return command
    address = next((i for i, word in enumerate(words[2:], 2) if not word.startswith("-")), None)
    if address is None:
        return command
    folder = words[address + 1 :] or [Path(words[address]).name.removesuffix(".git")]
    return shlex.join([*words[:address], str(ROOT), *folder])


class Shell:
    """One shell for all commands: what one sets, the next one sees."""

    def __init__(self, home: Path) -> None:
        venv = str(Path(sys.prefix) / "bin") if sys.prefix != sys.base_prefix else None
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in KEPT or name.upper().startswith(KEPT_LIKE)
        }
        path = [each for each in kept.get("PATH", "").split(os.pathsep) if each != venv]
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=home,
            env={**kept, "PATH": os.pathsep.join(path), "HOME": str(home), "COLUMNS": "110"},
        )

    def type(self, command: str) -> Step:
        """Run one command to its end."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        began = time.perf_counter()
        process.stdin.write(f"{local(command)} </dev/null\ncode=$?; echo; echo {END} $code\n")
        process.stdin.flush()
        said: list[str] = []
        code = -1
        for line in process.stdout:
            if line.startswith(END):
                code = int(line.split()[1])
                break
            said.append(line)
            sys.stderr.write(line)
        return Step(command, time.perf_counter() - began, code, "".join(said).strip())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


def walk(lines: list[str], home: Path) -> list[Step]:
    """Type them all, until one fails."""
    shell = Shell(home)
    steps = []
    try:
        for line in lines:
            print(f"$ {line}", file=sys.stderr, flush=True)
            steps.append(shell.type(line))
            if steps[-1].code:
                break
    finally:
        shell.close()
    return steps


def goals(steps: list[Step], wanted: int) -> list[Goal]:
    total = sum(step.seconds for step in steps)
    done = len(steps) == wanted and not any(step.code for step in steps)
    last = next((step for step in steps if step.code), None)
    said = "\n".join(step.said for step in steps)
    busiest = [float(x) for x in re.findall(r"busiest task: ([\d.]+) times the mean", said)]
    gone = len(busiest) > 1 and busiest[-1] < 1.1 < busiest[0]
    shown = " -> ".join(f"{x:.2f}" for x in busiest)
    hot = "marketplace" in said
    return [
        Goal("every command works", "all", f"{last.command}: {last.code}" if last else "all", done),
        Goal("the analysis names the hot key", "marketplace", "named" if hot else "not", hot),
        Goal("the straggler is gone: busiest task by the mean", "< 1.1", shown or "-", gone),
        Goal(
            "install to straggler gone", f"<= {MINUTES:g} min", f"{total / 60:.1f} min",
            done and total <= 60 * MINUTES,
        ),
    ]  # fmt: skip


def page(steps: list[Step], found: list[Goal], name: str) -> str:
    table = Table(("command", "s", "last line that it said"))
    for step in steps:
        last = step.said.splitlines()[-1] if step.said else ""
        table.add(f"`{step.command}`".replace("|", "\\|"), f"{step.seconds:.1f}", last[:80])
    table.add("all", f"{sum(step.seconds for step in steps):.1f}", "")
    judged = Table(("goal", "wanted", "measured", "verdict"))
    for goal in found:
        judged.add(goal.name, goal.wanted, goal.measured, goal.verdict)
    lines = ["# A newcomer's way", "", *(__doc__ or "").strip().splitlines()[4:], ""]
    lines += surroundings("python -m bench.newcomer --write", 0, [])
    lines += [f"- section of README.md: {name}", f"- load of the machine: {os.getloadavg()[0]:.1f}"]
    return "\n".join([*lines, "", *judged.lines(), "", *table.lines()]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--section", default=SECTION, help="heading in README.md")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    lines = commands(section(options.readme.read_text("utf-8"), options.section))
    if not lines:
        raise SystemExit(f"{options.section}: expected commands, got none")
    with tempfile.TemporaryDirectory(prefix="pyroute-newcomer-") as home:
        steps = walk(lines, Path(home))
    found = goals(steps, len(lines))
    text = page(steps, found, options.section)
    print(text)
    if options.write:
        PAGE.write_text(text)
    if not all(goal.met for goal in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
