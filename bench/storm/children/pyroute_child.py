"""A RouterBolt with a table and statistics."""

import sys

from bench.storm.children.clock import Clock
from pyroute.storm import RouterBolt


class Measured(RouterBolt):
    def initialize(self, conf, context):
        super().initialize(conf, context)
        self.clock = Clock()

    def finish(self):
        self.clock.stop(self.statistics().total if self.capacity else self.records)
        super().finish()


if __name__ == "__main__":
    Measured(sys.argv[1], key=0, capacity=1000).run()
