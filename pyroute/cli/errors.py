"""Exit codes, and errors that know theirs."""

from __future__ import annotations

DONE = 0
FAILED = 1
"""Something broke that the user's input is not the reason of: an engine, a bug, a missing part."""
BAD_INPUT = 2
"""Called wrongly, or input that cannot be used."""
INTERRUPTED = 2
"""Stopped by Ctrl-C."""
AGAIN = "nothing is half written: run it again"
"""What to do after Ctrl-C, where a command does not know better."""


class CommandError(Exception):
    """What a command could not do with what it was given, in one line for its user."""

    code = BAD_INPUT


class FailedError(CommandError):
    """What broke although the input was good, in one line."""

    code = FAILED


class StoppedError(KeyboardInterrupt):
    """Ctrl-C in the middle of work that is not lost: what to do, in one line."""
