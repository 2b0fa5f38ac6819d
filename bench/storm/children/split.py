"""A bolt on Storm's own storm.py, which lies beside it in the resources of a topology."""

import storm


class Split(storm.BasicBolt):
    def process(self, tup):
        storm.emit([tup.values[0], tup.values[1], "storm.py"])


Split().run()
