"""A bolt on pyroute's `Bolt`: sends on what it gets, and says how much at every tick."""

from pyroute.storm import Bolt


class Echo(Bolt):
    count = 0

    def process(self, records):
        for record in records:
            self.count += 1
            self.emit(record.values, anchors=record)

    def tick(self):
        print(f"{self.count} records")  # goes to the worker's log


Echo().run()
