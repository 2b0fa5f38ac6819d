"""The same where Storm follows no record: how much of the slow link do acks take?

As the section before, records of 4,000 bytes, all pairs together, without ackers. An ack names its
record at an acker that is chosen by the record's id, so that half of the acks cross the link,
wherever the records go: some 60 bytes of each record, which at a link of 20 Mbit/s is what limits
records that all stay on their host. Without acks queues that are full hold the sources back.
"""

from typing import Any

from bench.peers import Scale
from bench.report import Section
from bench.storm import hosts
from bench.storm.hosts import Case

TITLE = "Two hosts, a slow link, no acks"


def cases(scale: Scale) -> list[tuple[Case, int]]:
    times = scale.pick(3, 1)
    arms = [("hash", False), ("colocated", False), ("colocated", True)]
    return [(Case(arm, 100, free=free, acked=False), times) for arm, free in arms]


def measure(scale: Scale) -> dict[str, Any]:
    return hosts.measured(cases(scale), scale)


def show(result: dict[str, Any]) -> Section:
    section = Section(TITLE, " ".join((__doc__ or "").split()))
    rows = hosts.Rows(result)
    hosts.table_of(section, rows)
    hosts.judge(section, rows, acked=False)
    return section
