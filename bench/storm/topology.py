"""Descriptions of test topologies, as bindings/storm/src/topologies reads them."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bench.storm import jars

FIELDS = ["sequence", "key", "padding"]
Component = dict[str, Any]


def key(sequence: int, keys: int) -> int:
    """The number of the key of a record, as Spout.java computes it."""
    mixed = sequence * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    mixed ^= mixed >> 32
    return (mixed - (1 << 64) if mixed >> 63 else mixed) % keys


def spout(id: str = "spout", **options: Any) -> Component:  # noqa: A002
    """Options: records, rate (records a second, 0: all it can), keys, type, padding, folder.

    `file` has lines of key, tab and padding, sent over and over; `again=False` sends nothing twice;
    `gentle` records at first go one by one (with a folder).
    """
    return {"id": id, "kind": "spout", **options}


def count(id: str, *inputs: Component, parallelism: int = 4, **options: Any) -> Component:  # noqa: A002
    """Options: folder (a log of every record), busy or wait (microseconds each)."""
    return {
        "id": id,
        "kind": "count",
        "inputs": list(inputs),
        "parallelism": parallelism,
        **options,
    }


def hashing(id: str, *inputs: Component, target: str, **options: Any) -> Component:  # noqa: A002
    """A router in Java, by the hash of the key."""
    return {"id": id, "kind": "hash", "inputs": list(inputs), "target": target, **options}


def python(
    id: str,  # noqa: A002
    *inputs: Component,
    script: Sequence[str],
    kind: str = "shell",
    direct: bool = True,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> Component:
    """A child in this Python; kind "router" makes it a RouterShellBolt, "source" a spout."""
    if kind == "router":
        options.setdefault("key", ["key"])
    return {
        "id": id,
        "kind": kind,
        "inputs": list(inputs),
        "command": [sys.executable, *script],
        "fields": FIELDS,
        "direct": direct,
        "environment": {**jars.python_environment(), **(environment or {})},
        **options,
    }


def by(grouping: str, source: str, stream: str = "default", **options: Any) -> Component:
    """An input of a component."""
    return {"from": source, "stream": stream, "grouping": grouping, **options}


def routed(source: str, store: str, document: str = "", **options: Any) -> Component:
    """An input by RoutedGrouping."""
    options.setdefault("fields", ["key"])
    return by("routed", source, store=store, document=document, **options)


def topology(name: str, *components: Component, **options: Any) -> dict[str, Any]:
    """A description; `conf` adds to the settings below, the rest says how long it runs."""
    conf = {
        "topology.max.spout.pending": 500,
        "topology.workers": 1,
        "topology.acker.executors": 1,
        "topology.message.timeout.secs": 30,
        "topology.worker.max.heap.size.mb": 512,
        **options.pop("conf", {}),
    }
    return {"name": name, "conf": conf, "components": list(components), **options}
