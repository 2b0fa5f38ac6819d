"""Task bolt: keyed state on Storm that survives kill -9 and moves between tasks while records flow.

Subclass `TaskBolt` and override `apply` (one record) or `process` (a batch)::

    class Count(TaskBolt):
        def apply(self, record):
            record.state = (record.state or 0) + 1


    Count().run()

What reaches a task: records with the fields ``id`` and ``key`` among others, by direct grouping,
from a `SourceBolt` or another `TaskBolt`. docs/storm-state.md says how to wire them.

Every `commit_every` seconds what changed (state, ids seen, protocol) goes to the state directory in
one synced append; then outputs leave and records are acked. A record that Storm replays is
recognised by its ``id``: its state change is not made again, and what it had made is sent again.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pyroute.key_stats import KeyStats, Snapshot
from pyroute.keys import Keys, keys
from pyroute.protocol.errors import ProtocolError
from pyroute.protocol.messages import Apply, Forward, Full, Hold, Send
from pyroute.space_saving import PairSpaceSaving
from pyroute.storm.bolt import Context
from pyroute.storm.protocol import Tuple
from pyroute.storm.reconfigure import Participant
from pyroute.storm.state import KeyedState, Section, identity

Reals = npt.NDArray[np.float64]


class Record:
    """One record at a task, with the state of its key.

    Attributes
    ----------
    values
        As they came.
    key
        The value of its key; a tuple where there are several fields.
    id
        The application's id, None where there is none.
    cost
        What it took; measured by `TaskBolt.process`, or set by who overrides it.
    """

    __slots__ = (
        *("_number", "_outputs", "_sequence", "_state", "_text", "_tuple"),
        *("cost", "id", "key", "values"),
    )

    def __init__(self, record: Tuple, values: list[Any], key: Any, identifier: Any) -> None:
        self._tuple = record
        self._number = 0
        self._outputs: list[Any] = []
        self._text: str | None = None
        self._sequence: tuple[str, int] | None = None
        if identifier is not None:
            self._text, self._sequence = identity(identifier)
        self._state: KeyedState | None = None
        self.values = values
        self.key = key
        self.id = identifier
        self.cost: float | None = None

    @property
    def state(self) -> Any:
        """The state of its key, None at first; set it to change it."""
        assert self._state is not None
        return self._state.states.get(self._number)

    @state.setter
    def state(self, value: Any) -> None:
        assert self._state is not None
        if value is None:
            self._state.states.pop(self._number, None)
        else:
            self._state.states[self._number] = value

    def __repr__(self) -> str:
        return f"Record({self.values!r})"


class _Fields:
    """Where a stream has what a task reads."""

    def __init__(self, names: Sequence[str], key: Sequence[str], identifier: str, low: str) -> None:
        missing = [name for name in key if name not in names]
        if missing:
            raise ValueError(f"key: expected one of the fields {list(names)}, got {missing[0]!r}")
        self.key = [names.index(name) for name in key]
        self.id = names.index(identifier) if identifier in names else None
        self.low = names.index(low) if low in names else None
        self.least = len(names)

    def check(self, values: Sequence[Any]) -> None:
        if len(values) < self.least:
            raise ProtocolError(f"tuple: expected {self.least} fields, got {len(values)}")

    def key_of(self, values: Sequence[Any]) -> Any:
        if len(self.key) == 1:
            return values[self.key[0]]
        return tuple(values[at] for at in self.key)


def _low(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"low: expected an int, got {value!r}")
    return value


def flat(value: Any) -> Any:
    """A value that Storm carries from one worker to another: a list becomes its JSON text."""
    if isinstance(value, list | tuple):
        return json.dumps(value, separators=(",", ":"))
    return value


def numbers_of(values: Sequence[Any]) -> list[int]:
    """The 64-bit identities of keys; of several types or several fields too."""
    if values and isinstance(values[0], tuple):
        return [int(keys(*([part] for part in value)).ids[0]) for value in values]
    try:
        return keys(list(values)).ids.tolist()  # type: ignore[no-any-return]
    except TypeError:
        return [int(keys([value]).ids[0]) for value in values]


class TaskBolt(Participant):
    """A keyed operator with state; the module says how it behaves.

    Parameters
    ----------
    key
        Field that is the key, or several.
    operators, manager, state, durable
        As `Participant` has them.
    remember_seconds
        How long ids of applied records are kept, where their source says no `low`; by default four
        times the topology's message time-out.
    """

    id_field: str = "id"
    """The application's id of a record: text, an int, or ``[source, number]`` as JSON text."""
    low_field: str = "low"
    """Where a source says which number may come again at least."""
    top: int = 2000
    """Keys that a report to the manager names; the others are its background load."""

    def __init__(
        self,
        *,
        key: str | Sequence[str] = "key",
        operators: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        manager: str | None = None,
        state: str | None = None,
        durable: bool = True,
        remember_seconds: float | None = None,
    ) -> None:
        super().__init__(operators=operators, manager=manager, state=state, durable=durable)
        self.key_fields = (key,) if isinstance(key, str) else tuple(key)
        self.remember_seconds = remember_seconds

    @property
    def batch_seconds(self) -> float:  # type: ignore[override]
        """As long as from one commit to the next: acks wait for both."""
        return self.commit_every

    # What a user overrides ----------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Take one record: look at `record.state`, set it, `emit_keyed` or `emit_on`."""
        raise NotImplementedError(f"{type(self).__name__}.apply")

    def process(self, records: list[Record]) -> None:  # type: ignore[override]
        """Take a batch of records, each with the state of its key; by default one by one.

        Who overrides it may set `record.cost`; else all of a batch are taken to cost the same.
        """
        clock = time.perf_counter
        for record in records:
            start = clock()
            self.apply(record)
            record.cost = clock() - start

    def encode_state(self, state: Any) -> bytes:
        """State as bytes; JSON by default."""
        return json.dumps(state, separators=(",", ":")).encode()

    def decode_state(self, data: bytes) -> Any:
        """State from bytes."""
        return json.loads(data)

    # What a user calls --------------------------------------------------------------------------

    def emit_keyed(
        self,
        operator: str,
        key: Any,
        values: Sequence[Any],
        record: Record,
        *,
        stream: str = "default",
    ) -> None:
        """Send ``[id, key, *values]`` to the task of an operator that owns the key.

        It leaves after the commit of the record that it comes from. Its id is made from that
        record's, so that the next operator knows it when it comes again. A key of several parts
        goes as text: the next operator reads the parts, which have to be among the values.
        """
        record._outputs.append([operator, stream, key, list(values)])

    def emit_on(self, values: Sequence[Any], record: Record, *, stream: str = "default") -> None:
        """Send values as they are to whoever reads a stream; after the commit too."""
        record._outputs.append([None, stream, None, list(values)])

    # set-up -------------------------------------------------------------------------------------

    def initialize(self, conf: dict[str, Any], context: Context) -> None:
        """Load what was committed."""
        timeout = conf.get("topology.message.timeout.secs") or 30
        seconds = self.remember_seconds or 4.0 * timeout
        self._keyed = KeyedState(
            seconds, encode=self.encode_state, decode=self.decode_state, now=time.time
        )
        self._fields: dict[tuple[str | None, str], _Fields] = {}
        self._nameless: set[str | None] = set()
        self._held: dict[bytes, Record] = {}
        self._handles = 0
        self._stats = KeyStats(window=1)
        self._tally = KeyStats(window=1)
        self._counted = 0
        self._pairs: dict[str, tuple[list[Any], list[Any]]] = {}
        self.doubles = 0
        """Records that came again and were not applied again."""
        super().initialize(conf, context)

    def _store(self) -> KeyedState:
        return self._keyed

    def _base(self) -> list[Section]:
        return self._keyed.base()

    def _changes(self) -> list[Section]:
        self._keyed.seen.expire(time.time())
        return self._keyed.changes()

    def _take(self, sections: list[Section]) -> list[Section]:
        return self._keyed.load(sections)

    # records ------------------------------------------------------------------------------------

    def _process_all(self, records: list[Tuple]) -> None:
        self._arrive([(r, r.component, r.stream, r.values) for r in records])
        self._commit_if_due()

    def _forwarded(self, record: Tuple, component: str, stream: str, values: list[Any]) -> None:
        self._arrive([(record, component, stream, values)])

    def _arrive(self, came: Iterable[tuple[Tuple, str | None, str, list[Any]]]) -> None:
        records = []
        for record, component, stream, values in came:
            fields = self._fields_of(component, stream)
            fields.check(values)
            identifier = None if fields.id is None else values[fields.id]
            one = Record(record, values, fields.key_of(values), identifier)
            if identifier is None:
                self._without_id(component)
            if fields.low is not None and one._sequence is not None:
                self._keyed.seen.passed(one._sequence[0], _low(values[fields.low]))
            records.append(one)
        for one, number in zip(records, numbers_of([one.key for one in records]), strict=True):
            one._number = number
        ready = [one for one in records if self._ready(one)]
        self._apply_all(ready)

    def _fields_of(self, component: str | None, stream: str) -> _Fields:
        fields = self._fields.get((component, stream))
        if fields is None:
            names = self.context.fields(component or "", stream)
            fields = _Fields(names, self.key_fields, self.id_field, self.low_field)
            self._fields[component, stream] = fields
        return fields

    def _without_id(self, component: str | None) -> None:
        """Say it, once for each component."""
        if self.durable and component not in self._nameless:
            self._nameless.add(component)
            self.log(
                f"{component}: records without {self.id_field!r}: those that Storm replays are"
                " applied again",
                3,
            )

    def _ready(self, record: Record) -> bool:
        """Whether to apply a record now; else it is held, sent on or failed here."""
        self._handles += 1
        handle = self._handles.to_bytes(8, "little")
        answer = self.machine.record(record._number, handle)
        if isinstance(answer, Apply):
            return True
        if isinstance(answer, Hold):
            self._held[handle] = record
        elif isinstance(answer, Full):
            self.fail(record._tuple)
        else:
            self._held[handle] = record
            self._forward(answer)
        return False

    def _forward(self, output: Forward) -> None:
        record = self._held.pop(output.payload)
        came = record._tuple
        component, stream = came.component, came.stream
        if stream in self.control_streams:  # it was sent on before
            component, stream, _ = json.loads(came.values[1])
        data = json.dumps([component, stream, record.values])
        self._outgoing.append((output.target, ["f", data], came))
        self._acks.append(came.id)

    def _apply_held(self, apply: list[Apply]) -> None:
        if apply:
            self._apply_all([self._held.pop(one.payload) for one in apply])

    def _apply_all(self, records: list[Record]) -> None:
        """Apply what was not applied before; outputs and acks wait for the commit."""
        new: list[Record] = []
        doubles: list[Record] = []
        for record in records:
            (new if self._is_new(record) else doubles).append(record)
        if new:
            start = time.perf_counter()
            self.process(new)
            self._measure(new, time.perf_counter() - start)
        for record in doubles:  # only now: the first of them may have been among the new ones
            record._outputs = self._made_before(record)
        for record in records:
            if record._outputs:
                self._route(record)
            self._acks.append(record._tuple.id)

    def _made_before(self, record: Record) -> list[Any]:
        assert record._text is not None
        found = None if self._stale(record) else self._keyed.seen.find(record._text)
        return (found and found[1]) or []

    def _stale(self, record: Record) -> bool:
        return record._sequence is not None and self._keyed.seen.stale(*record._sequence)

    def _is_new(self, record: Record) -> bool:
        record._state = self._keyed
        if record._text is not None:
            if self._stale(record):
                self.doubles += 1
                return False
            if record._text in self._keyed.seen:
                self.doubles += 1
                self._keyed.saw_again(record._text, record._sequence)
                return False
            self._keyed.saw(record._text, record._number, record._sequence)
        self._keyed.touch(record._number, record.key)
        return True

    def _measure(self, records: list[Record], seconds: float) -> None:
        self._counted += len(records)
        for record in records:
            if record._outputs and record._text is not None:
                self._keyed.made(record._text, record._outputs)
        if not self._managed:
            return
        share = seconds / len(records)
        sizes = self._keyed.sizes
        numbers = Keys.from_ids(np.array([record._number for record in records], np.uint64))
        self._tally.observe(numbers)
        self._stats.observe(
            numbers,
            costs=[share if record.cost is None else record.cost for record in records],
            state_sizes=[sizes.get(record._number, 0) for record in records],
        )

    def _route(self, record: Record) -> None:
        """Decide now where outputs go: what follows a change of routers goes by the new ones."""
        for at, (operator, stream, key, values) in enumerate(record._outputs):
            if operator is None:
                self._outgoing.append((None, stream, values, record._tuple))
                continue
            (number,) = numbers_of([key])
            answer = self.machine.route(operator, number, b"")
            if self._managed:
                ins, outs = self._pairs.setdefault(operator, ([], []))
                ins.append(record.key)
                outs.append(key)
            assert isinstance(answer, Send)
            assert answer.target is not None
            line = [self._derived(record, at), flat(key), *values]
            self._outgoing.append((answer.target, stream, line, record._tuple))

    def _derived(self, record: Record, at: int) -> str | None:
        if record._sequence is not None:
            assert record._text is not None
            return str(flat([*json.loads(record._text), self.me.operator, at]))
        return None if record.id is None else f"{record.id}/{self.me.operator}/{at}"

    def _send_out(self, target: Any, *rest: Any) -> None:
        if len(rest) < 3:
            super()._send_out(target, *rest)
            return
        stream, values, anchor = rest
        task = None if target is None else self.wiring.ids[target]
        self.emit(values, stream=stream, task=task, anchors=anchor)

    # statistics ---------------------------------------------------------------------------------

    def report(self) -> str | None:
        """Cost and state size of the heaviest keys since the last report, and of all others."""
        counted, self._counted = self._counted, 0
        snapshot = self._stats.close_interval()
        ids, costs, sizes = snapshot.ids, snapshot.costs, snapshot.state_sizes
        every = np.lexsort((ids, -costs))
        order, others = every[: self.top], every[self.top :]
        tally = self._tally.close_interval()  # it has these keys too
        by_id = np.argsort(tally.ids)
        counts = tally.costs[by_id[np.searchsorted(tally.ids, ids, sorter=by_id)]]
        names = [self._keyed.values.get(int(key)) for key in ids[order]]
        document = {
            "task": list(self.me),
            "records": counted,
            "epoch": self.machine.epoch,
            "ids": base64.b64encode(ids[order].astype("<u8").tobytes()).decode(),
            "costs": base64.b64encode(costs[order].astype("<f8").tobytes()).decode(),
            "sizes": base64.b64encode(sizes[order].astype("<i8").tobytes()).decode(),
            "counts": base64.b64encode(counts[order].astype("<f8").tobytes()).decode(),
            "names": names,
            "background": float(costs[others].sum()),
            "keys": len(self._keyed),
            "doubles": self.doubles,
            "worker": os.environ.get("PYROUTE_WORKER") or f"{socket.gethostname()}:{os.getppid()}",
            "pairs": self._report_pairs(),
        }
        return json.dumps(document)

    def _report_pairs(self) -> dict[str, str]:
        """How often a key of the next operator followed one of this: of each operator a sketch."""
        out = {}
        pairs, self._pairs = self._pairs, {}
        for operator, (ins, outs) in pairs.items():
            sketch = PairSpaceSaving(self.top)
            with contextlib.suppress(TypeError):  # keys of several types: no pairs of those
                sketch.observe(ins, outs)
                out[operator] = base64.b64encode(sketch.to_bytes()).decode()
        return out


