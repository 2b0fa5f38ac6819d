"""The same router written with pystorm: pystorm_router.py FILE COMPONENT."""

import sys
from pathlib import Path

from pystorm.bolt import Bolt

import pyroute as pr


class Router(Bolt):
    def initialize(self, conf, context):  # noqa: ARG002 - pystorm calls it so
        self.router = pr.Router.from_bytes(Path(sys.argv[1]).read_bytes())
        names = context["task->component"]
        self.tasks = sorted(int(task) for task, name in names.items() if name == sys.argv[2])

    def process(self, tup):
        task = self.tasks[self.router.route_one(tup.values[1])]
        # The sum is what Storm from 2.6 on needs; without it the bolt dies at its first record.
        self.emit(tup.values, direct_task=task + (1 << 32), need_task_ids=False)


Router().run()
