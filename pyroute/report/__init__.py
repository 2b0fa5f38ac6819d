"""One file that answers "which key is it?": a report that opens offline, in any browser.

>>> import pyroute as pr
>>> from pyroute import report
>>> snapshot = pr.Snapshot(["anna", "bert", "carl", "dora"], costs=[40, 30, 20, 10])
>>> plan = pr.rebalance(snapshot, pr.Router(2), max_imbalance=0)
>>> page = report.build("A look", plan=plan)
>>> report.write(page, "report.html")  # doctest: +SKIP
"""

from pyroute.report.model import (
    Certificate,
    Event,
    Fact,
    Flow,
    Heat,
    HotKey,
    Interval,
    KeyName,
    Line,
    Locality,
    Move,
    Report,
    Series,
    Share,
    TaskLoad,
    Words,
    build,
    name_of,
)
from pyroute.report.writer import to_html, write

__all__ = [
    "Certificate",
    "Event",
    "Fact",
    "Flow",
    "Heat",
    "HotKey",
    "Interval",
    "KeyName",
    "Line",
    "Locality",
    "Move",
    "Report",
    "Series",
    "Share",
    "TaskLoad",
    "Words",
    "build",
    "name_of",
    "to_html",
    "write",
]