class CountBolt(TaskBolt):
    """Counts the records of each key: the least task that is of use, and what the tests run."""

    work_seconds: float = 0.0
    """Busy work for each record, to have something to measure."""

    def apply(self, record: Record) -> None:
        """One more."""
        record.state = (record.state or 0) + 1
        if self.work_seconds:
            until = time.perf_counter() + self.work_seconds
            while time.perf_counter() < until:
                pass


class FunctionBolt(TaskBolt):
    """Applies a function ``(state, values) -> state``, or ``-> (state, [values, ...])``.

    Parameters
    ----------
    function
        Gets the state of the key, None at first, and the values of the record. Lists of values that
        it returns go to `stream`.
    options
        As `TaskBolt` has them.
    """

    stream = "default"

    def __init__(self, function: Callable[[Any, list[Any]], Any], **options: Any) -> None:
        super().__init__(**options)
        self.function = function

    def apply(self, record: Record) -> None:
        """Call the function."""
        result = self.function(record.state, record.values)
        if isinstance(result, tuple):
            result, outputs = result
            for values in outputs:
                self.emit_on(values, record, stream=self.stream)
        record.state = result


def snapshot_of(
    reports: Iterable[Mapping[str, Any]],
    *,
    interval: int = 0,
    tasks: Collection[int] | None = None,
    arrivals: Iterable[Mapping[str, Any]] = (),
) -> Snapshot:
    """One snapshot of what the tasks of an operator reported, once or several times each.

    Parameters
    ----------
    reports
        Documents of `TaskBolt.report`.
    interval
        Its number.
    tasks
        Those whose load without names counts; None: all.
    arrivals
        Documents of `SourceBolt.report` of the same time. A task with a backlog reports what it
        works off, not what comes: with these a key costs its arrivals times what one record of it
        costs at its task.
    """
    ids: list[Any] = []
    costs: list[Any] = []
    sizes: list[Any] = []
    counts: list[Any] = []
    background: dict[int, float] = {}
    for report in reports:
        ids.append(_array(report, "ids", "<u8"))
        costs.append(_array(report, "costs", "<f8"))
        sizes.append(_array(report, "sizes", "<i8"))
        counts.append(_array(report, "counts", "<f8"))
        task = int(report["task"][1])
        if tasks is None or task in tasks:
            background[task] = background.get(task, 0.0) + float(report["background"])
    if not ids:
        raise ValueError("reports: expected one at least, got none")
    came = list(arrivals)
    ids += [_array(report, "ids", "<u8") for report in came]
    every, where = np.unique(np.concatenate(ids), return_inverse=True)
    done = len(where) - sum(len(each) for each in ids[len(costs) :])
    cost, count, arrived = np.zeros((3, len(every)))
    size = np.zeros(len(every), np.int64)
    np.add.at(cost, where[:done], np.concatenate(costs))
    np.add.at(count, where[:done], np.concatenate(counts))
    np.maximum.at(size, where[:done], np.concatenate(sizes))
    if came:
        numbers = np.concatenate([_array(report, "counts", "<f8") for report in came])
        np.add.at(arrived, where[done:], numbers)
        whole = not any(report["unnamed"] for report in came)
        cost = _expected(cost, count, arrived, whole=whole)
    return Snapshot(Keys.from_ids(every), cost, size, background=background, interval=interval)


def _array(report: Mapping[str, Any], name: str, kind: str) -> npt.NDArray[Any]:
    return np.frombuffer(base64.b64decode(report[name]), kind)


def _expected(cost: Reals, count: Reals, arrived: Reals, *, whole: bool) -> Reals:
    """What the arrivals of keys cost; `whole`: the keys that are not among them did not come."""
    if not count.sum() or not arrived.sum():
        return cost
    mean = cost.sum() / count.sum()
    each = (cost + 3 * mean) / (count + 3)  # few records of a key say little about the next
    return np.where(arrived > 0, arrived * each, 0.0 if whole else cost)
