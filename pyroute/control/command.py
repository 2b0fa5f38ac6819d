"""The command `pyroute control`."""

from __future__ import annotations

import contextlib
import json as text
import logging
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from pyroute.cli.options import Debug, Quiet
from pyroute.cli.output import CommandError, Output
from pyroute.cli.stop import Stop
from pyroute.control import policies
from pyroute.control.config_store import ConfigStore
from pyroute.control.configurable import edge_name, from_document
from pyroute.control.hook import Hook
from pyroute.control.loop import TIMES, History, Loop, Model, Status
from pyroute.control.mixed import load
from pyroute.control.monitor import Monitor
from pyroute.control.store import Reports, Store

__all__ = ["control"]

TRAINED = 20_000
"""Periods of the past that a new model is trained on: a store may keep a week."""
_TOLD_BY_THE_LOOP = ("pyroute.control.loop", "pyroute.control.config_store", "kazoo")


def control(
    topology: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="Its name.")],
    edge: Annotated[
        str, typer.Argument(metavar="SOURCE->TARGET", help="The two components it joins.")
    ],
    *,
    config: Annotated[
        str, typer.Option(metavar="URL", help="Config store: dir:PATH or zk://HOST:PORT/PATH.")
    ],
    worker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=PID]",
            help="A worker, in the order of the tasks; once for each. Without: those of the"
            " document that is in force.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Keep what is measured: a path or postgresql://..."),
    ] = None,
    policy: Annotated[
        str, typer.Option(metavar="NAME", help=f"One of {', '.join(policies.ALL)}.")
    ] = "water-filling",
    period: Annotated[
        float, typer.Option(min=0.1, max=30.0, metavar="SECONDS", help="Between two decisions.")
    ] = 1.0,
    hook: Annotated[
        int | None,
        typer.Option(min=0, max=65535, metavar="PORT", help="Listen to the Storm jar; 0: any."),
    ] = None,
    spark: Annotated[
        str | None, typer.Option(metavar="URL", help="Status API of Spark: http://HOST:4040.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A model that was trained; see train.")
    ] = None,
    retrain: Annotated[
        float | None,
        typer.Option(
            min=60.0,
            metavar="SECONDS",
            help="Train a model from the store so often, in a process of low priority; it is used"
            " if it is better on the periods just past. Needs the extra train.",
            show_default=False,
        ),
    ] = None,
    changes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Changes of the ratio in a minute, at most.")
    ] = 10,
    min_healthy: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, metavar="PART", help="Of the workers, always in service."),
    ] = 0.5,
    report: Annotated[
        bool,
        typer.Option(help="Only measure this host and write to the store; decide nothing."),
    ] = False,
    reports: Annotated[
        bool,
        typer.Option(help="Use what other hosts write to the store, too."),
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Decide and show, publish nothing.")] = False,
    turns: Annotated[
        int, typer.Option(min=0, metavar="N", help="Stop after so many; 0: run on.")
    ] = 0,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object per period on stdout, a line each.")
    ] = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Watch workers, and turn records away from those in trouble.

    Measures once a period, keeps it, decides on a split ratio and publishes it as the document of
    the edge. Whatever fails is said, and the last good ratio stays. Ctrl-C ends it; the ratio in
    force stays in force.

    Examples
    --------
    pyroute control urls 'spout->extract' --config zk://zoo:2181/pyroute --hook 7097
        --store control.db

    On every other host, and then --reports on the one that decides:
        pyroute control urls 'spout->extract' --config zk://zoo:2181/pyroute --hook 7097
        --store postgresql://pyroute@db/control --report

    pyroute control urls 'spout->extract' --config zk://zoo:2181/pyroute --hook 7097
        --store control.db --retrain 3600

    pyroute control demo 'source->work' --config dir:conf --worker w0=4711 --worker w1=4712
        --policy proportional --period 1
    """
    out = Output(json=json, quiet=quiet)
    source, arrow, target = edge.partition("->")
    if not arrow:
        raise CommandError(f"SOURCE->TARGET: expected two names and an arrow, got {edge}")
    name = edge_name(topology, source, target)
    names, pids = _named(worker or [])
    if (report or reports or retrain is not None) and store is None:
        raise CommandError("--store: expected one with --report, --reports and --retrain, got none")
    policies.make(policy)
    stop = Stop()
    # What can be refused first: nothing is left behind.
    with _said_once(), contextlib.ExitStack() as stack:
        kept = _store(store, stack, out, period, needed=report or reports)
        documents = stack.enter_context(
            contextlib.closing(ConfigStore.open(config, wait=False, timeout=2.0))
        )
        stack.enter_context(_stopped_by_signals(stop))
        names = names or _of_document(documents, name, stop, out)
        if stop.is_set():
            return
        sources: list[Callable[[], Any]] = []
        monitor = Monitor(pids, period=period)
        sources.append(monitor.sample)
        if hook is not None:
            listener = stack.enter_context(Hook.storm(hook))
            out.say(f"listening to the hook on port {listener.port}")
            sources.append(listener.collect)
        if spark is not None:
            sources.append(stack.enter_context(Hook.spark(spark)).collect)
        if reports and kept is not None:
            sources.append(Reports(kept, besides=monitor.host).collect)
        training = None
        if retrain is not None and store is not None:
            last = ("--last", str(TRAINED * period))
            training = stack.enter_context(contextlib.closing(Trainer(store, *last)))
        loop = Loop(
            name,
            names,
            sources,
            config=None if dry_run or report else documents,
            store=kept,
            policy=policies.make("none" if report else policy, horizon=max(60.0 / changes, period)),
            guard=policies.Guard(
                period=period, changes_per_minute=changes, min_healthy=min_healthy
            ),
            weights=weights,
            retrain=None if training is None else training.train,
            retrain_every=retrain or math.inf,
            stale=math.inf if report else 3.0,  # workers of other hosts report elsewhere
            cost=lambda: monitor.cost,
        )
        with _shown(out) as show:
            loop.run(stop, _surviving(show), turns)


class Trainer:
    """Trains models from a store, in a process of its own: no JAX in the one that decides.

    Parameters
    ----------
    store
        Where the readings are.
    more
        Further words for `pyroute train`.
    """

    def __init__(self, store: str, *more: str) -> None:
        # A path may end in anything: that it is a store is said, not guessed.
        self._store = store if "://" in store else f"sqlite:///{store}"
        self._more = more
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._closed = False
        self._idle = threading.Event()
        self._idle.set()

    def train(self, history: History) -> Model:
        """A new model; raises with what the training said where there is none."""
        self._idle.clear()
        try:
            return self._train(history)
        finally:
            self._idle.set()

    def _train(self, history: History) -> Model:
        target = next((name for name in TIMES if name in history.features), TIMES[0])
        with tempfile.TemporaryDirectory(prefix="pyroute-train-") as folder:
            out = Path(folder) / "model.weights"
            nice = shutil.which("nice")
            words = [nice, "-n", "19"] if nice else []
            words += [sys.executable, "-m", "pyroute", "train", self._store, "--out", str(out)]
            words += ["--target", target, "--log", target, "--kind", "mixed"]
            for name in reporting(history, target):  # others in the store are none of this edge
                words += ["--only", name]
            with self._lock:
                if self._closed:
                    raise RuntimeError("training: ended")
                self._process = subprocess.Popen(
                    [*words, "--no-baselines", "--quiet", *self._more],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            with self._process as process:
                _, errors = process.communicate()
            if process.returncode:
                said = errors.strip().splitlines() or [f"exit code {process.returncode}"]
                raise RuntimeError(said[-1])
            return load(out)

    def close(self) -> None:
        """End the training that is running, and wait for its end: nothing is left behind."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
        self._idle.wait(5.0)


