"""pystorm, as its documentation has it: a table lookup, a direct emit, an automatic ack."""

import json
import sys

from pystorm import Bolt
from pystorm.exceptions import StormWentAwayError

from bench.storm.children.clock import Clock


class Routes(Bolt):
    auto_fail = False

    def initialize(self, conf, context):  # noqa: ARG002
        self.table = json.load(open(sys.argv[1]))  # noqa: PTH123, SIM115
        self.records = 0
        self.clock = Clock()

    def process(self, tup):
        key = tup.values[0]
        task = self.table.get(key) or 5 + hash(key) % 8
        self.emit(tup.values, direct_task=task, need_task_ids=False)
        self.records += 1

    def raise_exception(self, exception, tup=None):
        pass


if __name__ == "__main__":
    bolt = Routes()
    try:
        bolt.run()
    except (SystemExit, StormWentAwayError):
        bolt.clock.stop(bolt.records)
        raise
