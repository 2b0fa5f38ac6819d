"""CPU time of a child from the end of its set-up to its end, written to stderr."""

import resource
import sys
import time


class Clock:
    def __init__(self):
        self.start = time.process_time()
        self.system = resource.getrusage(resource.RUSAGE_SELF).ru_stime

    def stop(self, records):
        seconds = time.process_time() - self.start
        system = resource.getrusage(resource.RUSAGE_SELF).ru_stime - self.system
        sys.stderr.write(f"\nbench: {seconds!r} {records} {system!r}\n")
        sys.stderr.flush()
