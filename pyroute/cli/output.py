"""Where a command writes: results to stdout, errors to stderr, progress to whichever is free."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console

from pyroute.cli.errors import CommandError, FailedError

__all__ = ["CommandError", "FailedError", "Output"]


class Output:
    """The streams of one call of a command.

    Parameters
    ----------
    json
        The result is one document on stdout, and nothing else is written there.
    quiet
        No progress.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json, self.quiet = json, quiet
        # Text is shown as it is: a key may be called [bold] or :heart:.
        plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
        self.results = Console(quiet=json, **plain)
        self.errors = Console(stderr=True, **plain)
        self.progress = Console(stderr=json, quiet=quiet, **plain)

    @property
    def is_live(self) -> bool:
        """Whether progress may be drawn again and again: on a terminal alone."""
        return self.progress.is_terminal and not self.progress.is_dumb_terminal and not self.quiet

    def say(self, text: str) -> None:
        """One line of progress, however long."""
        self.progress.print(text, soft_wrap=True)

    def warn(self, text: str) -> None:
        """One line on stderr, also where progress is not wanted."""
        self.errors.print(text, soft_wrap=True)

    def document(self, document: Mapping[str, Any]) -> None:
        """The result, where it is wanted as JSON."""
        if self.json:
            sys.stdout.write(to_json(document))
            sys.stdout.flush()


def to_json(document: Mapping[str, Any]) -> str:
    """As text that every reader of JSON takes: no NaN, no infinity."""
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
