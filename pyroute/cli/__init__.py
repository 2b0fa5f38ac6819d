"""The command `pyroute`.

A command is a function with typer's annotations that an entry point of the group
`pyroute.commands` names, in this distribution or in another:

    [project.entry-points."pyroute.commands"]
    run = "spark_udf.run:run [spark]"

The extra in brackets is what the command needs; where it is missing the error says how to add it.
The first line of the function's docstring is its line in `pyroute --help`, what comes before the
section Examples its own help, and Examples are shown below the options. A command is imported when
it is called and not before, so nothing here knows Spark. What it raises becomes one line and exit
code 2 where the input is the reason, else 1; `--debug` (`pyroute.cli.options.Debug`) shows the
traceback. Ctrl-C is one line and exit code 2, too; a command whose work is not lost by it raises
`pyroute.cli.errors.StoppedError` with what to do.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from typing import NoReturn

from pyroute.cli.errors import AGAIN, INTERRUPTED

__all__ = ["main"]

_NEEDED = ("typer", "rich", "click")
_SHELLS = 130  # what typer makes of Ctrl-C outside of a command


def main() -> None:
    """Run the command line; ends the process."""
    try:
        from pyroute.cli.app import app
    except KeyboardInterrupt:
        _stopped()
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.stderr.write(f"pyroute: {error}: pip install 'pyroute-core[cli]'\n")
        raise SystemExit(1) from None
    try:
        app(prog_name="pyroute")
    except SystemExit as end:
        if not isinstance(end.code, int) or end.code == 0:
            raise
        if end.code == _SHELLS:
            _stopped()
        _leave(end.code)


def _stopped() -> NoReturn:
    sys.stderr.write(f"pyroute: stopped; {AGAIN}\n")
    _leave(INTERRUPTED)


def _leave(code: int) -> NoReturn:
    """End at once: a thread that still reads would be cut off in the middle of foreign code."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
