"""The bolts of paper 003's two topologies: streams.py KIND FOLDER [WAIT WORK].

`count` counts requests by URL and sends what came every 500 ms on; `total` adds that up over two
minutes. `query` has the standing queries "which machine is above this share of its CPU, in the mean
of its last ten readings?", and `answers` takes what they find. Each writes twice a second how many
records it has taken and when, to the file of its task in the folder. With WAIT and WORK, seconds, a
record of `count` and `query` waits so long and takes so much CPU time; a request is acked at once
then, and no count of URLs is tracked.
"""

import os
import sys
import time
from collections import Counter, deque
from pathlib import Path

from pyroute.storm import Bolt

PARTIAL, WINDOW = 0.5, 120.0
LIMITS = (20.0, 50.0, 80.0)
"""Of the standing queries, in percent."""


class Written(Bolt):
    idle_seconds = PARTIAL
    folder = Path()
    taken = 0
    wait = work = 0.0

    def toil(self):
        time.sleep(self.wait)
        until = time.thread_time() + self.work
        while time.thread_time() < until:
            pass

    def initialize(self, conf, context):
        del conf
        own = context.tasks(context.component).index(context.task)
        (self.folder / f"{context.component}-{own}.pid").write_text(f"{os.getpid()} {context.task}")

    def on_idle(self):
        own = self.context.tasks(self.context.component).index(self.context.task)
        fresh = self.folder / f".{self.context.component}-{own}"
        fresh.write_text(f"{self.taken} {time.monotonic()}")
        fresh.replace(self.folder / f"{self.context.component}-{own}")


class Count(Written):
    def __init__(self):
        self.open = {}

    def process(self, records):
        self.taken += len(records)
        if not self.wait:
            self.defer(records)
        for record in records:
            if self.wait:
                self.toil()
                self.ack(record)
            self.open.setdefault(record.values[1], []).append(record)

    def on_idle(self):
        for url, records in self.open.items():
            self.emit([url, len(records)], anchors=() if self.wait else records)
            if not self.wait:
                self.ack_all(records)
        self.open = {}
        super().on_idle()


class Total(Written):
    def __init__(self):
        self.window, self.counts = deque(), Counter()

    def process(self, records):
        now = time.monotonic()
        for record in records:
            url, count = record.values
            self.taken += count
            self.counts[url] += count
            self.window.append((now, url, count))
        while self.window and self.window[0][0] < now - WINDOW:
            _, url, count = self.window.popleft()
            self.counts[url] -= count
            if not self.counts[url]:
                del self.counts[url]


class Query(Written):
    def __init__(self):
        self.last = {}

    def process(self, records):
        self.taken += len(records)
        for record in records:
            if self.wait:
                self.toil()
            _, machine, reading = record.values
            last = self.last.setdefault(machine, deque(maxlen=10))
            last.append(float(reading))
            mean = sum(last) / len(last)
            for limit in LIMITS:
                if mean > limit:
                    self.emit([machine, limit], anchors=record)


class Answers(Written):
    def process(self, records):
        self.taken += len(records)


kind, folder, *cost = sys.argv[1:]
bolt = {"count": Count, "total": Total, "query": Query, "answers": Answers}[kind]()
bolt.folder = Path(folder)
if cost:
    bolt.wait, bolt.work = map(float, cost)
bolt.run()
