"""Exit codes, and errors that know theirs."""

from __future__ import annotations

DONE = 0
FAILED = 1
"""Something broke that the user's input is not the reason of: an engine, a bug, a missing part."""
BAD_INPUT = 2
"""Called wrongly, or input that cannot be used."""
INTERRUPTED = 130
"""Stopped by Ctrl-C, as of shells."""


class CommandError(Exception):
    """What a command could not do with what it was given, in one line for its user."""

    code = BAD_INPUT


class FailedError(CommandError):
    """What broke although the input was good, in one line."""

    code = FAILED
