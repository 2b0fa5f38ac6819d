"""Bolts of bench/storm/keyed.py, whose tasks wait for a service: waiting.py KIND [MILLISECONDS].

`task` counts by key and waits so long for each record; `partial` does the same and also sends what
it counted on, as [count, key]; `pass` sends records on, by whatever grouping its reader has.
"""

import contextlib
import fcntl
import sys
import time
from collections import Counter

from pyroute.storm.bolt import Bolt, take_stdio
from pyroute.storm.task_bolt import TaskBolt

BATCH = 8


class Task(TaskBolt):
    """Waits once for a batch: as long as its records one by one, with less of the clock's error."""

    max_batch = BATCH
    commit_every = 0.05
    seconds = 0.0
    narrowed = False

    def narrow(self):
        """What waits in the pipe is on nobody's list: as little as the kernel allows.

        It refuses while more than that waits; the first to come is Storm's configuration.
        """
        with contextlib.suppress(OSError):
            fcntl.fcntl(take_stdio()[0], fcntl.F_SETPIPE_SZ, 4096)
            self.narrowed = True

    def process(self, records):
        if not self.narrowed:
            self.narrow()
        for record in records:
            record.state = (record.state or 0) + 1
        time.sleep(self.seconds * len(records))


class Partial(Task):
    """A key has several tasks: what they counted has to be added up by somebody."""

    def process(self, records):
        super().process(records)
        last = {record.key: record for record in records}
        for key, count in Counter(record.key for record in records).items():
            self.emit_on([count, key], last[key], stream="partials")


class Pass(Bolt):
    def process(self, records):
        for record in records:
            self.emit(record.values, anchors=record)


kind, *rest = sys.argv[1:]
if kind != "pass":
    Task.seconds = float(rest[0]) / 1000
{"pass": Pass, "task": Task, "partial": Partial}[kind]().run()
