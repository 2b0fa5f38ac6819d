"""The first bolt of bench/storm/schedule.py: scheduler.py MODE FOLDER.

With `posg` or `pooled` it is a `SchedulerBolt` that writes once a second how many reports came;
with `none` it sends on what it gets, as a bolt before Storm's own groupings would.
"""

import json
import sys
from pathlib import Path

from pyroute.storm import Bolt
from pyroute.storm.scheduler_bolt import SchedulerBolt


class Passing(Bolt):
    def process(self, records):
        for record in records:
            self.emit([None, *record.values], anchors=record)


class Shown(SchedulerBolt):
    folder = Path()
    shown = 0.0

    def on_idle(self):
        super().on_idle()
        if self.now() - self.shown >= 1.0:
            self.shown = self.now()
            fresh = self.folder / ".reports"
            fresh.write_text(json.dumps({"reports": self.reports, "refused": self.refused}))
            fresh.replace(self.folder / "reports")


mode, folder = sys.argv[1:]
if mode == "none":
    Passing().run()
else:
    bolt = Shown("work", fields="key", mode=mode)
    bolt.folder = Path(folder)
    bolt.run()
