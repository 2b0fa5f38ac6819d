"""Counters of what pyroute does, for Prometheus and OpenTelemetry; nothing to install for either.

>>> registry = Registry()
>>> plans = registry.counter("pyroute_plans", "Plans made.", ["algorithm"])
>>> plans.add(1, algorithm="mixed")
>>> print(registry.text(), end="")
# HELP pyroute_plans_total Plans made.
# TYPE pyroute_plans_total counter
pyroute_plans_total{algorithm="mixed"} 1

The process has one registry, `REGISTRY`. `text()` is what an HTTP handler answers to Prometheus
(`pyroute serve` has it at /metrics); `export(meter)` hands everything to a meter of OpenTelemetry.

Threads: any number may add and read.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["REGISTRY", "Counter", "Gauge", "Registry", "observe"]

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_MOST = 10_000  # label sets of one metric: beyond them a mistake, not a metric

Labels = tuple[tuple[str, str], ...]


class Metric:
    """A number for every set of labels; made by a `Registry`."""

    kind = ""

    def __init__(self, name: str, help_: str, labels: Sequence[str]) -> None:
        for one in (name, *labels):
            if not _NAME.fullmatch(one):
                raise ValueError(f"name: expected small letters, digits and _, got {one!r}")
        self.name, self.help, self.labels = name, help_, tuple(labels)
        self._values: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def _key(self, labels: dict[str, object]) -> Labels:
        if set(labels) != set(self.labels):
            raise ValueError(f"labels: expected {list(self.labels)}, got {sorted(labels)}")
        return tuple((name, str(labels[name])) for name in self.labels)

    def _room(self, key: Labels) -> bool:
        return key in self._values or len(self._values) < _MOST

    def value(self, **labels: object) -> float:
        """What it is now; 0 where nothing was said."""
        key = self._key(labels)
        with self._lock:
            return self._values.get(key, 0.0)

    def items(self) -> list[tuple[dict[str, str], float]]:
        """All of it, labels ascending."""
        with self._lock:
            values = sorted(self._values.items())
        return [(dict(key), value) for key, value in values]


class Counter(Metric):
    """A sum that only grows."""

    kind = "counter"

    def add(self, amount: float = 1, **labels: object) -> None:
        """Add an amount, at least 0."""
        if not amount >= 0:
            raise ValueError(f"amount: expected at least 0, got {amount}")
        key = self._key(labels)
        with self._lock:
            if self._room(key):
                self._values[key] = self._values.get(key, 0.0) + amount


class Gauge(Metric):
    """A number that goes up and down."""

    kind = "gauge"

    def set(self, value: float, **labels: object) -> None:
        """Say what it is."""
        key = self._key(labels)
        with self._lock:
            if self._room(key):
                self._values[key] = float(value)

    def replace(self, rows: Iterable[tuple[dict[str, object], float]], **where: object) -> None:
        """Say what all are that have these labels; others of them are forgotten."""
        part = {(name, str(value)) for name, value in where.items()}
        values = {self._key({**labels, **where}): float(value) for labels, value in rows}
        with self._lock:
            for key in [key for key in self._values if part <= set(key) and key not in values]:
                del self._values[key]
            for key, value in values.items():
                if self._room(key):
                    self._values[key] = value

    def clear(self) -> None:
        """Forget every set of labels: tasks that are gone are not reported for ever."""
        with self._lock:
            self._values.clear()


class Registry:
    """Metrics by name."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._lock = threading.Lock()

    def counter(self, name: str, help_: str, labels: Sequence[str] = ()) -> Counter:
        """The counter of that name; made where there is none. `_total` is added in the text."""
        found = self._get(Counter, name, help_, labels)
        assert isinstance(found, Counter)
        return found

    def gauge(self, name: str, help_: str, labels: Sequence[str] = ()) -> Gauge:
        """The gauge of that name; made where there is none."""
        found = self._get(Gauge, name, help_, labels)
        assert isinstance(found, Gauge)
        return found

    def _get(self, kind: type[Metric], name: str, help_: str, labels: Sequence[str]) -> Metric:
        with self._lock:
            found = self._metrics.get(name)
            if found is None:
                found = self._metrics[name] = kind(name, help_, labels)
        if type(found) is not kind or found.labels != tuple(labels):
            raise ValueError(f"{name}: expected a {found.kind} of {list(found.labels)}")
        return found

    def __iter__(self) -> Iterator[Metric]:
        with self._lock:
            return iter([self._metrics[name] for name in sorted(self._metrics)])

    def text(self) -> str:
        """Everything in the text format of Prometheus, version 0.0.4."""
        lines = []
        for metric in self:
            name = metric.name + ("_total" if metric.kind == "counter" else "")
            help_ = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
            lines += [f"# HELP {name} {help_}", f"# TYPE {name} {metric.kind}"]
            for labels, value in metric.items():
                shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
                braces = f"{{{shown}}}" if shown else ""
                lines.append(f"{name}{braces} {_number(value)}")
        return "".join(f"{line}\n" for line in lines)

    def export(self, meter: Any) -> None:
        """Hand everything that is here now to a meter of OpenTelemetry, which asks when it wants.

        Parameters
        ----------
        meter
            What `opentelemetry.metrics.get_meter("pyroute")` gives.
        """
        from opentelemetry.metrics import Observation

        def of(metric: Metric) -> Callable[[Any], list[Any]]:
            return lambda _: [Observation(value, labels) for labels, value in metric.items()]

        for metric in self:
            make = (
                meter.create_observable_counter
                if metric.kind == "counter"
                else meter.create_observable_gauge
            )
            make(metric.name, callbacks=[of(metric)], description=metric.help)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


REGISTRY = Registry()
"""Of this process."""

PLANS = REGISTRY.counter("pyroute_plans", "Plans made.", ["algorithm"])
PLAN_SECONDS = REGISTRY.counter("pyroute_plan_seconds", "Time spent planning.", ["algorithm"])
DECISIONS = REGISTRY.counter("pyroute_decisions", "What gates said of plans.", ["result"])
MOVED = REGISTRY.counter("pyroute_moved_keys", "Keys of plans that gates let pass.")
MOVED_BYTES = REGISTRY.counter("pyroute_moved_bytes", "State of plans that gates let pass.")
BATCHES = REGISTRY.counter("pyroute_stream_batches", "Batches that streams committed.", ["stream"])
ROWS = REGISTRY.counter("pyroute_stream_rows", "Rows of committed batches.", ["stream"])
LOAD = REGISTRY.gauge(
    "pyroute_task_load", "Load of a task in the last interval.", ["stream", "task"]
)
IMBALANCE = REGISTRY.gauge("pyroute_imbalance", "Greatest load / mean - 1.", ["stream"])


def observe(stream: str, rows: int, tasks: Sequence[int], loads: Sequence[float]) -> None:
    """Count a batch of a stream, with the load of each of its tasks."""
    BATCHES.add(1, stream=stream)
    ROWS.add(rows, stream=stream)
    say_loads(stream, dict(zip(tasks, loads, strict=True)))


def say_loads(stream: str, loads: Mapping[Any, float]) -> None:
    """The loads of all tasks of a stream in its last interval; of other tasks nothing is kept."""
    LOAD.replace((({"task": task}, load) for task, load in loads.items()), stream=stream)
    total = sum(loads.values())
    ratio = max(loads.values()) * len(loads) / total - 1 if total > 0 else 0.0
    IMBALANCE.replace([({}, ratio)] if loads else [], stream=stream)
