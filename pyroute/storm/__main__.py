"""Runs a bolt or a spout of pyroute as a child of Storm, without writing code.

The topology names ``python -m pyroute.storm KIND [OPTIONS]`` as the command of a shell bolt (or
spout); its stdin and stdout belong to Storm.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyroute.storm.bolt import Bolt, _Child


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--operators",
        type=_names,
        metavar="A,B,...",
        help="components of the protocol, in the order of a chain (or pyroute.operators)",
    )
    parser.add_argument("--state", metavar="DIR", help="state directory (or pyroute.state)")


def _participant(parser: argparse.ArgumentParser) -> None:
    _common(parser)
    parser.add_argument("--manager", metavar="NAME", help="component of the manager")
    parser.add_argument("--key", default="key", type=_names, help="field of the key, or several")
    parser.add_argument(
        "--not-durable",
        action="store_true",
        help="keep nothing on disk: a crash loses state, which is said in the log",
    )


def _participant_options(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "key": options.key,
        "operators": options.operators,
        "manager": options.manager,
        "state": options.state,
        "durable": not options.not_durable,
    }


def _router_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--router", metavar="FILE", help="a router, as JSON or bytes")
    parser.add_argument("--key", default="key", type=_names, help="field of the key, or several")
    parser.add_argument("--target", help="component that gets the records")
    parser.add_argument("--capacity", type=int, default=0, help="heaviest keys that are counted")
    parser.add_argument("--store", metavar="URL", help="config store with newer routers")
    parser.add_argument("--document", default="router", help="its name in the config store")


def _router(options: argparse.Namespace) -> Bolt:
    from pyroute.storm.router_bolt import RouterBolt

    return RouterBolt(
        options.router,
        key=options.key,
        target=options.target,
        capacity=options.capacity,
        config=options.store,
        document=options.document,
    )


def _source_arguments(parser: argparse.ArgumentParser) -> None:
    _participant(parser)
    parser.add_argument("--id", default="id", help="field of the application's id")
    parser.add_argument("--operator", help="who gets the records; by default the next")


def _source(options: argparse.Namespace) -> Bolt:
    from pyroute.storm.source_bolt import SourceBolt

    return SourceBolt(**_participant_options(options), id=options.id, operator=options.operator)


def _task_arguments(parser: argparse.ArgumentParser) -> None:
    _participant(parser)
    parser.add_argument(
        "--function",
        metavar="MODULE:NAME",
        help="(state, values) -> state or (state, [values, ...]); by default records are counted",
    )
    parser.add_argument("--commit-every", type=float, default=0.1, metavar="SECONDS")
    parser.add_argument("--remember", type=float, metavar="SECONDS", help="of ids of records")


def _task(options: argparse.Namespace) -> Bolt:
    from pyroute.storm.task_bolt import CountBolt, FunctionBolt, TaskBolt

    given = {**_participant_options(options), "remember_seconds": options.remember}
    bolt: TaskBolt
    if options.function is None:
        bolt = CountBolt(**given)
    else:
        bolt = FunctionBolt(_function(options.function), **given)
    bolt.commit_every = options.commit_every
    return bolt


def _function(text: str) -> Callable[..., Any]:
    module, _, name = text.partition(":")
    if not name:
        raise ValueError(f"function: expected MODULE:NAME, got {text!r}")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def _manager_arguments(parser: argparse.ArgumentParser) -> None:
    _common(parser)
    parser.add_argument(
        "--spout", action="store_true", help="no bolt: tasks tell it through the config store"
    )
    parser.add_argument("--store", metavar="URL", help="config store: dir:PATH, zk://HOST/PATH")
    parser.add_argument("--storage", choices=["state", "store"], default="state")
    parser.add_argument("--plan-every", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument(
        "--window", type=float, metavar="SECONDS", help="of reports in a plan (or as plans are)"
    )
    parser.add_argument("--planner", choices=["rebalance", "colocate"], default="rebalance")
    parser.add_argument("--max-imbalance", type=float, default=0.08)
    algorithms = ["mixed", "mixed_bf", "min_table", "min_mig", "llfd", "simple", "readj"]
    parser.add_argument("--algorithm", choices=algorithms, help="of rebalance")
    parser.add_argument(
        "--max-table", type=int, metavar="KEYS", help="that may be away from home; below 0: any"
    )
    parser.add_argument("--resend-after", type=float, default=2.0, metavar="SECONDS")


def _manager(options: argparse.Namespace) -> _Child:
    from pyroute.storm.manager import ManagerBolt, ManagerSpout

    given: dict[str, Any] = {"max_imbalance": options.max_imbalance}
    if options.max_table is not None:
        given["max_table"] = None if options.max_table < 0 else options.max_table
    if options.algorithm is not None:
        if options.planner != "rebalance":
            raise ValueError(f"algorithm: expected none for {options.planner}, got one")
        given["algorithm"] = options.algorithm
    manager = (ManagerSpout if options.spout else ManagerBolt)(
        operators=options.operators,
        state=options.state,
        store=options.store,
        storage=options.storage,
        plan_every=options.plan_every,
        window=options.window,
        planner=options.planner,
        options=given,
    )
    manager.resend_after = options.resend_after
    return manager


def _scheduler_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="component whose tasks get the records")
    _measured(parser)
    parser.add_argument(
        "--host", help="where tasks report to (or storm.local.hostname, or this machine's name)"
    )
    parser.add_argument("--bind", metavar="ADDRESS", help="on which reports are taken (or all)")


def _measured(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fields", default="value", type=_names, help="fields that the cost depends on"
    )
    parser.add_argument("--mode", choices=["posg", "pooled"], default="pooled")


def _scheduler(options: argparse.Namespace) -> Bolt:
    from pyroute.storm.scheduler_bolt import SchedulerBolt

    return SchedulerBolt(
        options.target,
        fields=options.fields,
        mode=options.mode,
        host=options.host,
        bind=options.bind,
    )


def _busy_arguments(parser: argparse.ArgumentParser) -> None:
    _measured(parser)
    parser.add_argument("--window", type=int, help="records between two reports")
    parser.add_argument("--milliseconds", default="milliseconds", help="field of the work")
    parser.add_argument("--wait", action="store_true", help="wait instead of working")


def _busy(options: argparse.Namespace) -> Bolt:
    from pyroute.storm.scheduler_bolt import BusyBolt

    given = {} if options.window is None else {"window": options.window}
    return BusyBolt(
        options.milliseconds,
        wait=options.wait,
        fields=options.fields,
        mode=options.mode,
        options=given,
    )


def _dynamic_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="component whose tasks get the records")
    parser.add_argument("--store", metavar="URL", help="config store (or pyroute.store)")
    parser.add_argument("--bits", type=int, default=10, help="size of the circle at first")


def _dynamic(options: argparse.Namespace) -> Bolt:
    from pyroute.storm.dynamic_bolt import DynamicBolt

    return DynamicBolt(options.target, store=options.store, bits=options.bits)


KINDS: dict[str, tuple[str, Callable[[Any], None], Callable[[Any], _Child]]] = {
    "router": ("routes records by a table, in native code", _router_arguments, _router),
    "source": (
        "the first operator: routes a spout's records, and takes part in reconfigurations",
        _source_arguments,
        _source,
    ),
    "task": ("keyed state, durable, that moves between tasks", _task_arguments, _task),
    "manager": ("statistics, plans, reconfigurations", _manager_arguments, _manager),
    "scheduler": (
        "a task for each record by estimated finish time",
        _scheduler_arguments,
        _scheduler,
    ),
    "busy": ("works as long as a field says, and reports it", _busy_arguments, _busy),
    "dynamic": ("a split ratio from the config store", _dynamic_arguments, _dynamic),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyroute.storm",
        description="Runs a bolt or spout as a child of Apache Storm.",
    )
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for name, (text, arguments, _) in KINDS.items():
        arguments(
            kinds.add_parser(
                name, help=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter
            )
        )
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run the bolt that the command line names; ends the process."""
    options = _parser().parse_args(arguments)
    from pyroute.storm.bolt import take_stdio

    take_stdio()
    try:
        child = KINDS[options.kind][2](options)
    except (ImportError, AttributeError, OSError, TypeError, ValueError) as error:
        sys.exit(f"python -m pyroute.storm {options.kind}: {error}")
    child.run()


if __name__ == "__main__":
    main()
