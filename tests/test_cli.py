"""The command line without Spark: commands are found and not imported, and errors are one line."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import pyroute as pr

pytest.importorskip("typer", reason="typer is missing: pip install 'pyroute-core[cli]'")
pytest.importorskip("rich", reason="rich is missing: pip install 'pyroute-core[cli]'")

FAKE = '''
"""Commands that do nothing."""
from typing import Annotated

import typer

from pyroute.cli.errors import StoppedError
from pyroute.cli.options import Debug, Json, Quiet
from pyroute.cli.output import CommandError, Output


def fake(
    name: str,
    tasks: Annotated[int, typer.Option(min=1, help="Parallel tasks [spark].")] = 8,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Do nothing with a name.

    More about it, [in brackets].

    Examples
    --------
    Nothing at all:
        pyroute fake anna
        pyroute fake bert --tasks 2
    """
    output = Output(json=json, quiet=quiet)
    output.say(f"doing nothing with {name} " + "at length " * 20)
    if name == "known":
        raise CommandError("name: expected another, got known\\nand more")
    if name == "bug":
        raise ZeroDivisionError("division")
    if name == "value":
        raise ValueError("name: expected another, got value")
    if name == "ctrl-c":
        raise KeyboardInterrupt
    if name == "ctrl-c and on":
        raise StoppedError("say it again")
    if name == "usage":
        raise typer.BadParameter("name: expected another")
    output.results.print(f"nothing was done with {name} [bold]")
    output.document({"name": name, "tasks": tasks, "ö": 1.5})