def reporting(history: History, target: str) -> list[str]:
    """Workers that told the target at all: others are not in the store."""
    told = np.isfinite(np.asarray(history.features.get(target, history.target)))
    return [name for at, name in enumerate(history.workers) if told[:, at].any()]


def _of_document(
    documents: ConfigStore, name: str, stop: threading.Event, out: Output
) -> list[str]:
    """The workers of the document that is in force; waits for a config store that is away."""
    said = False
    while not stop.is_set():
        try:
            found = documents.get(name)
        except ConnectionError as error:
            if not said:
                out.warn(f"config: {error}; the workers are read when it answers")
            said = True
            stop.wait(0.2)
            continue
        except Exception as error:
            raise CommandError(f"--worker: expected names, or a document: {error}") from None
        if found is None:
            raise CommandError(f"--worker: expected names, or a document {name}, got neither")
        return from_document(found.value)[1]
    return []


def _named(given: list[str]) -> tuple[list[str], dict[str, int]]:
    """Workers in their order, and the processes of those that have one."""
    names: list[str] = []
    pids = {}
    for each in given:
        worker, equals, pid = each.partition("=")
        if not worker or (equals and not pid.isdigit()):
            raise CommandError(f"--worker: expected NAME=PID, got {each}")
        names.append(worker)
        if equals:
            pids[worker] = int(pid)
    if len(set(names)) != len(names):
        raise CommandError(f"--worker: expected distinct names, got {', '.join(names)}")
    return names, pids


