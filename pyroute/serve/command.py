"""The command `pyroute serve`."""

from __future__ import annotations

import errno
import logging
import signal
from typing import Annotated, Any

import typer

from pyroute.cli.options import Debug, Json, Quiet
from pyroute.cli.output import Output
from pyroute.cli.stop import Stop
from pyroute.serve.server import Server, is_loopback
from pyroute.serve.sources import Source, SourceError, open_source
from pyroute.serve.watch import Watcher

__all__ = ["serve"]

WRONG = 2
"""Exit code where the call, or what it names, is wrong."""


def serve(
    place: Annotated[
        list[str],
        typer.Argument(
            metavar="PLACE",
            help="Directory of a RoutedStream, file or postgresql:// of a control store, or spark:,"
            " control:, storm: and a place.",
            show_default=False,
        ),
    ],
    *,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Any but loopback asks for a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="0: any that is free.")
    ] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="PYROUTE_TOKEN",
            metavar="TEXT",
            help="What a reader has to know; made where one is needed.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        float, typer.Option(min=0.05, metavar="SECONDS", help="Between two looks.")
    ] = 0.5,
    title: Annotated[str, typer.Option(metavar="TEXT", help="Heading of the page.")] = "",
    hash_keys: Annotated[
        bool, typer.Option("--hash-keys", help="Show no key as it is, only a name made from it.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """A live page of a running pipeline: loads, hot keys, plans and why, in the browser.

    It reads what pipelines write and changes nothing. A store that is missing, locked or damaged is
    shown as such, and read again until it is there. /metrics is for Prometheus, /health for
    probes.

    Examples
    --------
    pyroute serve /shared/wordcount

    pyroute serve spark:/shared/wordcount control:control.sqlite --port 9000

    pyroute serve postgresql://reader@db/control

    pyroute serve storm:dir:/shared/settings --host 0.0.0.0
    """
    out = Output(json=json, quiet=quiet)
    # What is wrong with a source is said below and on the page, not by the last resort of logging.
    logging.getLogger("pyroute.serve").addHandler(logging.NullHandler())
    try:
        sources = _open(place)
        server = Server(
            Watcher(sources, every=every, hash_keys=hash_keys, title=title), host, port, token
        )
    except (SourceError, ValueError) as error:
        _stop(out, str(error), debug)
    except OSError as error:
        _stop(out, _reason(error, host, port), debug)
    ended = Stop()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())  # of a service manager
    try:
        server.start()
        out.results.print(f"pyroute serve: {server.url}", soft_wrap=True)
        out.document(_document(server))
        for problem in server.watcher.problems:
            out.warn(f"{problem}; looking again")
        if not is_loopback(host):
            out.warn("whoever has this address with its token can read the keys of the pipeline")
        while not ended.wait(0.5):
            pass
    except KeyboardInterrupt:  # the usual way to end it, and no failure
        out.say("stopped")
    finally:
        server.stop()


def _document(server: Server) -> dict[str, Any]:
    """Where the page is, for a program that started it."""
    return {
        "command": "serve",
        "url": server.url,
        "host": server.host,
        "port": server.port,
        "token": server.token,
        "problems": list(server.watcher.problems),
    }


def _open(places: list[str]) -> list[Source]:
    return [open_source(place) for place in places]


def _reason(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use: --port 0 takes one that is free"
    if error.errno == errno.EACCES:
        return f"port {port} of {host} is not allowed: take one above 1023"
    return f"{host}: {error.strerror or error}"


def _stop(out: Output, text: str, debug: bool) -> Any:
    if debug:
        import traceback

        out.warn(traceback.format_exc().rstrip())
    out.warn(f"pyroute serve: {text}")
    raise typer.Exit(WRONG)