'''


@pytest.fixture(scope="module")
def fakes(tmp_path_factory):
    """A distribution with commands of its own: one that runs, one that lacks what it needs."""
    folder = tmp_path_factory.mktemp("fakes")
    (folder / "fake_commands.py").write_text(FAKE)
    (folder / "lacking.py").write_text("import no_such_module\n")
    (folder / "stopping.py").write_text("raise KeyboardInterrupt\n")
    about = folder / "fakes-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: fakes\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[pyroute.commands]\n"
        "fake = fake_commands:fake\n"
        "lacking = lacking:run [train,spark]\n"
        "stopping = stopping:run\n"
        "lost = nowhere.at.all:run\n"
    )
    return folder


def call(folder, *arguments, program="-m pyroute", **options):
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, *program.split(), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


def call_with(folder, prepared, *arguments):
    """Call the command line in a process that was prepared by some lines."""
    lines = f"import sys\nsys.argv = {['pyroute', *arguments]!r}\n{prepared}\n"
    lines += "from pyroute.cli import main\nmain()\n"
    return call(folder, "-c", lines, program="")


def test_help_lists_commands_and_imports_none(fakes):
    done = call(fakes, "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert re.search(r"fake +Do nothing with a name\.", done.stdout)
    assert "lacking" in done.stdout
    assert "lost" in done.stdout
    assert "--version" in done.stdout


def test_spark_is_not_imported(fakes):
    lines = """
    import atexit
    heavy = ("pyspark", "spark_udf", "pyarrow", "pandas")
    atexit.register(lambda: print([name for name in heavy if name in sys.modules]))
    """
    for arguments in (["--help"], ["fake", "anna"]):
        done = call_with(fakes, textwrap.dedent(lines), *arguments)
        assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_run_is_a_command(tmp_path):
    done = call(tmp_path, "--help")
    assert "\n  run  " in done.stdout, "pip install --editable . again: entry points have changed"


def test_version(tmp_path):
    done = call(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"pyroute {pr.__version__}\n")
    assert call(tmp_path, "-q", "--version").returncode == 2


def test_script(tmp_path):
    script = Path(sys.executable).with_name("pyroute")
    if not script.exists():
        pytest.skip(f"{script} is missing: pip install --editable .")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"pyroute {pr.__version__}\n"


def test_help_of_a_command(fakes):
    done = call(fakes, "fake", "--help")
    assert done.returncode == 0
    for line in (
        "Usage: pyroute fake [OPTIONS] ",
        "  More about it, [in brackets].",
        "  Examples:\n\n  Nothing at all:\n      pyroute fake anna\n      pyroute fake bert",
        "Parallel tasks [spark].",
    ):
        assert line in done.stdout
    assert "Examples\n" not in done.stdout


def test_every_command_has_examples_json_and_debug():
    from pyroute.cli.commands import discover

    found = discover()
    assert {"analyze", "plan", "explain", "diff", "simulate", "route", "run", "arena"} <= set(found)
    assert {"train", "control", "storm", "serve", "doctor", "sample"} <= set(found)
    for name, one in found.items():
        if name == "run":
            pytest.importorskip("pyspark")
        command = one.load()
        assert f"pyroute {name}" in command.epilog, name
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--json", "--quiet", "--debug"} <= options, name


@pytest.mark.parametrize(
    "arguments",
    [
        ["fakr"],
        [],
        ["fake"],
        ["fake", "anna", "--tasks", "0"],
        ["fake", "anna", "--no-such"],
        ["fake", "usage", "--quiet"],
    ],
)
def test_usage_is_2(fakes, arguments):
    done = call(fakes, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage: pyroute" in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_command_is_named(fakes):
    assert "fakr" in call(fakes, "fakr").stderr


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("known", 2, "pyroute fake: name: expected another, got known\n"),
        ("value", 2, "pyroute fake: name: expected another, got value\n"),
        ("bug", 1, "pyroute fake: ZeroDivisionError: division (--debug shows where)\n"),
        ("ctrl-c", 2, "pyroute fake: stopped; nothing is half written: run it again\n"),
        ("ctrl-c and on", 2, "pyroute fake: stopped; say it again\n"),
    ],
)
def test_errors_are_one_line(fakes, name, code, message):
    done = call(fakes, "fake", name, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)


def test_ctrl_c_outside_of_a_command(fakes):
    """While it is imported, and before there is one."""
    line = "stopped; nothing is half written: run it again\n"
    done = call(fakes, "stopping")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"pyroute stopping: {line}")
    prepared = (
        "import pyroute.cli.app as app\ndef stop():\n raise KeyboardInterrupt\napp.discover = stop"
    )
    done = call_with(fakes, prepared, "fake", "anna")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"pyroute: {line}")


def test_debug_shows_where(fakes):
    done = call(fakes, "fake", "bug", "--quiet", "--debug")
    assert done.returncode == 1
    assert "Traceback (most recent call last):" in done.stderr
    assert 'raise ZeroDivisionError("division")' in done.stderr


def test_json_is_alone_on_stdout(fakes):
    done = call(fakes, "fake", "anna", "--json")
    assert json.loads(done.stdout) == {"name": "anna", "tasks": 8, "ö": 1.5}
    assert done.stderr.startswith("doing nothing with anna")
    assert done.stderr.count("\n") == 1  # a line stays one, however long
    quiet = call(fakes, "fake", "anna", "--json", "--quiet")
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")
    failed = call(fakes, "fake", "known", "--json", "--quiet")
    assert (failed.returncode, failed.stdout) == (2, "")


def test_results_and_progress(fakes):
    done = call(fakes, "fake", "anna")
    assert done.stdout.splitlines()[-1] == "nothing was done with anna [bold]"
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == ""
    done = call(fakes, "fake", "anna", "--quiet")
    assert done.stdout == "nothing was done with anna [bold]\n"


def test_closed_pipe_is_no_traceback(fakes):
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONPATH": str(fakes)}
    command = [sys.executable, "-m", "pyroute", "fake", "anna"]
    done = subprocess.run(command, env=environment, stdout=write, stderr=-1, text=True, timeout=60)
    os.close(write)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_missing_extra_of_a_command(fakes):
    done = call(fakes, "lacking")
    assert done.returncode == 1
    assert done.stderr == (
        "pyroute lacking: No module named 'no_such_module':"
        " pip install 'pyroute-core[train,spark]'\n"
    )
    done = call(fakes, "lost")
    assert (done.returncode, done.stderr) == (1, "pyroute lost: No module named 'nowhere'\n")


def test_missing_spark(tmp_path):
    done = call_with(tmp_path, "sys.modules['pyspark'] = None", "run")
    assert done.returncode == 1
    assert done.stderr.startswith("pyroute run: ")
    assert "pip install 'pyroute-core[spark]'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["typer", "rich"])
def test_missing_cli(tmp_path, name):
    done = call_with(tmp_path, f"sys.modules[{name!r}] = None", "--version")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("pyroute: ")
    assert done.stderr.endswith(": pip install 'pyroute-core[cli]'\n")
    assert done.stderr.count("\n") == 1