def _store(
    url: str | None, stack: contextlib.ExitStack, out: Output, period: float, *, needed: bool
) -> Store | None:
    if url is None:
        return None
    kept = stack.enter_context(Store.open(url, busy=min(5.0, max(1.0, period)), wait=False))
    if kept.fault is not None:
        if needed and not kept.fault.passes:
            raise kept.fault
        out.warn(f"store: {kept.fault}; going on without it until it can be opened")
    return kept


@contextlib.contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """End after the turn that is running."""
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ValueError):  # not the main thread
            before[number] = signal.signal(number, lambda *_: stop.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _said_once() -> Iterator[None]:
    """What these log is shown as problems of the loop: without a handler it would come out twice.

    kazoo says of every try that it failed, and a server may be away for a night.
    """
    logs = [logging.getLogger(name) for name in _TOLD_BY_THE_LOOP]
    handler = logging.NullHandler()
    for log in logs:
        log.addHandler(handler)
    try:
        yield
    finally:
        for log in logs:
            log.removeHandler(handler)


def _surviving(show: Callable[[Status], None]) -> Callable[[Status], None]:
    """A disk that is full under a log costs the log, not control; a reader that is gone ends it."""

    def shown(status: Status) -> None:
        try:
            show(status)
        except BrokenPipeError:
            raise
        except OSError:
            return

    return shown


@contextlib.contextmanager
def _shown(out: Output) -> Iterator[Callable[[Status], None]]:
    if out.json:

        def line(status: Status) -> None:
            sys.stdout.write(text.dumps(status.to_dict(), allow_nan=False) + "\n")
            sys.stdout.flush()

        yield line
    elif out.is_live:
        from rich.live import Live

        with Live(console=out.progress, auto_refresh=False) as live:
            yield lambda status: live.update(_view(status), refresh=True)
    else:
        seen: dict[str, str] = {}

        def say(status: Status) -> None:
            if status.changed or status.turn == 1:
                shares = ", ".join(f"{n} {s:.1%}" for n, s in status.ratio.items())
                out.results.print(
                    f"version {status.version}: {shares} ({'; '.join(status.reasons)})",
                    soft_wrap=True,
                )
            for kind, problem in status.problems.items():
                if seen.get(kind) != problem.partition(" for ")[0]:
                    out.warn(f"{kind}: {problem}")
            for kind in seen:
                if kind not in status.problems:
                    out.say(f"{kind}: over")
            seen.clear()
            seen.update({k: p.partition(" for ")[0] for k, p in status.problems.items()})

        yield say


def _view(status: Status) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, title_justify="left", title=status.edge)
    table.add_column("worker")
    for column in ("share", "", "ms/record", "forecast", "backlog", "records/s", "state"):
        table.add_column(column, justify="left" if column in ("", "state") else "right")
    for name, each in status.workers.items():
        colour = {"in service": "green", "on trial": "yellow"}.get(each["state"], "red")
        bar = "█" * round(20 * each["share"] / max(1e-9, max(status.ratio.values())))
        table.add_row(
            Text(name),
            f"{each['share']:.1%}",
            Text(f"{bar:20}", style=colour),
            _number(each["service_ms"]),
            _number(each["forecast_ms"]),
            _number(each["backlog"]),
            _number(each["records_per_s"]),
            Text(each["state"], style=colour),
        )
    lines = [
        (
            f"{status.policy}, version {status.version}, {status.changes_in_last_minute} changes in"
            f" the last minute, monitor {status.cost:.2%} of a CPU"
        ),
        f"in force: {status.why}",
        f"last decision: {'; '.join(status.reasons)}",
    ]
    wrong = [Text(f"{kind}: {problem}", style="red") for kind, problem in status.problems.items()]
    return Group(table, *map(Text, lines), *wrong)


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.3g}"
