"""The application: options of `pyroute` itself, and the commands that are installed."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import pyroute
from pyroute.cli.commands import discover

__all__ = ["app", "make_app"]


class Commands(TyperGroup):
    """Commands by name; one is imported when it is called, and not to be listed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Their names, ascending."""
        return list(discover())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """What a list of commands shows of it, or None."""
        found = discover().get(cmd_name)
        return None if found is None else TyperCommand(name=cmd_name, help=found.summary())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself; an unknown name is an error of usage."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or command is None:
            return name, command, rest
        return name, discover()[name].load(), rest


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pyroute {pyroute.__version__}")
        raise typer.Exit


def make_app() -> typer.Typer:
    """A new application."""
    made = typer.Typer(
        name="pyroute",
        cls=Commands,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        epilog="Exit codes: 0 done, 1 failed, 2 bad input, called wrongly or stopped by"
        " Ctrl-C. Examples: pyroute COMMAND --help.",
    )

    @made.callback()
    def root(
        version: Annotated[
            bool,
            typer.Option(
                "--version", callback=_show_version, is_eager=True, help="Show the version."
            ),
        ] = False,
    ) -> None:
        """Which parallel task each record of a stream goes to, decided well as it changes."""

    return made


app = make_app()
