"""Commands by entry point: found without importing them, imported when they are called."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import re
import traceback
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from pyroute._core import FormatError
from pyroute.cli.errors import AGAIN, BAD_INPUT, FAILED, INTERRUPTED
from pyroute.cli.output import CommandError, Output

GROUP = "pyroute.commands"

_NEGATIVE = re.compile(r"-\d+(\.\d+)?")
_MARK = "\0"  # what no word of a command line has
_EXAMPLES = re.compile(r"^Examples\n-+\n", re.MULTILINE)
_OWN = (typer.Exit, typer.Abort, typer.BadParameter)
_EXPECTED = (CommandError, ValueError, TypeError, OSError, ImportError, FormatError)
"""Errors whose text is for the user; of others the class is named too."""
_INPUT = (ValueError, TypeError, OSError, FormatError)
"""What the doors of pyroute raise for input that cannot be used."""


class Words(TyperCommand):
    """A command that takes -5 for a word, not for an option, where it takes any number of words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Words and options of a command line."""
        if any(one.param_type_name == "argument" and one.nargs == -1 for one in self.params):
            taking = {o for p in self.params if not getattr(p, "is_flag", True) for o in p.opts}
            pairs = zip([None, *args], list(args), strict=False)
            args = [
                f"{_MARK}{word}" if _NEGATIVE.fullmatch(word) and before not in taking else word
                for before, word in pairs
            ]
        rest = super().parse_args(ctx, args)
        ctx.params = {name: _unmarked(value) for name, value in ctx.params.items()}
        return rest


def _unmarked(value: Any) -> Any:
    if isinstance(value, str):
        return value.removeprefix(_MARK)
    if isinstance(value, list | tuple):
        return type(value)(map(_unmarked, value))
    return value


class Command:
    """A command that is known by its entry point."""

    def __init__(self, entry: EntryPoint) -> None:
        self.name, self._entry = entry.name, entry

    def summary(self) -> str:
        """The first line of its docstring, read from its source."""
        try:
            text = _docstring(self._entry.module, self._entry.attr)
        except (OSError, SyntaxError, ImportError):
            return ""
        return text.partition("\n")[0]

    def load(self) -> Any:
        """The command itself, for typer."""
        try:
            function = self._entry.load()
        except ImportError as error:
            stop(self.name, missing(error, self._entry.extras))
        except KeyboardInterrupt as end:
            stopped(self.name, end)
        return of_function(self.name, function)


def discover() -> dict[str, Command]:
    """All commands that are installed, by name, ascending."""
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return {entry.name: Command(entry) for entry in found}


def of_function(name: str, function: Callable[..., Any]) -> Any:
    """A function with typer's annotations as a command of that name."""
    text = inspect.getdoc(function) or ""
    about, *examples = _EXAMPLES.split(text, maxsplit=1)
    # The mark \b keeps the lines of a paragraph as they are.
    shown = ["Examples:", *"".join(examples).strip().split("\n\n")] if examples else []
    epilog = "\n\n".join(f"\b\n{paragraph}" for paragraph in shown)
    # Options in brackets in a text are no markup, and lines stay as wide as the terminal.
    made = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    made.command(name, cls=Words, help=about.strip(), epilog=epilog)(guarded(name, function))
    return typer.main.get_command(made)


def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its errors as one line, or as a traceback where that is asked for."""

    @functools.wraps(function)
    def call(**options: Any) -> Any:
        try:
            return function(**options)
        except (*_OWN, BrokenPipeError):
            raise
        except KeyboardInterrupt as end:
            stopped(name, end)
        except Exception as error:
            if options.get("debug"):
                Output().warn(traceback.format_exc().rstrip())
            stop(name, describe(error), code_of(error))

    return call


def code_of(error: Exception) -> int:
    """2 where the input is the reason, 1 where it is not."""
    if isinstance(error, CommandError):
        return error.code
    return BAD_INPUT if isinstance(error, _INPUT) else FAILED


def describe(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    if isinstance(error, _EXPECTED) and text:
        return text
    return f"{type(error).__name__}: {text} (--debug shows where)"


def missing(error: ImportError, extras: list[str]) -> str:
    """What is not installed, and the command that adds it."""
    text = describe(error)
    if not extras or "pip install" in text:
        return text
    return f"{text}: pip install 'pyroute-core[{','.join(extras)}]'"


def stop(name: str, text: str, code: int = FAILED) -> Any:
    """Say why a command ends, and end it."""
    Output().warn(f"pyroute {name}: {text}")
    raise typer.Exit(code)


def stopped(name: str, end: KeyboardInterrupt) -> Any:
    """Say what to do after Ctrl-C, and end the command."""
    stop(name, f"stopped; {str(end) or AGAIN}", INTERRUPTED)


def _docstring(module: str, function: str) -> str:
    top, *rest = module.split(".")
    found = importlib.util.find_spec(top)  # of a package itself: it is not imported by that
    if found is None or found.origin is None:
        return ""
    path = Path(found.origin)
    if rest:
        path = path.parent.joinpath(*rest).with_suffix(".py")
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return ast.get_docstring(node) or ""
    return ""
