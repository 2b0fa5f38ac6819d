"""A spout of words whose frequencies drift: every minute other words are the frequent ones.

Records are ``[id, word, low]``: the id is source and number as JSON text, the number counts up, and
`low` is the least number not yet acked, so that tasks know exactly which ids may still come again.
"""

import json
import random
import time

from pyroute.storm.bolt import Spout

WORDS = 2000
SECONDS = 60.0
"""After which the frequent words change."""


class Words(Spout):
    """At most `pending` records are open; what fails is sent again."""

    pending = 1000

    def initialize(self, conf, context):  # noqa: ARG002
        # Another number for each life of the spout: ids must not be used twice.
        self.source = f"{context.component}-{context.task}-{time.time_ns()}"
        self.random = random.Random(context.task)
        self.open = {}
        self.number = 0

    def next(self):
        for _ in range(min(100, self.pending - len(self.open))):
            shift = int(time.time() / SECONDS) * 97
            rank = int(WORDS ** self.random.random()) - 1
            self.open[self.number] = f"word{(rank + shift) % WORDS}"
            self.number += 1
            self.send(self.number - 1)

    def send(self, number):
        low = min(self.open)
        self.emit([json.dumps([self.source, number]), self.open[number], low], id=number)

    def acked(self, identifier):
        self.open.pop(identifier, None)

    def failed(self, identifier):
        if identifier in self.open:
            self.send(identifier)


if __name__ == "__main__":
    Words().run()
