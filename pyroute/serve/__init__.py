"""A live page of a running pipeline: what it does, which keys are hot, what was decided and why.

Read-only. It reads what pipelines write (`pyroute.serve.sources`), never what they hold in memory,
so that it can be started, stopped and killed at any time.
"""

from pyroute.serve.server import Server
from pyroute.serve.sources import Source, SourceError, open_source
from pyroute.serve.watch import Watcher

__all__ = ["Server", "Source", "SourceError", "Watcher", "open_source"]
