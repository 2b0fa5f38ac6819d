"""``python tests/commands_page.py`` writes the commands and their options into the reference."""

import re
from pathlib import Path

PATH = Path(__file__).resolve().parent.parent / "docs" / "reference" / "commands.md"
BLOCK = re.compile(r"<!-- commands -->\n.*?<!-- end -->", re.DOTALL)
OF_ALL = ("--json", "--quiet", "--debug")


def written(text):
    """The page with the commands that are installed."""
    from pyroute.cli.commands import discover

    made = "\n".join(part for name, each in discover().items() for part in lines(name, each.load()))
    assert BLOCK.search(text)
    return BLOCK.sub(lambda _: f"<!-- commands -->\n{made}<!-- end -->", text)


def lines(name, command):
    about = " ".join(command.help.partition("\n\n")[0].split())
    yield f"## pyroute {name}\n\n{about}\n"
    rows = [row(each) for each in command.params if each.opts[0] not in OF_ALL]
    if rows:
        yield "\n".join(["| | |", "| --- | --- |", *rows, ""])


def row(parameter):
    """An argument or an option as a row of its table."""
    names = [*parameter.opts, *parameter.secondary_opts]
    shown = ", ".join(names) if names[0].startswith("-") else ""
    told = " ".join(filter(None, [shown, parameter.metavar]))
    text = " ".join((parameter.help or "").split()).replace("|", "\\|")
    default = parameter.default
    if getattr(parameter, "show_default", True) and default not in (None, False, ""):
        text += f" Default: `{'yes' if default is True else default}`."
    return f"| `{told}` | {text} |"


if __name__ == "__main__":
    PATH.write_text(written(PATH.read_text()))
